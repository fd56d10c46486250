#include "data/tfrecord.h"

#include "base/crc32c.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// Rotated and shifted, so that the checksum of a record that holds checksums is not trivial.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

std::string frame_record(std::string_view record) {
  const uint64_t length = record.size();
  const uint32_t length_crc = masked_crc(bytes_of(length));
  const uint32_t record_crc = masked_crc(record);
  std::string framed;
  framed.reserve(sizeof(length) + record.size() + 2 * sizeof(uint32_t));
  framed.append(bytes_of(length)).append(bytes_of(length_crc)).append(record).append(bytes_of(record_crc));
  return framed;
}

template <class T>
T RecordReader::read_number(const char* what) {
  require(file_.size() - offset_ >= sizeof(T), ErrorCode::io, where_, "TFRecord file \"", file_.path(),
          "\": it ends inside of ", what, " of the record at byte ", start_, "; it is truncated");
  T value;
  file_.read_at(offset_, &value, sizeof(value), where_);
  offset_ += sizeof(value);
  return value;
}

std::optional<std::string> RecordReader::next() {
  if (offset_ == file_.size()) return std::nullopt;
  start_ = offset_;
  const auto length = read_number<uint64_t>("the length");
  const auto check = [&](uint32_t crc, std::string_view bytes, const char* what) {
    require(crc == masked_crc(bytes), ErrorCode::io, where_, "TFRecord file \"", file_.path(), "\": ", what,
            " of the record at byte ", start_,
            " does not match its checksum; the file is damaged, or no TFRecord file");
  };
  check(read_number<uint32_t>("the length's checksum"), bytes_of(length), "the length");
  require(length <= file_.size() - offset_, ErrorCode::io, where_, "TFRecord file \"", file_.path(),
          "\": the record at byte ", start_, " has ", length, " bytes, of which ", file_.size() - offset_,
          " are there; the file is truncated");
  std::string record(length, '\0');
  file_.read_at(offset_, record.data(), length, where_);
  offset_ += length;
  check(read_number<uint32_t>("the checksum"), record, "the contents");
  return record;
}

}  // namespace lockstep::data
