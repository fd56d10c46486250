#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {
namespace {

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
  data::CsvReader reader(
      data::ByteStream(path, data::Compression::automatic, data::ByteStream::kBufferBytes, where),
      {.delimiter = options.separator}, where);
  std::vector<std::string_view> fields;
  bool more = reader.next(fields);
  require(more, ErrorCode::io, where, "CSV file \"", path, "\" is empty");
  const size_t columns = fields.size();
  const bool labelled = !options.label_column.empty();
  const size_t label = labelled ? label_position(options.label_column, {fields.begin(), fields.end()},
                                                 options.header, path, where)
                                : columns;
  if (options.header) more = reader.next(fields);

  std::vector<float> x, y;
  int64_t rows = 0;
  for (; more; more = reader.next(fields), ++rows) {
    if (fields.size() != columns)
      reader.refuse(fields.size() - 1, "the row has " + std::to_string(fields.size()) + " fields where " +
                                           std::to_string(columns) + " are expected");
    for (size_t i = 0; i < columns; ++i)
      (i == label ? y : x).push_back(data::csv_number<float>(reader, i, fields[i]));
  }
  Examples examples;
  examples.x = Tensor::from(x, {rows, static_cast<int64_t>(columns) - (labelled ? 1 : 0)}, where);
  if (labelled) examples.y = Tensor::from(y, {rows}, where);
  return examples;
}

}  // namespace lockstep::keras::datasets
