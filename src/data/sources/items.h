// A dataset of items that were collected from another one: a window, a group.
#pragma once

#include <source_location>
#include <vector>

#include "data/item.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

Dataset items_dataset(std::vector<Item> items, std::source_location where);

}  // namespace lockstep::data
