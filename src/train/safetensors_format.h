// How a safetensors file begins.
//
// The layout: the header's length as a little-endian uint64, the header (JSON, padded with spaces to a
// multiple of 8 bytes), then the tensors' bytes. Offsets in the header count from the header's end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::train {

inline constexpr size_t kLengthBytes = 8;
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // what the format allows

}  // namespace lockstep::train
