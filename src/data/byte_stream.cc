#include "data/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr size_t kInputBytes = size_t{1} << 17;
constexpr size_t kMagicBytes = 3;

}  // namespace

// As zlib writes them: 32 KiB windows, the three usual levels. The fourth, "x^", may begin a text.
Compression compression_of(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\x1f\x8b\x08"sv)) return Compression::gzip;
  for (const std::string_view header : {"\x78\x01"sv, "\x78\x9c"sv, "\x78\xda"sv})
    if (bytes.starts_with(header)) return Compression::zlib;
  return Compression::none;
}

class ByteStream::Inflater {
 public:
  Inflater(const InputFile& file, Compression compression, std::source_location where)
      : input_(std::make_unique_for_overwrite<char[]>(kInputBytes)), where_(where) {
    // 15: windows of 32 KiB, the largest there are; 16 more: gzip's frame.
    const int code = inflateInit2(&stream_, compression == Compression::gzip ? 15 + 16 : 15);
    require(code == Z_OK, ErrorCode::out_of_memory, where_, "cannot read \"", file.path(),
            "\": zlib gives no reader");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void rewind() {
    inflateReset(&stream_);
    stream_.avail_in = 0;
    at_ = 0;
    ended_ = false;
  }

  size_t read(const InputFile& file, char* target, size_t bytes) {
    const size_t wanted = std::min<size_t>(bytes, size_t{1} << 30);
    stream_.next_out = reinterpret_cast<Bytef*>(target);
    stream_.avail_out = static_cast<uInt>(wanted);
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) refill(file);
      const bool exhausted = stream_.avail_in == 0;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        end_member(file);
      } else if (code != Z_OK) {
        ended_ = true;
        fail(ErrorCode::io, where_, "cannot read \"", file.path(), "\": the compressed data ",
             exhausted ? "ends too early; the file is truncated" : "is damaged", " at byte ",
             at_ - stream_.avail_in, stream_.msg ? " (" : "", stream_.msg ? stream_.msg : "",
             stream_.msg ? ")" : "");
      }
    }
    return wanted - stream_.avail_out;
  }

 private:
  void refill(const InputFile& file) {
    const auto got = static_cast<size_t>(std::min<uint64_t>(kInputBytes, file.size() - at_));
    file.read_at(at_, input_.get(), got, where_);
    at_ += got;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.get());
    stream_.avail_in = static_cast<uInt>(got);
  }
  // Files that were compressed one by one may be put together to one.
  void end_member(const InputFile& file) {
    if (stream_.avail_in == 0) refill(file);
    if (stream_.avail_in == 0)
      ended_ = true;
    else
      inflateReset(&stream_);
  }

  z_stream stream_{};
  std::unique_ptr<char[]> input_;
  std::source_location where_;
  uint64_t at_ = 0;  // of the file, where the next refill begins
  bool ended_ = false;
};

ByteStream::ByteStream(const std::string& path, Compression compression, size_t buffer_bytes,
                       std::source_location where)
    : file_(path, where), where_(where), capacity_(std::max<size_t>(buffer_bytes, 4096)) {
  if (compression == Compression::automatic) {
    char magic[kMagicBytes];
    const auto got = static_cast<size_t>(std::min<uint64_t>(sizeof(magic), file_.size()));
    file_.read_at(0, magic, got, where_);
    compression = compression_of({magic, got});
  }
  if (compression != Compression::none) inflater_ = std::make_unique<Inflater>(file_, compression, where_);
  buffer_ = std::make_unique_for_overwrite<char[]>(capacity_);
}
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

std::optional<uint64_t> ByteStream::size() const {
  if (inflater_) return std::nullopt;
  return file_.size();
}

size_t ByteStream::fill(char* target, size_t bytes) {
  size_t got = 0;
  if (inflater_) {
    got = inflater_->read(file_, target, bytes);
  } else {
    got = static_cast<size_t>(std::min<uint64_t>(bytes, file_.size() - end_offset_));
    file_.read_at(end_offset_, target, got, where_);
  }
  end_offset_ += got;
  return got;
}

std::string_view ByteStream::peek(size_t bytes) {
  while (end_ - begin_ < bytes) {
    if (begin_ > 0) {
      std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == capacity_) {
      auto larger = std::make_unique_for_overwrite<char[]>(2 * capacity_);
      std::memcpy(larger.get(), buffer_.get(), end_);
      buffer_ = std::move(larger);
      capacity_ *= 2;
    }
    const size_t got = fill(buffer_.get() + end_, capacity_ - end_);
    if (got == 0) break;
    end_ += got;
  }
  return {buffer_.get() + begin_, end_ - begin_};
}

size_t ByteStream::read(void* target, size_t bytes) {
  auto* to = static_cast<char*>(target);
  size_t done = 0;
  while (done < bytes) {
    if (begin_ == end_ && bytes - done >= capacity_) {
      const size_t got = fill(to + done, bytes - done);
      if (got == 0) break;
      done += got;
      continue;
    }
    const std::string_view there = peek(1).substr(0, bytes - done);
    if (there.empty()) break;
    std::memcpy(to + done, there.data(), there.size());
    take(there.size());
    done += there.size();
  }
  return done;
}

void ByteStream::rewind(uint64_t offset) {
  begin_ = end_ = 0;
  end_offset_ = offset;
}

void ByteStream::seek(uint64_t offset) {
  if (!inflater_) {
    require(offset <= file_.size(), ErrorCode::io, where_, "\"", path(), "\" has ", file_.size(),
            " bytes: there is no byte ", offset, "; it was changed meanwhile");
    return rewind(offset);
  }
  if (offset < this->offset()) {
    inflater_->rewind();
    rewind(0);
  }
  while (this->offset() < offset) {
    const size_t there = peek(1).size();
    require(there > 0, ErrorCode::io, where_, "\"", path(), "\" ends at byte ", this->offset(),
            ": there is no byte ", offset, "; it was changed meanwhile");
    take(static_cast<size_t>(std::min<uint64_t>(there, offset - this->offset())));
  }
}

}  // namespace lockstep::data
