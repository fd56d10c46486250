// Event files: what TensorBoard shows.
//
//   EventWriter writer("logs/train");
//   writer.scalar("epoch_loss", 0.31, epoch);
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::train {

struct EventWriterOptions {
  // Events are kept in memory and written together: when there are `max_queue` of them, or at the first event
  // that comes `flush_seconds` after they were written last.
  int max_queue = 10;
  double flush_seconds = 120;
};

struct HistogramOptions {
  int buckets = 30;  // of equal width between the smallest and the largest value
};

struct GraphNode {
  std::string name;  // slashes make groups
  std::string op;
  std::vector<std::string> inputs;  // names of other nodes
};

// Writes one file events.out.tfevents.TIME.HOST.PROCESS.NUMBER.v2 into a folder, which is made where it does
// not exist. Events are on their way to the file after flush() and when the last copy of the handle goes.
// Thread-safe.
class EventWriter {
 public:
  // Throws Error(io) where the folder cannot be made or written.
  explicit EventWriter(const std::string& folder, const EventWriterOptions& options = {},
                       std::source_location where = std::source_location::current());

  const std::string& path() const;

  void scalar(std::string_view tag, double value, int64_t step) const;
  // The histogram of all elements, whatever the shape. Values that are not finite are left out; a warning
  // says so once per tag.
  void histogram(std::string_view tag, const Tensor& values, int64_t step,
                 const HistogramOptions& options = {},
                 std::source_location where = std::source_location::current()) const;
  // A tensor of texts for a plugin of TensorBoard's, row-major: "text" shows each of them, "images" takes a
  // width, a height and PNG images, "audio" rows of a WAV file and a text.
  void texts(std::string_view tag, std::string_view plugin, const Shape& shape,
             std::span<const std::string> elements, int64_t step,
             std::source_location where = std::source_location::current()) const;
  void graph(std::span<const GraphNode> nodes) const;
  void flush() const;

  // While it lives, tf::summary on this thread writes here. Scopes nest: they end in the reverse order in
  // which they began.
  class Scope;
  [[nodiscard]] Scope as_default() const;
  // The innermost one of this thread; null: there is none.
  static const EventWriter* current();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class EventWriter::Scope {
 public:
  explicit Scope(const EventWriter& writer);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  EventWriter writer_;
  const EventWriter* outer_;
};

}  // namespace lockstep::train
