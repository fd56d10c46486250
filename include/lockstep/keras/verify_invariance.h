// Whether a model's training gives the same bits on any number of replicas.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/data.h"
#include "lockstep/keras/model.h"

namespace lockstep::distribute {

struct InvarianceOptions {
  int64_t batch_size = 32;
  int64_t steps = 20;
  // Numbers of devices to compare, of those that there are; the first is what the others are compared with.
  std::vector<int> replicas = {1, 2, 3, 4, 8};
};

struct Invariance {
  std::vector<int> replicas;  // that were compared
  int64_t steps = 0;
  // The first difference, where there is one: after this step (counted from 0), on so many replicas.
  bool holds = true;
  int differing_replicas = 0;
  int64_t step = -1;
  std::string weight = {};  // by its path: "dense/kernel"
};
// One line, and what to look for where it does not hold.
std::string to_text(const Invariance& invariance);

// Trains the compiled model for a few steps on the data's first batches, reproducibly, on each number of
// logical CPU devices, and compares all weights after every step, bit for bit. The model is afterwards what
// it was. Throws Error(failed_precondition) where there are fewer than two devices. It trains meanwhile,
// under strategies of its own: the model, and the default generator, belong to the calling thread until it
// returns (lockstep/keras/model.h).
Invariance verify_invariance(const keras::Model& model, const keras::Data& data,
                             const InvarianceOptions& options = {},
                             std::source_location where = std::source_location::current());

}  // namespace lockstep::distribute
