// TFRecord files: byte strings, each with its length and checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "data/byte_stream.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// A record as it stands in a file: length (uint64), checksum of the length, the bytes, checksum of the bytes.
void append_record(std::string& file, std::string_view record);
std::string frame_record(std::string_view record);

// Reads the records of a file in order. Not thread-safe.
class RecordReader {
 public:
  explicit RecordReader(const std::string& path, Compression compression = Compression::automatic,
                        size_t buffer_bytes = ByteStream::kBufferBytes,
                        std::source_location where = std::source_location::current());

  // Nothing at the end of the file. Throws Error(io) with file and offset where a checksum does not match or
  // the file ends inside of a record. Behind a record with a wrong checksum the next call goes on; where it
  // is the length that cannot be trusted, or the file that ends, there is nothing more to be read.
  std::optional<std::string> next();
  // The same as a uint8 tensor of rank 1; false at the end.
  bool next(Tensor& record);

  // Where the next record starts, once decompressed.
  uint64_t offset() const { return stream_.offset(); }
  void seek(uint64_t offset) { stream_.seek(offset); }
  // Whether the last call found what there is nothing behind.
  bool ended() const { return ended_; }

 private:
  std::optional<uint64_t> next_length();
  template <class Allocate>
  void next_bytes(uint64_t length, Allocate allocate);
  template <class... Parts>
  void check(bool holds, const Parts&... rule) const;

  ByteStream stream_;
  std::source_location where_;
  uint64_t start_ = 0;  // of the current record
  bool ended_ = false;
};

}  // namespace lockstep::data
