// What all sources that read files, one after another, have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/node.h"

namespace lockstep::data {

// Reads the elements of one file in order.
class FileReader {
 public:
  virtual ~FileReader() = default;
  // False at the end.
  virtual bool next(Item& item) = 0;
  // After an Error: whether there is nothing more to be read behind it.
  virtual bool ended() const = 0;
  virtual void save(StateWriter& state) const = 0;
  // Only on a reader that has given nothing yet.
  virtual void restore(const StateReader& state) = 0;
};

// A reader of which the position is a byte.
template <class Stream>
class OffsetReader : public FileReader {
 public:
  explicit OffsetReader(Stream stream) : stream_(std::move(stream)) {}
  void save(StateWriter& state) const override {
    state.number("offset", static_cast<int64_t>(stream_.offset()));
  }
  void restore(const StateReader& state) override {
    stream_.seek(static_cast<uint64_t>(state.number("offset")));
  }

 protected:
  Stream stream_;
};

// Which of its files a source was left, for people; `all` is 0 where it has them all.
struct FileShare {
  size_t all = 0;
  int64_t count = 1, index = 0;
};

struct FileSource {
  std::string name;  // as the user calls it: "TFRecordDataset"
  std::vector<std::string> files;
  std::function<std::unique_ptr<FileReader>(const std::string& path)> open;
  ElementSpec spec;
  // How many elements a file has, or kUnknown; empty: kUnknown.
  std::function<int64_t(const std::string& path)> count = {};
  FileShare share = {};
};

Dataset files_dataset(FileSource source, std::source_location where);

// The names themselves, as byte strings. Its share of files is a share of the names.
Dataset file_names_dataset(const std::string& name, std::vector<std::string> files,
                           std::source_location where);

inline ElementSpec byte_string_spec(int64_t bytes = -1) { return {{}, {{DType::uint8, {bytes}}}}; }

}  // namespace lockstep::data
