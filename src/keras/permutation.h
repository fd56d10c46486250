// Random orders that depend on their seed alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace lockstep::keras {

// Every order of the items is equally likely (up to the bias of PhiloxStream::below).
template <class T>
void shuffle(std::vector<T>& items, uint64_t seed) {
  PhiloxStream random(seed, 0x73687566666c65);
  for (size_t left = items.size(); left > 1; --left)
    std::swap(items[left - 1], items[random.below(static_cast<uint32_t>(left))]);
}

}  // namespace lockstep::keras
