// Data sets.
#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::datasets {

struct Examples {
  Tensor x;  // uint8 (n, 28, 28): grey images, 0 is the background
  Tensor y;  // uint8 (n,): labels
};

struct TrainTest {
  Examples train;
  Examples test;
};

struct DigitsOptions {
  uint64_t seed = 0;
  int64_t train_size = 60000;
  int64_t test_size = 10000;
};

// Handwritten-like digits that are made, not loaded: the same bytes for the same seed everywhere.
// The test examples do not depend on train_size.
TrainTest digits(const DigitsOptions& options = {});

}  // namespace lockstep::keras::datasets
