// Where the elements of datasets are made.
#pragma once

#include "device/host_device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

using lockstep::host_device;

}  // namespace lockstep::data
