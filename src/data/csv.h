// Tables of comma-separated values, row by row (RFC 4180: fields may be quoted, and then hold delimiters,
// line breaks and doubled quotes).
#pragma once

#include <cstdint>
#include <deque>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_stream.h"

namespace lockstep::data {

struct CsvFormat {
  char delimiter = ',';
  bool quotes = true;  // false: a quote is a character like any other
};

class CsvReader {
 public:
  CsvReader(ByteStream stream, const CsvFormat& format, std::source_location where);

  // The fields of the next line that is not empty, good until the next call; false at the end. Throws
  // Error(io) with file, line and column; unless ended(), the next call goes on with the next row.
  bool next(std::vector<std::string_view>& fields);
  bool ended() const { return ended_; }

  // For what is wrong with a field of the row that was read last.
  [[noreturn]] void refuse(size_t column, const std::string& problem) const;

  // Where the next row begins.
  uint64_t offset() const { return stream_.offset(); }
  int64_t line() const { return line_; }
  void seek(uint64_t offset, int64_t line);

 private:
  struct Scan;
  bool scan(Scan& row, std::vector<std::string_view>& fields);
  bool scan_quoted(Scan& row, std::vector<std::string_view>& fields);
  bool skip_empty_line();

  ByteStream stream_;
  CsvFormat format_;
  std::source_location where_;
  std::deque<std::string> unquoted_;  // fields that held doubled quotes; a deque, for views are taken
  int64_t line_ = 1;
  int64_t row_ = 1;  // the line where the current row starts
  bool ended_ = false;
};

// A field as a number, blanks around it aside.
template <class T>
T csv_number(const CsvReader& reader, size_t column, std::string_view field);

extern template float csv_number<float>(const CsvReader&, size_t, std::string_view);
extern template double csv_number<double>(const CsvReader&, size_t, std::string_view);
extern template int32_t csv_number<int32_t>(const CsvReader&, size_t, std::string_view);
extern template int64_t csv_number<int64_t>(const CsvReader&, size_t, std::string_view);

}  // namespace lockstep::data
