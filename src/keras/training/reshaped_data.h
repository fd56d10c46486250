// Data made of other data before training starts.
#pragma once

#include <map>
#include <utility>

#include "lockstep/keras/data.h"

namespace lockstep::keras {

// split_off() and with_class_weight() of lockstep/keras/data.h, of all that a fit goes through; arrays alone
// are split.
std::pair<Data, Data> split_off(const Data& data, double fraction, std::source_location where);

Data with_class_weight(const Data& data, const std::map<int64_t, double>& class_weight,
                       std::source_location where);

}  // namespace lockstep::keras
