#include "data/tfrecord.h"

#include <algorithm>
#include <cstring>

#include "data/host.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t), kChecksumBytes = sizeof(uint32_t);
constexpr size_t kHeaderBytes = kLengthBytes + kChecksumBytes;

uint32_t masked_crc(std::string_view bytes) { return masked_crc32c(crc32c(bytes)); }

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <class T>
T number_at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Whether what follows the bytes is their checksum.
bool checksum_follows(std::string_view bytes) {
  return number_at<uint32_t>(bytes.data() + bytes.size()) == masked_crc(bytes);
}

// A first record of some lengths begins as a compressed file does: its checksum tells.
Compression compression_of_records(const std::string& path, Compression compression,
                                   std::source_location where) {
  if (compression != Compression::automatic) return compression;
  const InputFile file(path, where);
  char header[kHeaderBytes];
  const auto got = static_cast<size_t>(std::min<uint64_t>(sizeof(header), file.size()));
  file.read_at(0, header, got, where);
  if (got == sizeof(header) && checksum_follows({header, kLengthBytes})) return Compression::none;
  return compression_of({header, got});
}

}  // namespace

void append_record(std::string& file, std::string_view record) {
  const uint64_t length = record.size();
  const uint32_t length_crc = masked_crc(bytes_of(length)), record_crc = masked_crc(record);
  file.append(bytes_of(length)).append(bytes_of(length_crc)).append(record).append(bytes_of(record_crc));
}

std::string frame_record(std::string_view record) {
  std::string framed;
  framed.reserve(kHeaderBytes + record.size() + kChecksumBytes);
  append_record(framed, record);
  return framed;
}

RecordReader::RecordReader(const std::string& path, Compression compression, size_t buffer_bytes,
                           std::source_location where)
    : stream_(path, compression_of_records(path, compression, where), buffer_bytes, where), where_(where) {}

template <class... Parts>
void RecordReader::check(bool holds, const Parts&... rule) const {
  require(holds, ErrorCode::io, where_, "TFRecord file \"", stream_.path(), "\": ", rule...);
}

std::optional<uint64_t> RecordReader::next_length() {
  if (ended_) return std::nullopt;
  start_ = stream_.offset();
  ended_ = true;  // until the record's end is known there is nothing behind it
  const std::string_view header = stream_.peek(kHeaderBytes);
  if (header.empty()) return std::nullopt;
  check(header.size() >= kHeaderBytes, "it ends inside of the length of the record at byte ", start_,
        "; it is truncated");
  check(checksum_follows(header.substr(0, kLengthBytes)), "the length of the record at byte ", start_,
        " does not match its checksum; the file is damaged, or no TFRecord file");
  stream_.take(kHeaderBytes);
  return number_at<uint64_t>(header.data());
}

// `allocate` gives room for so many bytes.
template <class Allocate>
void RecordReader::next_bytes(uint64_t length, Allocate allocate) {
  const auto check_whole = [&](uint64_t there) {
    check(there >= kChecksumBytes && there - kChecksumBytes >= length, "the record at byte ", start_, " has ",
          length, " bytes and a checksum, of which ", there, " are there; the file is truncated");
  };
  bool intact = false;
  const std::optional<uint64_t> size = stream_.size();
  if (size && length >= ByteStream::kBufferBytes) {
    check_whole(*size - stream_.offset());
    char* target = allocate(length);
    stream_.read(target, length);
    intact = number_at<uint32_t>(stream_.peek(kChecksumBytes).data()) == masked_crc({target, length});
    stream_.take(kChecksumBytes);
  } else {
    // No length is believed before its bytes are there.
    const std::string_view bytes =
        stream_.peek(static_cast<size_t>(std::min(length, SIZE_MAX - kChecksumBytes)) + kChecksumBytes);
    check_whole(bytes.size());
    intact = checksum_follows(bytes.substr(0, length));
    if (intact) std::memcpy(allocate(length), bytes.data(), length);
    stream_.take(length + kChecksumBytes);
  }
  ended_ = false;
  check(intact, "the contents of the record at byte ", start_,
        " do not match their checksum; the file is damaged");
}

std::optional<std::string> RecordReader::next() {
  const std::optional<uint64_t> length = next_length();
  if (!length) return std::nullopt;
  std::string record;
  next_bytes(*length, [&](uint64_t bytes) {
    record.resize(bytes);
    return record.data();
  });
  return record;
}

bool RecordReader::next(Tensor& record) {
  const std::optional<uint64_t> length = next_length();
  if (!length) return false;
  Tensor target;
  next_bytes(*length, [&](uint64_t bytes) {
    target = Tensor::empty(DType::uint8, {static_cast<int64_t>(bytes)}, host_device(), where_);
    return static_cast<char*>(target.impl()->data());
  });
  record = std::move(target);
  return true;
}

}  // namespace lockstep::data
