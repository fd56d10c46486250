// CRC-32C (Castagnoli): the checksum of TFRecord files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep
