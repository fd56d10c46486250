#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& path, char separator, std::source_location where)
      : rest_(text), path_(path), separator_(separator), where_(where) {
    if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
  }

  // The fields of the next line that is not empty; false at the end.
  bool next(std::vector<std::string>& fields) {
    while (skip_line_break()) {
    }
    fields.clear();
    if (rest_.empty()) return false;
    row_ = line_;
    do fields.push_back(next_field(fields.size()));
    while (skip(separator_));
    if (!rest_.empty() && !skip_line_break())
      refuse(fields.size() - 1, "a quoted field is followed by more text");
    return true;
  }

  [[noreturn]] void refuse(size_t column, const std::string& problem) const {
    fail(ErrorCode::io, where_, "CSV file \"", path_, "\", line ", row_, ", column ", column + 1, ": ",
         problem);
  }

 private:
  bool skip(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool skip_line_break() {
    const size_t size = rest_.starts_with("\r\n")                            ? 2
                        : rest_.starts_with('\n') || rest_.starts_with('\r') ? 1
                                                                             : 0;
    rest_.remove_prefix(size);
    line_ += size > 0 ? 1 : 0;
    return size > 0;
  }

  std::string next_field(size_t column) {
    std::string field;
    if (!skip('"')) {
      const char stops[] = {separator_, '\r', '\n', '\0'};
      const size_t end = rest_.find_first_of(std::string_view(stops, 3));
      field = rest_.substr(0, end);
      rest_.remove_prefix(field.size());
      return field;
    }
    for (;;) {
      const size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) refuse(column, "a quoted field does not end");
      field += rest_.substr(0, quote);
      rest_.remove_prefix(quote + 1);
      if (!skip('"')) break;
      field.push_back('"');
    }
    for (const char c : field) line_ += c == '\n' ? 1 : 0;
    return field;
  }

  std::string_view rest_;
  const std::string& path_;
  char separator_;
  std::source_location where_;
  int64_t line_ = 1;
  int64_t row_ = 1;  // the line where the current row starts
};

float parse_number(const CsvReader& reader, size_t column, std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  std::string_view trimmed = text;
  while (!trimmed.empty() && blank(trimmed.front())) trimmed.remove_prefix(1);
  while (!trimmed.empty() && blank(trimmed.back())) trimmed.remove_suffix(1);
  if (trimmed.starts_with('+') && !trimmed.starts_with("+-")) trimmed.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (trimmed.empty()) reader.refuse(column, "the field is empty where a number is expected");
  if (error != std::errc() || end != trimmed.data() + trimmed.size())
    reader.refuse(column, Json(text.substr(0, 40)).dump() + " is not a number");
  return static_cast<float>(value);
}

size_t label_position(const std::string& label, const std::vector<std::string>& names, bool header,
                      const std::string& path, std::source_location where) {
  for (size_t i = 0; header && i < names.size(); ++i)
    if (names[i] == label) return i;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  const auto columns = std::ssize(names);
  if (error == std::errc() && end == label.data() + label.size() && number >= -columns && number < columns)
    return static_cast<size_t>(number < 0 ? number + columns : number);
  const std::string nearest = header ? nearest_spelling(label, names) : "";
  fail(ErrorCode::invalid_argument, where, "read_csv: there is no column \"", label, "\" among the ", columns,
       " of \"", path, "\"",
       nearest.empty() ? "; give its name or its number (0 is the first, -1 the last)"
                       : "; did you mean \"" + nearest + "\"?");
}

}  // namespace

Examples read_csv(const std::string& path, const CsvOptions& options, std::source_location where) {
  require(options.separator != '"' && options.separator != '\n' && options.separator != '\r',
          ErrorCode::invalid_argument, where, "read_csv: quotes and line breaks separate no columns");
  const std::string text = read_file(path, where);
  CsvReader reader(text, path, options.separator, where);
  std::vector<std::string> fields;
  bool more = reader.next(fields);
  require(more, ErrorCode::io, where, "CSV file \"", path, "\" is empty");
  const size_t columns = fields.size();
  const bool labelled = !options.label_column.empty();
  const size_t label =
      labelled ? label_position(options.label_column, fields, options.header, path, where) : columns;
  if (options.header) more = reader.next(fields);

  std::vector<float> x, y;
  int64_t rows = 0;
  for (; more; more = reader.next(fields), ++rows) {
    if (fields.size() != columns)
      reader.refuse(fields.size() - 1, "the row has " + std::to_string(fields.size()) + " fields where " +
                                           std::to_string(columns) + " are expected");
    for (size_t i = 0; i < columns; ++i) (i == label ? y : x).push_back(parse_number(reader, i, fields[i]));
  }
  Examples examples;
  examples.x = Tensor::from(x, {rows, static_cast<int64_t>(columns) - (labelled ? 1 : 0)}, where);
  if (labelled) examples.y = Tensor::from(y, {rows}, where);
  return examples;
}

}  // namespace lockstep::keras::datasets
