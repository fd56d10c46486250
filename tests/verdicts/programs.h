// What the programs of these tests are made of.
#pragma once

#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::testing {

// Two devices of one thread each, and four of four threads.
inline const std::vector<std::string> kTwoDevices{"/CPU:0", "/CPU:1"};
inline const std::vector<std::string> kManyThreads{"/CPU:2", "/CPU:3", "/CPU:4", "/CPU:5"};

struct Examples {
  Tensor x, y;
};
// Of random numbers, with labels of ten classes.
Examples examples(int64_t count, const Shape& shape);

// Compiled for labels of ten classes.
keras::Model compiled(keras::Model model);

// Two layers of so many units: a step of 64 examples takes milliseconds with 512.
keras::Model dense(int64_t units = 512, int64_t inputs = 512);

std::vector<std::string> ids(const std::vector<observe::Verdict>& verdicts);

}  // namespace lockstep::testing
