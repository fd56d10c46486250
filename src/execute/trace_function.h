// Calls a function on symbols and gives the graph of what it did.
#pragma once

#include <functional>
#include <source_location>
#include <span>
#include <string>

#include "graph/emit.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::execute {

struct TraceRequest {
  std::span<const TensorSpec> parameters;
  std::span<Device* const> devices = {};  // where each parameter lives; empty: that does not matter
  ReplicaTrace replica = {};
  std::string note;             // of errors: what was traced, and where it comes from
  std::source_location made;    // where the function was made: what its results are charged to
  std::source_location called;  // from where it is called now
};

// Throws what the function throws, with the note, and Error(invalid_argument) where a result is undefined.
Graph trace_function(const std::function<TensorList(std::span<const Tensor>)>& body,
                     const TraceRequest& request);

}  // namespace lockstep::execute
