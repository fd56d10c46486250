// Many elements become one with a dimension more.
#pragma once

#include <span>
#include <vector>

#include "data/item.h"
#include "data/node.h"

namespace lockstep::data {

// Elements of one structure, with the same dtypes and shapes. Throws Error(shape_mismatch) naming the parts
// that differ, their places in the batch and padded_batch(). `stage` is what the error calls itself by.
Element stack(std::span<Item> items, const Stage& stage);

// The parts of the next batch; false where there is none. An element that fails takes its place out of the
// batch: those before it stay in `kept` for the next call.
bool collect(Cursor& input, int64_t size, bool drop_remainder, std::vector<Item>& kept,
             std::vector<Item>& parts);

// How many batches so many elements (or kInfinite, kUnknown) make, and whether all are of the full size.
int64_t batches_of(int64_t elements, int64_t size, bool drop_remainder);
bool batches_are_whole(int64_t elements, int64_t size, bool drop_remainder);

}  // namespace lockstep::data
