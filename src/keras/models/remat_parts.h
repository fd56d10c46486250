// Where a model is cut, so that recomputing its parts one after the other takes least memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

// What a call of a layer gives: how large it is, and the last call that reads it (the number of calls: the
// model returns it).
struct MadeValue {
  int64_t size = 0;
  size_t last_reader = 0;
};

// The parts of a model whose calls give `made`: the number of calls in front of the end of each part. What
// passes from a part to a later one is kept through the forward pass, and while the backward pass is in a
// part all values of that part are there: the sum of the former and the largest of the latter is as small as
// can be.
std::vector<size_t> remat_parts(const std::vector<std::vector<MadeValue>>& made);

// Bytes of a value, per example where the batch is not known.
int64_t size_of(const TensorSpec& spec);

// Where the results of a part go, and what they are.
using PartResults = std::vector<std::pair<Tensor*, Tensor>>;

// Calls all of a model, part by part, each of them to be recomputed in the backward pass. Of the outermost
// model the last part is not: its values are needed at once. Neither is a part of one call: its layer
// decides.
void call_in_parts(const std::vector<std::vector<MadeValue>>& made,
                   const std::function<PartResults(size_t begin, size_t end)>& call);

}  // namespace lockstep::keras
