#include "data/csv.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool line_break(char c) { return c == '\n' || c == '\r'; }

}  // namespace

// How far a row has been read.
struct CsvReader::Scan {
  std::string_view window;  // the row's beginning, and what is there behind it
  bool whole = false;       // there is nothing behind the window
  size_t at = 0;            // the next character
  int64_t breaks = 0;       // in fields
  const char* problem = nullptr;

  bool exhausted() const { return at == window.size(); }
};

CsvReader::CsvReader(ByteStream stream, const CsvFormat& format, std::source_location where)
    : stream_(std::move(stream)), format_(format), where_(where) {
  if (stream_.peek(kByteOrderMark.size()).starts_with(kByteOrderMark)) stream_.take(kByteOrderMark.size());
}

void CsvReader::seek(uint64_t offset, int64_t line) {
  stream_.seek(offset);
  line_ = line;
}

void CsvReader::refuse(size_t column, const std::string& problem) const {
  fail(ErrorCode::io, where_, "CSV file \"", stream_.path(), "\", line ", row_, ", column ", column + 1, ": ",
       problem);
}

bool CsvReader::skip_empty_line() {
  const std::string_view there = stream_.peek(2);
  if (there.empty() || !line_break(there[0])) return false;
  stream_.take(there.starts_with("\r\n") ? 2 : 1);
  ++line_;
  return true;
}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  if (ended_) return false;
  ended_ = true;  // until the row's end is known there is nothing behind it
  while (skip_empty_line()) {
  }
  Scan row;
  do {
    const size_t before = row.window.size();
    row = Scan{.window = stream_.peek(before + 1)};
    row.whole = row.window.size() == before;
    if (row.window.empty()) return false;
  } while (!scan(row, fields));
  stream_.take(row.at);
  row_ = line_;
  line_ += row.breaks + 1;
  ended_ = false;
  if (row.problem) refuse(fields.empty() ? 0 : fields.size() - 1, row.problem);
  return true;
}

// False where the window ends before the row does.
bool CsvReader::scan(Scan& row, std::vector<std::string_view>& fields) {
  fields.clear();
  unquoted_.clear();
  const std::string_view window = row.window;
  for (;;) {
    if (format_.quotes && !row.exhausted() && window[row.at] == '"') {
      if (!scan_quoted(row, fields)) return false;
    } else {
      const size_t from = row.at;
      while (!row.exhausted() && window[row.at] != format_.delimiter && !line_break(window[row.at])) ++row.at;
      fields.push_back(window.substr(from, row.at - from));
    }
    if (row.exhausted()) return row.whole;
    const char end = window[row.at++];
    if (end == format_.delimiter) continue;
    if (end == '\r') {
      if (row.exhausted()) return row.whole;
      if (window[row.at] == '\n') ++row.at;
    }
    return true;
  }
}

bool CsvReader::scan_quoted(Scan& row, std::vector<std::string_view>& fields) {
  const std::string_view window = row.window;
  const size_t from = ++row.at;
  bool doubled = false;
  for (;; row.at += 2) {
    row.at = std::min(window.find('"', row.at), window.size());
    if (row.at + 1 >= window.size() && !row.whole) return false;
    if (row.exhausted()) {
      row.problem = "a quoted field does not end";
      fields.emplace_back();
      return true;
    }
    if (row.at + 1 == window.size() || window[row.at + 1] != '"') break;
    doubled = true;
  }
  std::string_view field = window.substr(from, row.at - from);
  row.breaks += std::count(field.begin(), field.end(), '\n');
  if (doubled) {
    std::string& plain = unquoted_.emplace_back();
    for (size_t i = 0; i < field.size(); i += field[i] == '"' ? 2 : 1) plain.push_back(field[i]);
    field = plain;
  }
  fields.push_back(field);
  ++row.at;
  if (row.exhausted() || window[row.at] == format_.delimiter || line_break(window[row.at])) return true;
  // The row is lost: it ends with the line.
  row.problem = "a quoted field is followed by more text";
  while (!row.exhausted() && !line_break(window[row.at])) ++row.at;
  return !row.exhausted() || row.whole;
}

template <class T>
T csv_number(const CsvReader& reader, size_t column, std::string_view field) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::string_view trimmed = field;
  while (!trimmed.empty() && blank(trimmed.front())) trimmed.remove_prefix(1);
  while (!trimmed.empty() && blank(trimmed.back())) trimmed.remove_suffix(1);
  if (trimmed.starts_with('+') && !trimmed.starts_with("+-")) trimmed.remove_prefix(1);
  if (trimmed.empty()) reader.refuse(column, "the field is empty where a number is expected");
  // A float32 that is too small for its exponents is 0, not an error.
  std::conditional_t<std::is_same_v<T, float>, double, T> value = 0;
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (error != std::errc() || end != trimmed.data() + trimmed.size())
    reader.refuse(column, Json(field.substr(0, 40)).dump() +
                              (error == std::errc::result_out_of_range ? " is out of range"
                               : std::is_integral_v<T>                 ? " is not a whole number"
                                                                       : " is not a number"));
  return static_cast<T>(value);
}

template float csv_number<float>(const CsvReader&, size_t, std::string_view);
template double csv_number<double>(const CsvReader&, size_t, std::string_view);
template int32_t csv_number<int32_t>(const CsvReader&, size_t, std::string_view);
template int64_t csv_number<int64_t>(const CsvReader&, size_t, std::string_view);

}  // namespace lockstep::data
