// What Dataset::with_options() said.
#pragma once

#include "data/node.h"

namespace lockstep::data {

// The options of the dataset that ends in `node`: those nearest to its end count.
Options options_of(const Node& node);

}  // namespace lockstep::data
