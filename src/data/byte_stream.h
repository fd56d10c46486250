// The bytes of a file in order, decompressed where need be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "base/file.h"
#include "lockstep/data/files.h"

namespace lockstep::data {

// Not thread-safe. Throws Error(io) naming the file where compressed data is damaged or truncated; nothing
// can be read behind that.
class ByteStream {
 public:
  static constexpr size_t kBufferBytes = size_t{1} << 18;

  explicit ByteStream(const std::string& path, Compression compression = Compression::automatic,
                      size_t buffer_bytes = kBufferBytes,
                      std::source_location where = std::source_location::current());
  ByteStream(ByteStream&&) noexcept;
  ~ByteStream();

  const std::string& path() const { return file_.path(); }
  // The offset of the next byte, once decompressed.
  uint64_t offset() const { return end_offset_ - (end_ - begin_); }
  // How many bytes the file has; nullopt where it is compressed.
  std::optional<uint64_t> size() const;

  // The next bytes, at least so many: fewer only where the file ends. They are good until the next call, and
  // memory grows with what is really there.
  std::string_view peek(size_t bytes);
  // They, or some of them, are done with.
  void take(size_t bytes) { begin_ += bytes; }
  // Fills `target` and says how many bytes there were: fewer only where the file ends. Long reads go around
  // the buffer.
  size_t read(void* target, size_t bytes);
  // Backwards, a compressed file is read from its beginning again.
  void seek(uint64_t offset);

 private:
  class Inflater;
  size_t fill(char* target, size_t bytes);
  void rewind(uint64_t offset);

  InputFile file_;
  std::source_location where_;
  std::unique_ptr<Inflater> inflater_;  // null: not compressed
  std::unique_ptr<char[]> buffer_;
  size_t capacity_;
  size_t begin_ = 0, end_ = 0;  // what the buffer holds
  uint64_t end_offset_ = 0;     // where the buffer's end stands
};

// What `automatic` makes of a file that begins with these bytes.
Compression compression_of(std::string_view first_bytes);

}  // namespace lockstep::data
