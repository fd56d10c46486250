// TFRecord files: byte strings, each with its length and checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lockstep::data {

// A record as it stands in a file: length (uint64), checksum of the length, the bytes, checksum of the bytes.
std::string frame_record(std::string_view record);

// Reads the records of a file in order. Not thread-safe.
class RecordReader {
 public:
  explicit RecordReader(const std::string& path, std::source_location where = std::source_location::current())
      : file_(path, where), where_(where) {}

  // Nothing at the end of the file. Throws Error(io) with file and offset where the file ends inside of a
  // record or a checksum does not match.
  std::optional<std::string> next();

 private:
  template <class T>
  T read_number(const char* what);

  InputFile file_;
  std::source_location where_;
  uint64_t offset_ = 0;
  uint64_t start_ = 0;  // of the current record
};

}  // namespace lockstep::data
