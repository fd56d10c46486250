#include "base/protobuf.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::protobuf {
namespace {

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <class T>
T from_bytes(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

}  // namespace

Writer& Writer::tag(int field, WireType type) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

void append_varint(std::string& text, uint64_t value) {
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
}

uint64_t take_varint(std::string_view& text, std::source_location where) {
  uint64_t value = 0;
  for (size_t i = 0; i < text.size() && i < 10; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    value |= uint64_t{byte & 0x7FU} << 7 * i;
    if (byte >= 0x80) continue;
    text.remove_prefix(i + 1);
    return value;
  }
  fail(ErrorCode::io, where,
       text.size() < 10 ? "protocol buffer: it ends inside of a number"
                        : "protocol buffer: a number of more than ten bytes");
}

Writer& Writer::real(int field, double value) {
  tag(field, WireType::fixed64).text_.append(bytes_of(value));
  return *this;
}

Writer& Writer::real(int field, float value) {
  tag(field, WireType::fixed32).text_.append(bytes_of(value));
  return *this;
}

Writer& Writer::bytes(int field, std::string_view value) {
  tag(field, WireType::bytes).varint(value.size()).text_.append(value);
  return *this;
}

bool Reader::next() {
  if (rest_.empty()) return false;
  const uint64_t tag = take_varint(rest_, where_);
  require(tag >> 3 >= 1 && tag >> 3 < 1U << 29, ErrorCode::io, where_, "protocol buffer: there is no field ",
          tag >> 3);
  field_ = static_cast<int>(tag >> 3);
  type_ = static_cast<WireType>(tag & 7);
  switch (type_) {
    case WireType::varint: number_ = take_varint(rest_, where_); break;
    case WireType::fixed64: value_ = take(8); break;
    case WireType::bytes: value_ = take(take_varint(rest_, where_)); break;
    case WireType::fixed32: value_ = take(4); break;
    default: fail(ErrorCode::io, where_, "protocol buffer: field ", field_, " has the wire type ", tag & 7);
  }
  return true;
}

uint64_t Reader::integer() const {
  expect(WireType::varint);
  return number_;
}

double Reader::real64() const {
  expect(WireType::fixed64);
  return from_bytes<double>(value_);
}

float Reader::real32() const {
  expect(WireType::fixed32);
  return from_bytes<float>(value_);
}

std::string_view Reader::bytes() const {
  expect(WireType::bytes);
  return value_;
}

std::string_view Reader::take(uint64_t bytes) {
  require(bytes <= rest_.size(), ErrorCode::io, where_, "protocol buffer: a value of ", bytes,
          " bytes where only ", rest_.size(), " are left");
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

void Reader::expect(WireType type) const {
  require(type_ == type, ErrorCode::io, where_, "protocol buffer: field ", field_, " has the wire type ",
          static_cast<int>(type_), " where ", static_cast<int>(type), " is expected");
}

}  // namespace lockstep::protobuf
