// Datasets of what files hold, and TFRecord files to be written.
//
//   auto records = tf::data::TFRecordDataset(files, {.num_parallel_reads = 4})
//                      .map(tf::data::ExampleParser({{"image", {.dtype = DType::uint8, .shape = {28, 28}}},
//                                                    {"label", {.dtype = DType::int64}}}));
//
// Files are read one after another, in the order given, as elements are asked for. What cannot be read throws
// Error(io), or Error(not_found), that names the file and the place in it; the next call goes on behind it:
// with the next element where it is known where that begins, else with the next file. Byte strings (records,
// lines, names) are uint8 tensors of rank 1: see text() in element.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

enum class Compression : uint8_t {
  automatic,  // what the file's first bytes say
  none,
  gzip,
  zlib,
};

// One name is a list of one.
struct FileList : std::vector<std::string> {
  using std::vector<std::string>::vector;
  // NOLINTBEGIN(google-explicit-constructor): TFRecordDataset("train.tfrecord")
  FileList(const char* file) : vector{file} {}
  FileList(const std::string& file) : vector{file} {}
  FileList(std::vector<std::string> files) : vector(std::move(files)) {}
  // NOLINTEND(google-explicit-constructor)
};

// --- TFRecord ---

struct TFRecordOptions {
  Compression compression = Compression::automatic;
  // Files that are read at once. More than 1: elements come from them in turn, each file is read by a thread
  // of its own, and the order is always the same.
  int64_t num_parallel_reads = 1;
  int64_t buffer_bytes = 1 << 18;
};

// The records, as byte strings. Checksums are verified: a record that does not match its own throws, and the
// next call goes on behind it.
Dataset TFRecordDataset(const FileList& files, const TFRecordOptions& options = {},
                        std::source_location where = std::source_location::current());

struct TFRecordWriterOptions {
  Compression compression = Compression::none;  // or gzip, zlib
  int level = 6;                                // of compression, from 1 (quick) to 9 (small)
};

// Writes a TFRecord file that appears complete, with close(), or not at all: an older one of this name is
// there until then. Not thread-safe.
class TFRecordWriter {
 public:
  explicit TFRecordWriter(const std::string& path, const TFRecordWriterOptions& options = {},
                          std::source_location where = std::source_location::current());
  TFRecordWriter(TFRecordWriter&&) noexcept;
  ~TFRecordWriter();  // without a close() before: nothing is left behind

  void write(std::string_view record);
  void write(const Tensor& record);  // a byte string
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- lines, tables, fixed-length records ---

struct TextLineOptions {
  Compression compression = Compression::automatic;
};

// The lines, without their ends ("\n" or "\r\n"). The last one needs none.
Dataset TextLineDataset(const FileList& files, const TextLineOptions& options = {},
                        std::source_location where = std::source_location::current());

// A column of a table: its dtype (float32, float64, int32, int64, or uint8 for byte strings) and what stands
// for a field that is empty or NA. Without that, such a field is an error.
struct CsvColumn {
  // NOLINTBEGIN(google-explicit-constructor): {DType::float32, Tensor::scalar<int64_t>(0)}
  CsvColumn(DType column_dtype) : dtype(column_dtype) {}
  CsvColumn(const Tensor& value) : dtype(value.dtype()), default_value(value) {}
  // NOLINTEND(google-explicit-constructor)
  DType dtype;
  std::optional<Tensor> default_value;
};

struct CsvDatasetOptions {
  bool header = false;  // the first row of every file is left out
  char delimiter = ',';
  bool quotes = true;         // fields may be quoted, and then hold delimiters and line breaks (RFC 4180)
  std::string na_value = {};  // stands for a missing field, beside the empty one
  // The columns to be read, from 0, ascending: one for each of `columns`. Empty: the rows have no others.
  std::vector<int64_t> select_cols = {};
  // Elements are dictionaries with these names; empty: tuples.
  std::vector<std::string> names = {};
  Compression compression = Compression::automatic;
};

// The rows, each a tuple (or dictionary) of scalars; empty lines are left out. A field that is no number, and
// a row of another number of fields, throw with file, line and column; the next call goes on with the next
// row.
Dataset CsvDataset(const FileList& files, const std::vector<CsvColumn>& columns,
                   const CsvDatasetOptions& options = {},
                   std::source_location where = std::source_location::current());

struct FixedLengthRecordOptions {
  int64_t header_bytes = 0;  // left out at the beginning of every file
  int64_t footer_bytes = 0;  // and at the end
  Compression compression = Compression::automatic;
};

// Byte strings of `record_bytes` each.
Dataset FixedLengthRecordDataset(const FileList& files, int64_t record_bytes,
                                 const FixedLengthRecordOptions& options = {},
                                 std::source_location where = std::source_location::current());

// --- arrays ---

// (row of the first file, row of the second), or single rows where there is no second file. IDX is the format
// of MNIST; files may be compressed with gzip. The headers are read at once, the rows with the first
// iterator.
Dataset idx_dataset(const std::string& images, const std::string& labels = {},
                    std::source_location where = std::source_location::current());
// The array of an IDX file of uint8, int32, float32 or float64 elements.
Tensor read_idx(const std::string& path, std::source_location where = std::source_location::current());

// --- folders of images ---

struct ImageFolderOptions {
  std::vector<int64_t> image_size = {256, 256};  // height, width
  int channels = 3;                              // 1, 3 or 4
  ResizeOptions resize = {};
  bool labels = true;  // false: images alone
  std::vector<std::string> class_names =
      {};               // the folders to read, in the order of labels; empty: all, sorted
  bool shuffle = true;  // the files, anew in every iteration
  std::optional<uint64_t> seed{};
  // 0: single images. Else batches, which images are decoded right into.
  int64_t batch_size = 0;
  bool drop_remainder = false;
  int64_t num_parallel_calls = AUTOTUNE;
};

// (image, label): float32 (height, width, channels) from 0 to 255, and int32, the number of its class'
// folder. Reads JPEG and PNG files; folders inside of a class' belong to it. An image that cannot be read
// throws, named.
Dataset image_folder_dataset(const std::string& folder, const ImageFolderOptions& options = {},
                             std::source_location where = std::source_location::current());

}  // namespace lockstep::data
