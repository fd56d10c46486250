#include "lockstep/train/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/file.h"
#include "base/protobuf.h"
#include "data/tfrecord.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

using protobuf::Writer;

// TensorFlow's numbers of fields and enumerators, message by message.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5, kSourceMetadata = 10;
}
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1, kTensor = 8, kMetadata = 9;  // of a value
constexpr int kPluginData = 1, kDataClass = 4;       // of its metadata
constexpr int kScalarClass = 1, kTensorClass = 2;    // the data's class
constexpr int kPluginName = 1, kPluginContent = 2;   // of the plugin's data
constexpr int kBlobClass = 3, kText = 7,
              kTextContent = 8;               // a class of data; a dtype and the elements of a tensor
constexpr int kAudioEncoding = 2, kWav = 11;  // of the content of the plugin "audio"
constexpr int kDType = 1, kTensorShape = 2, kContent = 4;  // of its tensor
constexpr int kDim = 2, kSize = 1;                         // of the tensor's shape
constexpr int kFloat = 1, kDouble = 2;                     // the tensor's dtype
}  // namespace summary
namespace graph_def {
constexpr int kNode = 1, kVersions = 4;
constexpr int kName = 1, kOp = 2, kInput = 3;  // of a node
constexpr int kProducer = 1;                   // of the versions
}  // namespace graph_def

Writer tensor_of(int dtype, std::span<const int64_t> shape) {
  Writer dims;
  for (const int64_t size : shape) dims.message(summary::kDim, Writer().integer(summary::kSize, size));
  return Writer().integer(summary::kDType, dtype).message(summary::kTensorShape, dims);
}

template <class T>
Writer tensor_of(int dtype, std::span<const int64_t> shape, std::span<const T> elements) {
  return tensor_of(dtype, shape)
      .bytes(summary::kContent, {reinterpret_cast<const char*>(elements.data()), elements.size_bytes()});
}

// The fields of an event.
Writer summary_of(int64_t step, std::string_view tag, const Writer& plugin, int data_class,
                  const Writer& tensor) {
  const Writer metadata =
      Writer().message(summary::kPluginData, plugin).integer(summary::kDataClass, data_class);
  const Writer value = Writer()
                           .bytes(summary::kTag, tag)
                           .message(summary::kTensor, tensor)
                           .message(summary::kMetadata, metadata);
  return Writer()
      .integer(event::kStep, step)
      .message(event::kSummary, Writer().message(summary::kValue, value));
}

Writer plugin_of(std::string_view name) { return Writer().bytes(summary::kPluginName, name); }

std::vector<double> to_doubles(const Tensor& tensor, std::source_location where) {
  return dispatch(tensor.dtype(), [&]<class T>() {
    const std::vector<T> elements = tensor.to_vector<T>(where);
    std::vector<double> doubles(elements.size());
    for (size_t i = 0; i < doubles.size(); ++i) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
        doubles[i] = static_cast<float>(elements[i]);
      else
        doubles[i] = static_cast<double>(elements[i]);
    }
    return doubles;
  });
}

// Rows of (left edge, right edge, count), as TensorBoard's own summaries make them: where all values are
// equal, all edges are that value and the last bucket counts it.
std::vector<double> histogram_rows(const std::vector<double>& values, int buckets) {
  std::vector<double> rows(3 * static_cast<size_t>(buckets));
  if (values.empty()) return rows;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, high = *most;
  // The distance between two finite values need not be finite.
  const double width = std::isfinite(high - low) ? (high - low) / buckets : high / buckets - low / buckets;
  const auto edge = [&](int i) { return i == buckets ? high : low + i * width; };
  for (int i = 0; i < buckets; ++i) {
    rows[3 * i] = edge(i);
    rows[3 * i + 1] = edge(i + 1);
  }
  for (const double value : values) {
    const double position = width > 0 ? std::floor((value - low) / width) : buckets - 1;
    const int bucket = position < buckets - 1 ? static_cast<int>(position) : buckets - 1;
    ++rows[3 * bucket + 2];
  }
  return rows;
}

}  // namespace

struct EventWriter::Impl {
  Impl(const std::string& folder, const EventWriterOptions& chosen, std::source_location at)
      : options(chosen), where(at) {
    require(options.max_queue >= 1 && options.flush_seconds >= 0, ErrorCode::invalid_argument, where,
            "EventWriter: max_queue must be at least 1 and flush_seconds not negative, received ",
            options.max_queue, " and ", options.flush_seconds);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    require(!error, ErrorCode::io, where, "EventWriter: cannot make the folder \"", folder,
            "\": ", error.message());
    static std::atomic<int> number{0};
    const double now = seconds_since_1970();
    path = (std::filesystem::path(folder) /
            ("events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) + "." + host_name() + "." +
             std::to_string(getpid()) + "." + std::to_string(number++) + ".v2"))
               .string();
    descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    require(descriptor >= 0, ErrorCode::io, where, "EventWriter: cannot write \"", path,
            "\": ", system_message(errno));
    write(now, Writer()
                   .bytes(event::kFileVersion, "brain.Event:2")
                   .message(event::kSourceMetadata, Writer().bytes(1, "lockstep")));
    flush();
  }

  ~Impl() {
    try {
      flush();
    } catch (const Error& error) {
      log(LogLevel::error, error.message());
    }
    close(descriptor);
  }

  void write(double time, const Writer& fields) {
    const std::string event = Writer().real(event::kWallTime, time).text() + fields.text();
    const std::string record = data::frame_record(event);
    const std::lock_guard lock(mutex);
    waiting += record;
    if (++events >= options.max_queue ||
        static_cast<double>(monotonic_ns() - flushed_ns) > options.flush_seconds * 1e9)
      flush_locked();
  }

  void flush() {
    const std::lock_guard lock(mutex);
    flush_locked();
  }

  void flush_locked() {
    std::string_view rest = waiting;
    while (!rest.empty()) {
      const ssize_t put = ::write(descriptor, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        const std::string reason = system_message(errno);
        // What is written once must not be written twice.
        waiting.erase(0, waiting.size() - rest.size());
        fail(ErrorCode::io, where, "EventWriter: cannot write \"", path, "\": ", reason);
      }
      rest.remove_prefix(static_cast<size_t>(put));
    }
    waiting.clear();
    events = 0;
    flushed_ns = monotonic_ns();
  }

  EventWriterOptions options;
  std::source_location where;
  std::string path;
  int descriptor = -1;
  std::mutex mutex;
  std::string waiting;  // framed events
  int events = 0;       // in `waiting`
  int64_t flushed_ns = monotonic_ns();
};

EventWriter::EventWriter(const std::string& folder, const EventWriterOptions& options,
                         std::source_location where)
    : impl_(std::make_shared<Impl>(folder, options, where)) {}

const std::string& EventWriter::path() const { return impl_->path; }

void EventWriter::scalar(std::string_view tag, double value, int64_t step) const {
  const auto element = static_cast<float>(value);
  impl_->write(seconds_since_1970(),
               summary_of(step, tag, plugin_of("scalars"), summary::kScalarClass,
                          tensor_of<float>(summary::kFloat, {}, std::span(&element, 1))));
}

void EventWriter::histogram(std::string_view tag, const Tensor& values, int64_t step,
                            const HistogramOptions& options, std::source_location where) const {
  require(options.buckets >= 1, ErrorCode::invalid_argument, where, "EventWriter: a histogram (\"", tag,
          "\") needs at least 1 bucket, received ", options.buckets);
  std::vector<double> doubles = to_doubles(values, where);
  if (std::erase_if(doubles, [](double value) { return !std::isfinite(value); }) > 0)
    log_once(LogLevel::warning, "EventWriter: the histogram \"", tag,
             "\" leaves out values that are not finite");
  const std::vector<double> rows = histogram_rows(doubles, options.buckets);
  const int64_t shape[] = {options.buckets, 3};
  impl_->write(seconds_since_1970(), summary_of(step, tag, plugin_of("histograms"), summary::kTensorClass,
                                                tensor_of<double>(summary::kDouble, shape, rows)));
}

void EventWriter::texts(std::string_view tag, std::string_view plugin, const Shape& shape,
                        std::span<const std::string> elements, int64_t step,
                        std::source_location where) const {
  require(shape.size() == static_cast<int64_t>(elements.size()), ErrorCode::shape_mismatch, where,
          "EventWriter: the texts \"", tag, "\" are ", elements.size(), ", those of the shape ", shape);
  Writer tensor = tensor_of(summary::kText, shape.span());
  for (const std::string& element : elements) tensor.bytes(summary::kTextContent, element);
  Writer shown_by = plugin_of(plugin);
  if (plugin == "audio")
    shown_by.message(summary::kPluginContent, Writer().integer(summary::kAudioEncoding, summary::kWav));
  impl_->write(seconds_since_1970(),
               summary_of(step, tag, shown_by, plugin == "text" ? summary::kTensorClass : summary::kBlobClass,
                          tensor));
}

void EventWriter::graph(std::span<const GraphNode> nodes) const {
  Writer graph;
  for (const GraphNode& node : nodes) {
    Writer fields;
    fields.bytes(graph_def::kName, node.name).bytes(graph_def::kOp, node.op);
    for (const std::string& input : node.inputs) fields.bytes(graph_def::kInput, input);
    graph.message(graph_def::kNode, fields);
  }
  graph.message(graph_def::kVersions, Writer().integer(graph_def::kProducer, 22));
  impl_->write(seconds_since_1970(), Writer().message(event::kGraphDef, graph));
}

void EventWriter::flush() const { impl_->flush(); }

namespace {
thread_local const EventWriter* default_writer = nullptr;
}
EventWriter::Scope EventWriter::as_default() const { return Scope(*this); }
const EventWriter* EventWriter::current() { return default_writer; }
EventWriter::Scope::Scope(const EventWriter& writer) : writer_(writer), outer_(default_writer) {
  default_writer = &writer_;
}
EventWriter::Scope::~Scope() { default_writer = outer_; }

}  // namespace lockstep::train
