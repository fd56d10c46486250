// CRC-32C (Castagnoli): the checksum of TFRecord files and checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// `before`: the checksum of the bytes in front of these, where they come in pieces.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace lockstep
