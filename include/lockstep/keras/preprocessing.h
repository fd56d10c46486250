// keras::utils: from what data sets hold to what models take.
//
// The functions keep nothing between calls: several threads may call them at once. set_random_seed() seeds
// the generator of the whole process, so that it belongs before others draw.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/datasets.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::utils {

// Seeds everything that is drawn without a seed of its own.
void set_random_seed(uint64_t seed);

// One-hot vectors, float32: labels of shape (n,) or (n, 1) give (n, num_classes). num_classes 0: the largest
// label and one. Throws Error(invalid_argument) for a label outside of the classes.
Tensor to_categorical(const Tensor& labels, int64_t num_classes = 0,
                      std::source_location where = std::source_location::current());

// x divided by its norm of this order (1, 2, ...) along `axis`; vectors of zeros stay zero. Floating x only.
Tensor normalize(const Tensor& x, int axis = -1, int order = 2,
                 std::source_location where = std::source_location::current());

struct PadOptions {
  int64_t maxlen = 0;              // 0: the longest sequence's
  std::string padding = "pre";     // or "post": where values are added
  std::string truncating = "pre";  // or "post": where values are cut off
  int32_t value = 0;
};

// Sequences of one length: int32 (sequences, length).
Tensor pad_sequences(const std::vector<std::vector<int32_t>>& sequences, const PadOptions& options = {},
                     std::source_location where = std::source_location::current());

struct TimeseriesOptions {
  int64_t sequence_stride = 1;  // between the starts of two windows
  int64_t sampling_rate = 1;    // between two steps of a window
  int64_t start_index = 0;
  int64_t end_index = 0;  // 0: the end of the data
  bool shuffle = false;
  uint64_t seed = 0;
};

// Windows over the first dimension of `data`: x is (windows, sequence_length, ...). y is the target at each
// window's first step (targets shifted by the caller say what to predict), none where there are no targets.
datasets::Examples timeseries_dataset_from_array(
    const Tensor& data, const Tensor& targets, int64_t sequence_length, const TimeseriesOptions& options = {},
    std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::utils
