// A random order whose places can be asked for one by one.
//
// What stands at a place depends on the key, the count and the place alone: any device makes the same order,
// any part of it at any time, and nobody needs the whole.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace lockstep {

// The numbers 0 ... count - 1; a value type. A place is a row and a column of a grid that is hardly larger
// than the count. Moves turn each column by a random number of rows and each row by a random number of
// columns: every one can be undone, so no number comes twice. A result beyond the count is moved again until
// it is below.
class Permutation {
 public:
  // A count is at least 1 and below 2^62.
  constexpr Permutation(uint64_t key, int64_t count)
      : key_(key),
        count_(static_cast<uint64_t>(count)),
        rows_(even_root(count_)),
        columns_(static_cast<uint32_t>((count_ + rows_ - 1) / rows_)),
        // A small grid takes more of them to reach every order.
        moves_(count_ < 4096 ? 40 : 8) {}
  constexpr Permutation with_key(uint64_t key) const {
    Permutation other = *this;
    other.key_ = key;
    return other;
  }

  // `place` below the count.
  constexpr int64_t operator()(int64_t place) const {
    return at(place, [this](uint32_t move, uint32_t line) { return turn(move, line); });
  }

  // The same, given turn().
  template <class Turn>
  constexpr int64_t at(int64_t place, Turn&& turn) const {
    auto number = static_cast<uint64_t>(place);
    do {
      auto row = static_cast<uint32_t>(number / columns_), column = static_cast<uint32_t>(number % columns_);
      for (uint32_t move = 0; move < moves_; move += 2) {
        row = turned(row, turn(move, column), rows_);
        column = turned(column, turn(move + 1, row), columns_);
      }
      number = uint64_t{row} * columns_ + column;
    } while (number >= count_);
    return static_cast<int64_t>(number);
  }

  uint32_t moves() const { return moves_; }
  // Lines of a move: columns for even ones, rows for odd ones.
  uint32_t lines(uint32_t move) const { return move % 2 == 0 ? columns_ : rows_; }
  // By how much a line is turned.
  constexpr uint32_t turn(uint32_t move, uint32_t line) const {
    const uint32_t word = Philox::block(key_, move, line / 4)[line % 4];
    return static_cast<uint32_t>(uint64_t{word} * (move % 2 == 0 ? rows_ : columns_) >> 32);
  }

 private:
  // The smallest even number whose square is no less: turns of an odd number of places alone would reach only
  // half of the orders.
  static constexpr uint32_t even_root(uint64_t count) {
    uint64_t root = 0;
    for (uint64_t bit = uint64_t{1} << 31; bit > 0; bit /= 2)
      if ((root + bit) * (root + bit) < count) root += bit;
    return static_cast<uint32_t>(root / 2 * 2 + 2);
  }
  static constexpr uint32_t turned(uint32_t at, uint32_t by, uint32_t bound) {
    const uint32_t left = bound - by;
    return at < left ? at + by : at - left;
  }

  uint64_t key_, count_;
  uint32_t rows_, columns_, moves_;
};

// The same order for one who asks for much of it: all turns are made at once, which are some square roots of
// the count.
class TabledPermutation {
 public:
  TabledPermutation(uint64_t key, int64_t count);
  int64_t operator()(int64_t place) const {
    return permutation_.at(place,
                           [this](uint32_t move, uint32_t line) { return turns_[move * most_ + line]; });
  }

 private:
  Permutation permutation_;
  size_t most_;  // lines of a move
  std::vector<uint32_t> turns_;
};

}  // namespace lockstep
