// Many elements become one with a dimension more.
#pragma once

#include <span>

#include "data/item.h"
#include "data/stage.h"

namespace lockstep::data {

// Elements of one structure, with the same dtypes and shapes. Throws Error(shape_mismatch) naming the parts that
// differ, their places in the batch and padded_batch(). `stage` is what the error calls itself by.
Element stack(std::span<Item> items, const Stage& stage);

}  // namespace lockstep::data
