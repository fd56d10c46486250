// Decoding and resizing images into memory that is there already.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string_view>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::data {

// Room for height x width x channels bytes.
using PixelRoom = std::function<uint8_t*(int64_t height, int64_t width, int64_t channels)>;

// A JPEG image may be made smaller while it is decoded, but not smaller than that. 0: as it is.
struct SmallestSize {
  int64_t height = 0, width = 0;
};

// As decode_image(). `allocate` is called once, before anything is written.
void decode_pixels(std::string_view bytes, int channels, const PixelRoom& allocate,
                   const SmallestSize& smallest, std::string_view source, std::source_location where);

// Makes images one size; keeps what it worked out for images of one size in a row. Not thread-safe.
class Resizer {
 public:
  // What lies around a pixel along one dimension.
  struct Source {
    int64_t first = 0, second = 0;
    float weight = 0;  // of the second
  };

  Resizer(int64_t height, int64_t width, const ResizeOptions& options, std::source_location where);
  // As resize_image(); `to` has room for the result.
  void operator()(const uint8_t* from, int64_t height, int64_t width, int64_t channels, float* to);

 private:
  // All that a pixel is made of along one dimension, where that may be more than two.
  struct Taps {
    int64_t first = 0;
    std::vector<float> weights;
  };

  bool between_two() const;  // bilinear and nearest
  void plan(int64_t height, int64_t width);
  void stretch(const uint8_t* line, int64_t channels, float* to) const;
  std::vector<Taps> taps(int64_t begin, int64_t from, int64_t to) const;
  void weigh(const uint8_t* from, int64_t width, int64_t channels, float* to);

  int64_t height_, width_;
  ResizeOptions options_;
  int64_t from_height_ = 0, from_width_ = 0;
  std::vector<Source> rows_, columns_;
  std::vector<Taps> row_taps_, column_taps_;
  std::vector<float> above_, below_;
  std::vector<float> stretched_;  // every line of the image that is needed, as wide as the result
};

}  // namespace lockstep::data
