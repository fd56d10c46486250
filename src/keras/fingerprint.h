// Hashes of byte strings that are the same on every machine, and in TensorFlow.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace lockstep::keras {

// FarmHash's Fingerprint64.
uint64_t farm_fingerprint(std::string_view text);
// Two fingerprints as one, as TensorFlow joins those of crossed features.
uint64_t joined_fingerprint(uint64_t first, uint64_t second);
// SipHash-2-4 with a key of 128 bits.
uint64_t sip_hash(std::string_view text, std::pair<uint64_t, uint64_t> key);

}  // namespace lockstep::keras
