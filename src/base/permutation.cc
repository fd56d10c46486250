#include "base/permutation.h"

#include <algorithm>

namespace lockstep {

TabledPermutation::TabledPermutation(uint64_t key, int64_t count)
    : permutation_(key, count), most_(std::max(permutation_.lines(0), permutation_.lines(1))) {
  turns_.resize(permutation_.moves() * most_);
  for (uint32_t move = 0; move < permutation_.moves(); ++move)
    for (uint32_t line = 0; line < permutation_.lines(move); ++line)
      turns_[move * most_ + line] = permutation_.turn(move, line);
}

}  // namespace lockstep
