#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {
namespace {

size_t position_of(const std::string& column, const std::vector<std::string>& names, const std::string& path,
                   std::source_location where) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == column) return i;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(column.data(), column.data() + column.size(), number);
  const auto columns = std::ssize(names);
  const bool is_number = error == std::errc() && end == column.data() + column.size();
  if (is_number && number >= -columns && number < columns)
    return static_cast<size_t>(number < 0 ? number + columns : number);
  const std::string nearest = is_number ? "" : nearest_spelling(column, names);
  fail(ErrorCode::invalid_argument, where, "read_csv: there is no column \"", column, "\" among the ",
       columns, " of \"", path, "\"",
       nearest.empty() ? "; give its name or its number (0 is the first, -1 the last)"
                       : "; did you mean \"" + nearest + "\"?");
}

// Whether these are all numbers, and not those of the columns: 0, 1, 2, ....
bool are_measured(const std::vector<std::string>& names) {
  bool counts = true;
  for (size_t i = 0; i < names.size(); ++i) {
    double number = 0;
    const std::string& name = names[i];
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (name.empty() || error != std::errc() || end != name.data() + name.size()) return false;
    counts = counts && number == static_cast<double>(i) + (names[0] == "1" ? 1 : 0);
  }
  return !counts;
}

// A file whose first row has been read.
class Rows {
 public:
  Rows(const std::string& path, const CsvOptions& options, std::source_location where)
      : reader_(open(path, options, where)) {
    more_ = reader_.next(fields_);
    require(more_, ErrorCode::io, where, "CSV file \"", path, "\" is empty");
    names_.assign(fields_.begin(), fields_.end());
    const std::vector<std::string> first = names_;
    if (options.header)
      more_ = reader_.next(fields_);
    else
      for (size_t i = 0; i < names_.size(); ++i) names_[i] = std::to_string(i);
    if (!more_) return;
    for (const char other : {';', '\t', '|', ','})
      require(first.size() > 1 || first[0].find(other) == std::string::npos ||
                  (fields_.size() == 1 && fields_[0].find(other) == std::string::npos),
              ErrorCode::invalid_argument, where, "CSV file \"", path, "\" has one column, ", Json(first[0]),
              "; where ", Json(std::string(1, other)), " separates its fields, separator must say so");
    if (options.header && are_measured(first))
      log(LogLevel::warning, "CSV file \"", path,
          "\": the first row is taken for the names of the columns, but holds numbers (", first[0],
          first.size() > 1 ? ", ..." : "", "); where it is an example, header must be false");
  }

  const std::vector<std::string>& names() const { return names_; }

  // Calls take(column, number) for every field; gives the number of rows.
  template <class Number, class Take>
  int64_t read(Take&& take) {
    int64_t rows = 0;
    for (; more_; more_ = reader_.next(fields_), ++rows) {
      if (fields_.size() != names_.size())
        reader_.refuse(fields_.size() - 1, "the row has " + std::to_string(fields_.size()) +
                                               " fields where " + std::to_string(names_.size()) +
                                               " are expected");
      for (size_t i = 0; i < names_.size(); ++i) take(i, data::csv_number<Number>(reader_, i, fields_[i]));
    }
    return rows;
  }

 private:
  static data::CsvReader open(const std::string& path, const CsvOptions& options,
                              std::source_location where) {
    require(options.separator != '"' && options.separator != '\n' && options.separator != '\r',
            ErrorCode::invalid_argument, where, "read_csv: quotes and line breaks separate no columns");
    return {data::ByteStream(path, data::Compression::automatic, data::ByteStream::kBufferBytes, where),
            {.delimiter = options.separator},
            where};
  }

  data::CsvReader reader_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> names_;
  bool more_ = false;
};

}  // namespace

size_t Table::position(const std::string& column, std::source_location where) const {
  return position_of(column, columns, path, where);
}

Table read_table(const std::string& path, const CsvOptions& options, std::source_location where) {
  Rows file(path, options, where);
  std::vector<double> values;
  const int64_t rows = file.read<double>([&](size_t, double number) { values.push_back(number); });
  return {path, file.names(), Tensor::from(values, {rows, std::ssize(file.names())}, where)};
}

Examples read_csv(const std::string& path, const CsvOptions& options, std::source_location where) {
  Rows file(path, options, where);
  const size_t columns = file.names().size();
  const bool labelled = !options.label_column.empty();
  const size_t label = labelled ? position_of(options.label_column, file.names(), path, where) : columns;
  std::vector<float> x, y;
  const int64_t rows =
      file.read<float>([&](size_t i, float number) { (i == label ? y : x).push_back(number); });
  Examples examples;
  examples.x = Tensor::from(x, {rows, static_cast<int64_t>(columns) - (labelled ? 1 : 0)}, where);
  if (labelled) examples.y = Tensor::from(y, {rows}, where);
  return examples;
}

}  // namespace lockstep::keras::datasets
