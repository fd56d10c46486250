// A file of elements: what cache() and snapshot() keep on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "base/file.h"
#include "lockstep/data/element.h"

namespace lockstep::data {

// The file appears complete, with commit(), or not at all.
class ElementWriter {
 public:
  // `tag` is a number of the caller's, for readers to see.
  ElementWriter(const std::string& path, uint64_t tag, bool compressed,
                std::source_location where = std::source_location::current());
  void add(const Element& element);
  void commit();

 private:
  void flush();

  AtomicFile file_;
  bool compressed_;
  std::source_location where_;
  std::string waiting_;
  uint64_t count_ = 0;
};

// Reads in order. Throws Error(io) naming the file and the offset where it is damaged. Not thread-safe.
class ElementReader {
 public:
  explicit ElementReader(const std::string& path,
                         std::source_location where = std::source_location::current());

  uint64_t tag() const { return tag_; }
  // Nothing at the end.
  std::optional<Element> next();
  // Goes past so many without making them; false where there are fewer.
  bool skip(int64_t count);

 private:
  // The bytes of the next record, valid until the next call; nothing at the end.
  std::optional<std::string_view> record();
  // So many bytes from offset_ on.
  std::string_view peek(size_t bytes);
  [[noreturn]] void damaged(const char* what) const;

  InputFile file_;
  std::source_location where_;
  uint64_t tag_ = 0;
  bool compressed_ = false;
  uint64_t offset_ = 0;
  uint64_t count_ = 0;
  std::string buffer_;  // of the file from buffer_offset_ on
  uint64_t buffer_offset_ = 0;
  std::string inflated_;
};

}  // namespace lockstep::data
