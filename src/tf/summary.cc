#include "lockstep/tf/summary.h"

#include "lockstep/ops/math.h"

namespace lockstep::summary {

void scalar(std::string_view tag, const TensorLike& value, int64_t step) {
  if (const EventWriter* writer = EventWriter::current())
    writer->scalar(tag, cast({value.tensor(), value.where()}, DType::float64).item<double>(value.where()),
                   step);
}

void histogram(std::string_view tag, const TensorLike& values, int64_t step,
               const train::HistogramOptions& options) {
  if (const EventWriter* writer = EventWriter::current())
    writer->histogram(tag, values.tensor(), step, options, values.where());
}

void flush() {
  if (const EventWriter* writer = EventWriter::current()) writer->flush();
}

}  // namespace lockstep::summary
