// cache, snapshot: the elements of the first whole pass are kept, later passes read those.
//
// What is kept knows of which pass it is (Opening::pass): a position in it, restored where the kept elements
// are not to be had any more, is found again by a pass over the input that makes the same random choices.
#include <unistd.h>

#include <filesystem>

#include "data/element_file.h"
#include "data/node.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// A whole pass, read in order.
class KeptPass {
 public:
  virtual ~KeptPass() = default;
  virtual uint64_t pass() const = 0;
  virtual bool next(Item& item) = 0;
  virtual void skip(int64_t count) = 0;
};

// A pass that is being kept. Destroyed without commit() it leaves nothing.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void add(const Item& item) = 0;
  virtual void commit() = 0;
  // What was recorded so far, where it is not too much for a state.
  virtual std::vector<Item>* items() { return nullptr; }
};

// Shared by the cursors of all iterators over a node, in different threads.
class Keeper {
 public:
  virtual ~Keeper() = default;
  // None where there is no whole pass yet.
  virtual std::unique_ptr<KeptPass> open() const = 0;
  virtual std::unique_ptr<Recording> record(uint64_t pass) = 0;
};

// --- in memory ---

class MemoryKeeper final : public Keeper {
 public:
  std::unique_ptr<KeptPass> open() const override {
    const std::lock_guard lock(mutex_);
    return items_ ? std::make_unique<Kept>(items_, pass_) : nullptr;
  }
  std::unique_ptr<Recording> record(uint64_t pass) override { return std::make_unique<Record>(*this, pass); }

 private:
  using Items = std::shared_ptr<const std::vector<Item>>;

  class Kept final : public KeptPass {
   public:
    Kept(Items items, uint64_t pass) : items_(std::move(items)), pass_(pass) {}
    uint64_t pass() const override { return pass_; }
    bool next(Item& item) override {
      if (at_ >= items_->size()) return false;
      item = (*items_)[at_++];
      return true;
    }
    void skip(int64_t count) override { at_ += static_cast<size_t>(count); }

   private:
    Items items_;
    uint64_t pass_;
    size_t at_ = 0;
  };

  class Record final : public Recording {
   public:
    Record(MemoryKeeper& keeper, uint64_t pass) : keeper_(keeper), pass_(pass) {}
    void add(const Item& item) override { items_.push_back(item); }
    void commit() override {
      const std::lock_guard lock(keeper_.mutex_);
      if (keeper_.items_) return;
      keeper_.items_ = std::make_shared<const std::vector<Item>>(std::move(items_));
      keeper_.pass_ = pass_;
    }
    std::vector<Item>* items() override { return &items_; }

   private:
    MemoryKeeper& keeper_;
    uint64_t pass_;
    std::vector<Item> items_;
  };

  mutable std::mutex mutex_;
  Items items_;
  uint64_t pass_ = 0;
};

// --- in files ---

// Elements in turn from each of several files.
class KeptFiles final : public KeptPass {
 public:
  KeptFiles(const std::vector<std::string>& paths, std::source_location where) {
    for (const std::string& path : paths) readers_.push_back(std::make_unique<ElementReader>(path, where));
  }
  uint64_t pass() const override { return readers_[0]->tag(); }
  bool next(Item& item) override {
    std::optional<Element> element = readers_[at_ % readers_.size()]->next();
    if (!element) return false;
    item = Item(*std::move(element));
    ++at_;
    return true;
  }
  void skip(int64_t count) override {
    while (count-- > 0 && readers_[at_ % readers_.size()]->skip(1)) ++at_;
  }

 private:
  std::vector<std::unique_ptr<ElementReader>> readers_;
  size_t at_ = 0;
};

class RecordedFiles : public Recording {
 public:
  RecordedFiles(const std::vector<std::string>& paths, uint64_t pass, bool compressed,
                std::source_location where) {
    for (const std::string& path : paths)
      writers_.push_back(std::make_unique<ElementWriter>(path, pass, compressed, where));
  }
  void add(const Item& item) override {
    Item copy = item;
    writers_[count_++ % writers_.size()]->add(copy.element());
  }
  void commit() override {
    for (const auto& writer : writers_) writer->commit();
  }

 protected:
  void discard() { writers_.clear(); }
  size_t count() const { return count_; }

 private:
  std::vector<std::unique_ptr<ElementWriter>> writers_;
  size_t count_ = 0;
};

class FileKeeper final : public Keeper {
 public:
  FileKeeper(const std::string& name, std::source_location where)
      : path_(name + ".elements"), where_(where) {}
  std::unique_ptr<KeptPass> open() const override {
    if (!file_exists(path_)) return nullptr;
    return std::make_unique<KeptFiles>(std::vector{path_}, where_);
  }
  std::unique_ptr<Recording> record(uint64_t pass) override {
    return std::make_unique<RecordedFiles>(std::vector{path_}, pass, false, where_);
  }

 private:
  std::string path_;
  std::source_location where_;
};

// --- in a folder ---

// The files of a pass lie in a folder of their own; the manifest, written last, says which one counts.
class SnapshotKeeper final : public Keeper {
 public:
  SnapshotKeeper(fs::path folder, const SnapshotOptions& options, std::source_location where)
      : folder_(std::move(folder)), options_(options), where_(where) {}
  std::unique_ptr<KeptPass> open() const override {
    const fs::path manifest = folder_ / kManifest;
    if (!file_exists(manifest.string())) return nullptr;
    const Json json = Json::read_file(manifest.string(), where_);
    std::vector<std::string> paths;
    for (const Json& file : json.at("files", where_).items(where_))
      paths.push_back((folder_ / file.as_string(where_)).string());
    require(!paths.empty(), ErrorCode::io, where_, "snapshot: \"", manifest.string(), "\" names no file");
    return std::make_unique<KeptFiles>(paths, where_);
  }
  std::unique_ptr<Recording> record(uint64_t pass) override {
    return std::make_unique<Record>(*this, new_folder(), pass);
  }

 private:
  static constexpr const char* kManifest = "manifest.json";

  // A name that no other process has: the folder is made with it, which only one can.
  std::string new_folder() const {
    std::error_code error;
    fs::create_directories(folder_, error);
    for (int64_t number = 0;; ++number) {
      const std::string name = detail::concat("pass-", getpid(), "-", number);
      if (!error && fs::create_directory(folder_ / name, error)) return name;
      require(!error, ErrorCode::io, where_, "snapshot: cannot make a folder in \"", folder_.string(),
              "\": ", error.message());
    }
  }

  class Record final : public RecordedFiles {
   public:
    Record(const SnapshotKeeper& keeper, const std::string& name, uint64_t pass)
        : RecordedFiles(paths(keeper, name), pass, keeper.options_.compressed, keeper.where_),
          keeper_(keeper),
          name_(name) {}
    ~Record() override {
      if (committed_) return;
      discard();
      std::error_code ignored;
      fs::remove_all(keeper_.folder_ / name_, ignored);
    }
    void commit() override {
      const fs::path manifest = keeper_.folder_ / kManifest;
      // Another one was quicker: its pass is the one that others may have begun to read.
      if (file_exists(manifest.string())) return;
      RecordedFiles::commit();
      Json json = Json::object({{"complete", true}, {"elements", count()}, {"files", Json::list()}});
      for (const std::string& file : files(keeper_, name_)) json["files"].push_back(file);
      AtomicFile out(manifest.string(), keeper_.where_);
      out.write(json.dump(2) + "\n");
      out.commit();
      committed_ = true;
    }

   private:
    static std::vector<std::string> files(const SnapshotKeeper& keeper, const std::string& name) {
      std::vector<std::string> all;
      for (int64_t shard = 0; shard < keeper.options_.shards; ++shard)
        all.push_back(detail::concat(name, "/", shard, ".elements"));
      return all;
    }
    static std::vector<std::string> paths(const SnapshotKeeper& keeper, const std::string& name) {
      std::vector<std::string> all = files(keeper, name);
      for (std::string& file : all) file = (keeper.folder_ / file).string();
      return all;
    }

    const SnapshotKeeper& keeper_;
    std::string name_;
    bool committed_ = false;
  };

  fs::path folder_;
  SnapshotOptions options_;
  std::source_location where_;
};

// --- the stage ---

class CacheCursor final : public Cursor {
 public:
  CacheCursor(const Opening& opening, const Node& input, std::shared_ptr<Keeper> keeper)
      : Cursor(opening.stage), opening_(opening), node_(input), keeper_(std::move(keeper)) {}
  void save(StateWriter& state) override {
    begin();
    state.number("at", at_);
    state.number("pass", static_cast<int64_t>(opening_.pass));
    const Mode mode = kept_ || ended_ ? Mode::reads : recording_ ? Mode::records : Mode::passes;
    state.number("mode", static_cast<int64_t>(mode));
    state.number("ended", ended_);
    std::vector<Item>* items = recording_ ? recording_->items() : nullptr;
    state.number("held", items != nullptr);
    if (items) state.items("items", *items);
    if (items || mode == Mode::passes) state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    const int64_t at = state.number("at");
    opening_.pass = static_cast<uint64_t>(state.number("pass"));
    const auto mode = static_cast<Mode>(state.number("mode"));
    if (mode == Mode::passes || state.number("held") != 0) {
      at_ = at;
      input_ = opening_.open(node_);
      if (mode == Mode::records) {
        recording_ = keeper_->record(opening_.pass);
        for (const Item& item : state.items("items")) recording_->add(item);
      }
      state.cursor("input", *input_);
      return;
    }
    kept_ = keeper_->open();
    if (kept_ && kept_->pass() == opening_.pass) {
      at_ = at;
      kept_->skip(at);
      return;
    }
    kept_.reset();
    start_recording();
    Item item;
    while (at_ < at && advance(item)) {
    }
    // Other passes may count on what is kept from here on.
    if (state.number("ended") != 0) advance(item);
  }

 private:
  enum class Mode : int64_t { reads, records, passes };

  void start_recording() {
    input_ = opening_.open(node_);
    recording_ = keeper_->record(opening_.pass);
  }
  // With the first element: another iterator may have made the first whole pass meanwhile.
  void begin() {
    if (kept_ || input_) return;
    kept_ = keeper_->open();
    if (kept_)
      opening_.pass = kept_->pass();
    else
      start_recording();
  }
  bool advance(Item& item) override {
    begin();
    if (kept_) {
      ended_ = !kept_->next(item);
      if (ended_) return false;
    } else {
      try {
        if (!input_->next(item)) {
          if (recording_) {
            recording_->commit();
            recording_.reset();
            ended_ = true;
          }
          return false;
        }
        if (recording_) recording_->add(item);
      } catch (const Error&) {
        recording_.reset();
        log_once(LogLevel::warning, stage().name, ": a pass in which an element failed is not kept [",
                 stage().where.file_name(), ":", stage().where.line(),
                 "]; ignore_errors() before it leaves such out");
        throw;
      }
    }
    ++at_;
    return true;
  }

  Opening opening_;  // its pass is that of what is kept
  const Node& node_;
  std::shared_ptr<Keeper> keeper_;
  int64_t at_ = 0;
  bool ended_ = false;  // of a pass that is kept
  std::unique_ptr<KeptPass> kept_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<Cursor> input_;
};

class CacheNode final : public FilteringNode<CacheNode> {
 public:
  CacheNode(const char* name, NodePtr input, std::shared_ptr<Keeper> keeper, std::string place,
            std::source_location where)
      : FilteringNode(name, {std::move(input)}, where),
        keeper_(std::move(keeper)),
        place_(std::move(place)) {}
  // On another input it would keep something else.
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    if (!place_.empty()) return FilteringNode::with_inputs(std::move(inputs));
    return std::make_shared<CacheNode>(name_.c_str(), inputs[0], std::make_shared<MemoryKeeper>(), place_,
                                       where_);
  }
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<CacheCursor>(opening, input(), keeper_);
  }
  int64_t cardinality() const override { return input().cardinality(); }
  // Files have one name, whoever writes them: workers must keep the same.
  bool shares_files() const override { return place_.empty(); }
  std::string arguments() const override { return place_; }

 private:
  std::shared_ptr<Keeper> keeper_;
  std::string place_;
};

}  // namespace

Dataset Dataset::cache(const std::string& file, std::source_location where) const {
  std::shared_ptr<Keeper> keeper;
  if (file.empty())
    keeper = std::make_shared<MemoryKeeper>();
  else
    keeper = std::make_shared<FileKeeper>(file, where);
  return Dataset(std::make_shared<CacheNode>("cache", node_, std::move(keeper), file, where));
}

Dataset Dataset::snapshot(const std::string& folder, const SnapshotOptions& options,
                          std::source_location where) const {
  require(!folder.empty() && options.shards > 0, ErrorCode::invalid_argument, where,
          "snapshot: there must be a folder, and one shard at least, received \"", folder, "\" and ",
          options.shards);
  return Dataset(std::make_shared<CacheNode>(
      "snapshot", node_, std::make_shared<SnapshotKeeper>(folder, options, where), folder, where));
}

}  // namespace lockstep::data
