// TextLineDataset, CsvDataset, FixedLengthRecordDataset.
#include <algorithm>
#include <functional>

#include "data/csv.h"
#include "data/sources/files.h"

namespace lockstep::data {
namespace {

// --- lines ---

class LineReader final : public OffsetReader<ByteStream> {
 public:
  using OffsetReader::OffsetReader;
  bool next(Item& item) override {
    std::string_view line;
    size_t end = std::string_view::npos;
    for (size_t seen = 0; end == std::string_view::npos; seen = line.size()) {
      line = stream_.peek(seen + 1);
      if (line.size() == seen) break;
      end = line.find('\n', seen);
    }
    if (line.empty()) return false;
    const bool last = end == std::string_view::npos;
    stream_.take(last ? line.size() : end + 1);
    line = line.substr(0, end);
    if (!last && line.ends_with('\r')) line.remove_suffix(1);
    item = Item(Element(bytes(line)));
    return true;
  }
  bool ended() const override { return true; }
};

// --- tables ---

struct CsvTable {
  std::vector<CsvColumn> columns;
  CsvDatasetOptions options;
  std::shared_ptr<const Structure> structure;
  size_t fields = 0;  // that a row must have, or at least where columns are selected
};

class CsvFileReader final : public FileReader {
 public:
  CsvFileReader(const std::string& path, std::shared_ptr<const CsvTable> table, std::source_location where)
      : table_(std::move(table)),
        reader_(ByteStream(path, table_->options.compression, ByteStream::kBufferBytes, where),
                {table_->options.delimiter, table_->options.quotes}, where) {
    if (table_->options.header) reader_.next(fields_);
  }
  bool next(Item& item) override {
    if (!reader_.next(fields_)) return false;
    const bool selects = !table_->options.select_cols.empty();
    if (selects ? fields_.size() < table_->fields : fields_.size() != table_->fields)
      reader_.refuse(fields_.size() - 1,
                     detail::concat("the row has ", fields_.size(), " fields where ",
                                    selects ? "at least " : "", table_->fields, " are expected"));
    TensorList values;
    values.reserve(table_->columns.size());
    for (size_t i = 0; i < table_->columns.size(); ++i)
      values.push_back(
          value(table_->columns[i], selects ? static_cast<size_t>(table_->options.select_cols[i]) : i));
    item = Item(Element(table_->structure, std::move(values)));
    return true;
  }
  bool ended() const override { return reader_.ended(); }
  void save(StateWriter& state) const override {
    state.number("offset", static_cast<int64_t>(reader_.offset()));
    state.number("line", reader_.line());
  }
  void restore(const StateReader& state) override {
    reader_.seek(static_cast<uint64_t>(state.number("offset")), state.number("line"));
  }

 private:
  Tensor value(const CsvColumn& column, size_t position) const {
    const std::string_view field = fields_[position];
    if (field.empty() || field == table_->options.na_value) {
      if (column.default_value) return *column.default_value;
      reader_.refuse(position, field.empty() ? "the field is empty and its column has no default"
                                             : "the field is missing and its column has no default");
    }
    const auto number = [&]<class T>() { return Tensor::scalar<T>(csv_number<T>(reader_, position, field)); };
    switch (column.dtype) {
      case DType::float32: return number.operator()<float>();
      case DType::float64: return number.operator()<double>();
      case DType::int32: return number.operator()<int32_t>();
      case DType::int64: return number.operator()<int64_t>();
      default: return bytes(field);
    }
  }

  std::shared_ptr<const CsvTable> table_;
  CsvReader reader_;
  std::vector<std::string_view> fields_;
};

// --- fixed-length records ---

class FixedLengthReader final : public OffsetReader<ByteStream> {
 public:
  FixedLengthReader(ByteStream stream, int64_t record_bytes, const FixedLengthRecordOptions& options,
                    std::source_location where)
      : OffsetReader(std::move(stream)),
        record_bytes_(static_cast<size_t>(record_bytes)),
        footer_bytes_(static_cast<size_t>(options.footer_bytes)),
        where_(where) {
    const auto header = static_cast<size_t>(options.header_bytes);
    check(stream_.peek(header + footer_bytes_).size() >= header + footer_bytes_, "it is shorter than the ",
          header, " bytes of its header and the ", footer_bytes_, " of its footer");
    stream_.take(header);
  }
  bool next(Item& item) override {
    const std::string_view there = stream_.peek(record_bytes_ + footer_bytes_);
    if (there.size() == footer_bytes_) return false;
    check(there.size() >= record_bytes_ + footer_bytes_, "the record at byte ", stream_.offset(),
          " has only ", there.size() - footer_bytes_, " of ", record_bytes_,
          " bytes; the file is truncated, or its header, footer or records have other lengths");
    item = Item(Element(bytes(there.substr(0, record_bytes_))));
    stream_.take(record_bytes_);
    return true;
  }
  bool ended() const override { return true; }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... rule) const {
    require(holds, ErrorCode::io, where_, "FixedLengthRecordDataset: \"", stream_.path(), "\": ", rule...);
  }

  size_t record_bytes_, footer_bytes_;
  std::source_location where_;
};

}  // namespace

Dataset TextLineDataset(const FileList& files, const TextLineOptions& options, std::source_location where) {
  return files_dataset({.name = "TextLineDataset",
                        .files = files,
                        .open =
                            [options, where](const std::string& path) {
                              return std::make_unique<LineReader>(
                                  ByteStream(path, options.compression, ByteStream::kBufferBytes, where));
                            },
                        .spec = byte_string_spec()},
                       where);
}

Dataset CsvDataset(const FileList& files, const std::vector<CsvColumn>& columns,
                   const CsvDatasetOptions& options, std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "CsvDataset: ", rule...);
  };
  check(!columns.empty(), "there are no columns");
  check(options.delimiter != '"' && options.delimiter != '\n' && options.delimiter != '\r',
        "quotes and line breaks separate no columns");
  check(options.names.empty() || options.names.size() == columns.size(), "there are ", columns.size(),
        " columns and ", options.names.size(), " names");
  const std::vector<int64_t>& select = options.select_cols;
  check(select.empty() || select.size() == columns.size(), "there are ", columns.size(),
        " columns, but select_cols has ", select.size());
  check(select.empty() || (select[0] >= 0 && std::adjacent_find(select.begin(), select.end(),
                                                                std::greater_equal()) == select.end()),
        "select_cols must be ascending numbers from 0");
  auto table = std::make_shared<CsvTable>(CsvTable{columns, options, nullptr, 0});
  table->fields = select.empty() ? columns.size() : static_cast<size_t>(select.back()) + 1;
  std::vector<std::pair<std::string, Structure>> named;
  ElementSpec spec;
  for (size_t i = 0; i < columns.size(); ++i) {
    const CsvColumn& column = columns[i];
    const bool text = column.dtype == DType::uint8;
    check(text || column.dtype == DType::float32 || column.dtype == DType::float64 ||
              column.dtype == DType::int32 || column.dtype == DType::int64,
          "column ", i, " is ", column.dtype,
          "; columns are float32, float64, int32, int64, or uint8 for byte strings");
    check(!column.default_value || column.default_value->rank() == (text ? 1 : 0), "the default of column ",
          i, " must be ", text ? "a byte string (bytes(\"none\"))" : "a scalar", ", received ",
          column.default_value ? column.default_value->spec() : TensorSpec());
    spec.tensors.push_back({column.dtype, text ? Shape{-1} : Shape{}});
    if (!options.names.empty()) named.emplace_back(options.names[i], Structure());
  }
  spec.structure = named.empty() ? Structure::tuple(std::vector<Structure>(columns.size()))
                                 : Structure::dict(std::move(named));
  table->structure = std::make_shared<const Structure>(spec.structure);
  return files_dataset(
      {.name = "CsvDataset",
       .files = files,
       .open = [table, where](
                   const std::string& path) { return std::make_unique<CsvFileReader>(path, table, where); },
       .spec = std::move(spec)},
      where);
}

Dataset FixedLengthRecordDataset(const FileList& files, int64_t record_bytes,
                                 const FixedLengthRecordOptions& options, std::source_location where) {
  require(record_bytes > 0 && options.header_bytes >= 0 && options.footer_bytes >= 0,
          ErrorCode::invalid_argument, where,
          "FixedLengthRecordDataset: record_bytes must be positive, header_bytes and footer_bytes not "
          "negative, received ",
          record_bytes, ", ", options.header_bytes, " and ", options.footer_bytes);
  const auto stream = [options, where](const std::string& path) {
    return ByteStream(path, options.compression, ByteStream::kBufferBytes, where);
  };
  return files_dataset({.name = "FixedLengthRecordDataset",
                        .files = files,
                        .open =
                            [=](const std::string& path) {
                              return std::make_unique<FixedLengthReader>(stream(path), record_bytes, options,
                                                                         where);
                            },
                        .spec = byte_string_spec(record_bytes),
                        .count =
                            [=](const std::string& path) {
                              const std::optional<uint64_t> bytes = stream(path).size();
                              const int64_t around = options.header_bytes + options.footer_bytes;
                              if (!bytes || static_cast<int64_t>(*bytes) < around) return kUnknown;
                              return (static_cast<int64_t>(*bytes) - around) / record_bytes;
                            }},
                       where);
}

}  // namespace lockstep::data
