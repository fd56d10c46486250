// Layers that pad, crop and enlarge sequences, images and volumes.
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/keras/layers/convolutional.h"
#include "lockstep/ops/image.h"

namespace lockstep::keras::layers {

// Elements before and behind each spatial dimension: 1, {1, 2} (one number per dimension, on both sides; in
// 1D before and behind), or {{1, 2}, {0, 1}} (before and behind each).
class Margins {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  Margins(int all) : margins_{{all, all}}, all_(true) {}
  Margins(std::initializer_list<int64_t> sizes);
  Margins(std::initializer_list<std::pair<int64_t, int64_t>> margins) : margins_(margins) {}
  // NOLINTEND(google-explicit-constructor)

  // Throws Error(invalid_argument) naming `layer` where they are not for `rank` dimensions.
  std::vector<std::pair<int64_t, int64_t>> of(int rank, const char* layer) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> margins_;
  bool all_ = false;        // one for all dimensions
  bool symmetric_ = false;  // one number per dimension
};

struct MarginOptions {
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer ZeroPadding1D(const Margins& padding = 1, const MarginOptions& options = {},
                    std::source_location where = std::source_location::current());
Layer ZeroPadding2D(const Margins& padding = 1, const MarginOptions& options = {},
                    std::source_location where = std::source_location::current());
Layer ZeroPadding3D(const Margins& padding = 1, const MarginOptions& options = {},
                    std::source_location where = std::source_location::current());
Layer Cropping1D(const Margins& cropping = 1, const MarginOptions& options = {},
                 std::source_location where = std::source_location::current());
Layer Cropping2D(const Margins& cropping = 0, const MarginOptions& options = {},
                 std::source_location where = std::source_location::current());
Layer Cropping3D(const Margins& cropping = 1, const MarginOptions& options = {},
                 std::source_location where = std::source_location::current());

struct UpSamplingOptions {
  DataFormat data_format = DataFormat::channels_last;    // of no meaning in one dimension
  Interpolation interpolation = Interpolation::nearest;  // of images; the others repeat
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Each step, row or column `size` times.
Layer UpSampling1D(int64_t size = 2, const UpSamplingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer UpSampling2D(const Sizes& size = 2, const UpSamplingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer UpSampling3D(const Sizes& size = 2, const UpSamplingOptions& options = {},
                   std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
