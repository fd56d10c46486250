#include "data/sources/files.h"

#include "data/sources/counting_cursor.h"

namespace lockstep::data {
namespace {

class FilesCursor final : public Cursor {
 public:
  FilesCursor(Stage& stage, std::shared_ptr<const FileSource> source)
      : Cursor(stage), source_(std::move(source)) {}
  void save(StateWriter& state) override {
    state.number("file", static_cast<int64_t>(file_));
    state.number("open", reader_ != nullptr);
    if (reader_) reader_->save(state);
  }
  void restore(const StateReader& state) override {
    file_ = static_cast<size_t>(state.number("file"));
    if (state.number("open") == 0) return;
    require(file_ < source_->files.size(), ErrorCode::invalid_argument, state.where(),
            "the iterator's state is in file ", file_, " of ", source_->name, ", which has ",
            source_->files.size());
    reader_ = source_->open(source_->files[file_]);
    reader_->restore(state);
  }

 private:
  bool advance(Item& item) override {
    while (file_ < source_->files.size()) {
      try {
        if (!reader_) reader_ = source_->open(source_->files[file_]);
        if (reader_->next(item)) return true;
      } catch (...) {
        if (!reader_ || reader_->ended()) next_file();
        throw;
      }
      next_file();
    }
    return false;
  }
  void next_file() {
    reader_.reset();
    ++file_;
  }

  std::shared_ptr<const FileSource> source_;
  size_t file_ = 0;
  std::unique_ptr<FileReader> reader_;  // of the file; none: not opened yet
};

// None where there are not enough for every share.
std::optional<std::vector<std::string>> share(const std::vector<std::string>& files, int64_t count,
                                              int64_t index) {
  if (count > static_cast<int64_t>(files.size())) return {};
  std::vector<std::string> kept;
  for (auto i = static_cast<size_t>(index); i < files.size(); i += static_cast<size_t>(count))
    kept.push_back(files[i]);
  return kept;
}

// "\"a.txt\""; "8 files"; "2 of 8 files: one of 4, from number 1"
std::string files_text(const std::vector<std::string>& files, const FileShare& share) {
  if (share.all > 0)
    return detail::concat(files.size(), " of ", share.all, " files: one of ", share.count, ", from number ",
                          share.index);
  return files.size() == 1 ? '"' + files[0] + '"' : std::to_string(files.size()) + " files";
}

// What is left of a share that is shared again.
FileShare narrowed(const FileShare& share, size_t files, int64_t count, int64_t index) {
  if (share.all == 0) return {files, count, index};
  return {share.all, share.count * count, share.index + share.count * index};
}

class FilesNode final : public NodeOf<FilesNode> {
 public:
  FilesNode(FileSource source, std::source_location where)
      : NodeOf(source.name, {}, where), source_(std::make_shared<const FileSource>(std::move(source))) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<FilesCursor>(opening.stage, source_);
  }
  std::optional<ElementSpec> spec() const override { return source_->spec; }
  int64_t cardinality() const override {
    if (!source_->count) return kUnknown;
    int64_t sum = 0;
    for (const std::string& file : source_->files) {
      const int64_t count = source_->count(file);
      if (count < 0) return kUnknown;
      sum += count;
    }
    return sum;
  }
  std::string arguments() const override { return files_text(source_->files, source_->share); }
  int64_t files() const override { return std::ssize(source_->files); }
  NodePtr shard_files(int64_t count, int64_t index) const override {
    auto files = share(source_->files, count, index);
    if (!files) return nullptr;
    FileSource source = *source_;
    source.share = narrowed(source.share, source.files.size(), count, index);
    source.files = *std::move(files);
    return std::make_shared<FilesNode>(std::move(source), where_);
  }

 private:
  std::shared_ptr<const FileSource> source_;
};

class NamesCursor final : public CountingCursor {
 public:
  NamesCursor(Stage& stage, std::shared_ptr<const std::vector<std::string>> files)
      : CountingCursor(stage), files_(std::move(files)) {}

 private:
  bool advance(Item& item) override {
    if (at_ >= std::ssize(*files_)) return false;
    item = Item(bytes((*files_)[static_cast<size_t>(at_++)]));
    return true;
  }
  std::shared_ptr<const std::vector<std::string>> files_;
};

class NamesNode final : public NodeOf<NamesNode> {
 public:
  NamesNode(std::string name, std::vector<std::string> files, const FileShare& share,
            std::source_location where)
      : NodeOf(std::move(name), {}, where),
        files_(std::make_shared<const std::vector<std::string>>(std::move(files))),
        share_(share) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<NamesCursor>(opening.stage, files_);
  }
  std::optional<ElementSpec> spec() const override { return byte_string_spec(); }
  int64_t cardinality() const override { return std::ssize(*files_); }
  std::string arguments() const override { return files_text(*files_, share_); }
  int64_t files() const override { return std::ssize(*files_); }
  NodePtr shard_files(int64_t count, int64_t index) const override {
    auto files = share(*files_, count, index);
    if (!files) return nullptr;
    const FileShare narrower = narrowed(share_, files_->size(), count, index);
    return std::make_shared<NamesNode>(name_, *std::move(files), narrower, where_);
  }

 private:
  std::shared_ptr<const std::vector<std::string>> files_;
  FileShare share_;
};

}  // namespace

Dataset files_dataset(FileSource source, std::source_location where) {
  return Dataset(std::make_shared<FilesNode>(std::move(source), where));
}

Dataset file_names_dataset(const std::string& name, std::vector<std::string> files,
                           std::source_location where) {
  return Dataset(std::make_shared<NamesNode>(name, std::move(files), FileShare{}, where));
}

}  // namespace lockstep::data
