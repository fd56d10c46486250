// Short real runs through the public ops: does a device compute what it should, and how fast against its
// ceiling?
#pragma once

#include <cstdint>
#include <vector>

#include "device/nvidia_driver.h"
#include "lockstep/device/device.h"
#include "lockstep/doctor/doctor.h"

namespace lockstep::doctor {

struct Effort {
  int64_t side = 512;                   // of the matrices
  int64_t elements = int64_t{1} << 24;  // of the vector that is added to
  // Readings, of which the best counts: at least so many, and as many as fit into the budget. They are short,
  // so that some fall between what else the machine does.
  int rounds = 5;
  double budget_s = 0.3;
  int repeats = 1;  // runs of one reading
};
// As much work as the device needs to show what it can.
Effort effort_for(const Device& device);

// A matrix product and an addition. `gpus`: what is known of the GPUs, for their ceilings. Throws nothing:
// what goes wrong is in the result.
std::vector<Trial> try_out(Device& device, const Effort& effort, const std::vector<nvidia::Gpu>& gpus = {});

// As doctor::ceilings(), with what is known of the GPUs.
Ceilings ceilings(const Device& device, const std::vector<nvidia::Gpu>& gpus);

// Whether c = a b for matrices [side, side] of small whole numbers, in exact arithmetic: c v is compared with
// a (b v) for vectors v of whole numbers. A wrong product passes with a chance below one in a million.
bool is_product(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c,
                int64_t side);

}  // namespace lockstep::doctor
