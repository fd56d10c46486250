// The wire format of protocol buffers, for the few messages that Lockstep exchanges with other programs. The
// messages' fields are known to their readers and writers, not here.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::protobuf {

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// Numbers of as many bytes as they need, as they stand in packed lists. take_varint() takes one off the front
// and throws Error(io) where there is none.
void append_varint(std::string& text, uint64_t value);
uint64_t take_varint(std::string_view& text, std::source_location where = std::source_location::current());

// Appends the fields of one message. Calls chain.
class Writer {
 public:
  template <std::integral T>
  Writer& integer(int field, T value) {  // int32, int64, uint32, uint64, bool, enumerations
    return tag(field, WireType::varint).varint(static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  Writer& real(int field, double value);
  Writer& real(int field, float value);
  Writer& bytes(int field, std::string_view value);
  Writer& message(int field, const Writer& value) { return bytes(field, value.text_); }

  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  Writer& tag(int field, WireType type);
  Writer& varint(uint64_t value) {
    append_varint(text_, value);
    return *this;
  }

  std::string text_;
};

// Goes through the fields of one message:
//
//   for (Reader reader(text); reader.next();)
//     if (reader.field() == 1) name = reader.bytes();
//
// Fields that are not asked for are skipped. Throws Error(io) where the text is no message, and where a field
// is asked for as another type than it has. The text must outlive the reader and the views it gave.
class Reader {
 public:
  explicit Reader(std::string_view text, std::source_location where = std::source_location::current())
      : rest_(text), where_(where) {}

  bool next();
  int field() const { return field_; }
  WireType type() const { return type_; }

  uint64_t integer() const;
  double real64() const;
  float real32() const;
  std::string_view bytes() const;

 private:
  std::string_view take(uint64_t bytes);
  void expect(WireType type) const;

  std::string_view rest_;
  std::source_location where_;
  int field_ = 0;
  WireType type_ = WireType::varint;
  uint64_t number_ = 0;     // of a varint
  std::string_view value_;  // of the others
};

}  // namespace lockstep::protobuf
