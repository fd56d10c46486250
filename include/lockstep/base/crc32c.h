// CRC-32C (Castagnoli): the checksum of TFRecord files and checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// `before`: the checksum of the bytes in front of these, where they come in pieces.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// As TensorFlow's files keep it: rotated and shifted, so that the checksum of what holds checksums is not
// trivial.
inline uint32_t masked_crc32c(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8; }

}  // namespace lockstep
