// Data made of other data before training starts.
#pragma once

#include <map>
#include <utility>

#include "lockstep/keras/data.h"

namespace lockstep::keras {

// All but the last `fraction` of the examples, and those. Arrays only.
std::pair<Data, Data> split_off(const Data& data, double fraction, std::source_location where);

// The data with sample weights multiplied by the weight of each example's class; classes that are not named
// weigh 1. Labels are class numbers, or one-hot rows.
Data with_class_weight(const Data& data, const std::map<int64_t, double>& class_weight,
                       std::source_location where);

}  // namespace lockstep::keras
