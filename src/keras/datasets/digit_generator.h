// Procedural handwritten digits: 28x28 grey images, white strokes on black, labels 0 to 9.
//
// The data set needs no file and no network. Every pixel is decided in integer arithmetic from
// counter-based random numbers, so the bytes are the same on every machine and compiler and with
// any number of threads.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::keras::datasets {

inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

struct DigitImages {
  std::vector<uint8_t> images;  // n * 28 * 28, row by row, 0 = background
  std::vector<uint8_t> labels;  // n
};

// Examples first .. first + count - 1 of the sequence that `seed` names. Example i depends only on
// (seed, i): any range can be made on its own and has the same bytes as inside a larger one. Labels
// are drawn uniformly. Uses up to `threads` threads of the calling thread's team; thread-safe.
DigitImages generate_digits(uint64_t seed, int64_t first, int64_t count, int threads);

}  // namespace lockstep::keras::datasets
