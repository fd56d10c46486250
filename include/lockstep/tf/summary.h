// tf::summary: event files for TensorBoard.
//
//   const auto writer = tf::summary::create_file_writer("logs");
//   const auto scope = writer.as_default();
//   tf::summary::scalar("loss", loss, step);
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/tensor/tensor_like.h"
#include "lockstep/train/event_writer.h"

namespace lockstep::summary {

using train::EventWriter;

inline EventWriter create_file_writer(const std::string& folder,
                                      const train::EventWriterOptions& options = {},
                                      std::source_location where = std::source_location::current()) {
  return EventWriter(folder, options, where);
}

// To the writer whose as_default() is in force on this thread; without one they do nothing, as in TensorFlow.
void scalar(std::string_view tag, const TensorLike& value, int64_t step);
void histogram(std::string_view tag, const TensorLike& values, int64_t step,
               const train::HistogramOptions& options = {});
void flush();

}  // namespace lockstep::summary
