// Variables of which every replica has a part of its own.
#pragma once

#include <vector>

#include "execute/replicas.h"
#include "lockstep/graph/variable.h"

namespace lockstep {
struct VariableImpl;
}

namespace lockstep::execute {

// What such a variable holds is the sum of its parts (VariableOptions::per_replica): statistics over examples
// above all. A process has the parts of its own replicas.
class ReplicaVariables {
 public:
  // `layout` is replicated, and outlives this.
  ReplicaVariables(std::vector<Variable> variables, const ReplicaLayout& layout)
      : variables_(std::move(variables)), layout_(layout) {}

  // Before a step: every replica with examples has its part on its device.
  void spread() const;
  // That part, of the variable of this number.
  void* part(size_t variable, int replica) const;

 private:
  void hand_over(VariableImpl& variable, TensorList& parts, ReplicaRange own) const;

  const std::vector<Variable> variables_;
  const ReplicaLayout& layout_;
};

}  // namespace lockstep::execute
