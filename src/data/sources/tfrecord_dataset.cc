#include "data/tfrecord.h"

#include <zlib.h>

#include "data/sources/files.h"

namespace lockstep::data {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 18;

class TFRecordFileReader final : public OffsetReader<RecordReader> {
 public:
  using OffsetReader::OffsetReader;
  bool next(Item& item) override {
    Tensor record;
    if (!stream_.next(record)) return false;
    item = Item(Element(record));
    return true;
  }
  bool ended() const override { return stream_.ended(); }
};

}  // namespace

Dataset TFRecordDataset(const FileList& files, const TFRecordOptions& options, std::source_location where) {
  require(options.buffer_bytes > 0, ErrorCode::invalid_argument, where,
          "TFRecordDataset: buffer_bytes must be positive, received ", options.buffer_bytes);
  require(options.num_parallel_reads > 0, ErrorCode::invalid_argument, where,
          "TFRecordDataset: num_parallel_reads must be positive, received ", options.num_parallel_reads);
  if (options.num_parallel_reads > 1) {
    TFRecordOptions one = options;
    one.num_parallel_reads = 1;
    return file_names_dataset("TFRecordDataset", files, where)
        .interleave([one, where](const Tensor& file) { return TFRecordDataset(text(file), one, where); },
                    {.cycle_length = options.num_parallel_reads,
                     .num_parallel_calls = options.num_parallel_reads},
                    where);
  }
  return files_dataset(
      {.name = "TFRecordDataset",
       .files = files,
       .open =
           [options, where](const std::string& path) {
             return std::make_unique<TFRecordFileReader>(
                 RecordReader(path, options.compression, static_cast<size_t>(options.buffer_bytes), where));
           },
       .spec = byte_string_spec()},
      where);
}

struct TFRecordWriter::Impl {
  Impl(const std::string& path, const TFRecordWriterOptions& options, std::source_location from)
      : file(path, from), where(from), compressed(options.compression != Compression::none) {
    if (!compressed) return;
    const int window = options.compression == Compression::gzip ? 15 + 16 : 15;
    require(deflateInit2(&stream, options.level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK,
            ErrorCode::out_of_memory, where, "TFRecordWriter: zlib gives no writer");
  }
  ~Impl() {
    if (compressed) deflateEnd(&stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void flush(bool last) {
    if (!compressed) {
      file.write(pending);
    } else {
      stream.next_in = reinterpret_cast<Bytef*>(pending.data());
      stream.avail_in = static_cast<uInt>(pending.size());
      std::string packed(kWriteBytes, '\0');
      do {
        stream.next_out = reinterpret_cast<Bytef*>(packed.data());
        stream.avail_out = static_cast<uInt>(packed.size());
        deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
        file.write(packed.data(), packed.size() - stream.avail_out);
      } while (stream.avail_out == 0);
    }
    pending.clear();
  }

  AtomicFile file;
  std::source_location where;
  bool compressed;
  bool closed = false;
  z_stream stream{};
  std::string pending;  // framed and not yet in the file
};

TFRecordWriter::TFRecordWriter(const std::string& path, const TFRecordWriterOptions& options,
                               std::source_location where) {
  require(options.compression != Compression::automatic, ErrorCode::invalid_argument, where,
          "TFRecordWriter: compression must be none, gzip or zlib");
  require(options.level >= 1 && options.level <= 9, ErrorCode::invalid_argument, where,
          "TFRecordWriter: level is from 1 to 9, received ", options.level);
  impl_ = std::make_unique<Impl>(path, options, where);
}
TFRecordWriter::TFRecordWriter(TFRecordWriter&&) noexcept = default;
TFRecordWriter::~TFRecordWriter() = default;

void TFRecordWriter::write(std::string_view record) {
  require(!impl_->closed, ErrorCode::failed_precondition, impl_->where, "TFRecordWriter: \"",
          impl_->file.path(), "\" is closed");
  require(record.size() < size_t{1} << 31, ErrorCode::invalid_argument, impl_->where,
          "TFRecordWriter: a record of ", record.size(), " bytes; at most ", (size_t{1} << 31) - 1,
          " are written");
  append_record(impl_->pending, record);
  if (impl_->pending.size() >= kWriteBytes) impl_->flush(false);
}

void TFRecordWriter::write(const Tensor& record) { write(text(record, impl_->where)); }

void TFRecordWriter::close() {
  if (impl_->closed) return;
  impl_->flush(true);
  impl_->file.commit();
  impl_->closed = true;
}

}  // namespace lockstep::data
