#include "execute/replica_variables.h"

#include "graph/eager.h"
#include "graph/variable_impl.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

void ReplicaVariables::spread() const {
  for (const Variable& handle : variables_) {
    VariableImpl& variable = *handle.impl();
    const ReplicaRange own = layout_.own_replicas();
    TensorList& parts = variable.spread(own.size());
    // A replica without examples does not run, but what it has must not be left out of a sum.
    for (size_t r = 1; r < parts.size(); ++r)
      if (layout_.slices[static_cast<size_t>(own.first) + r].size == 0 && parts[r].defined()) {
        parts[0] = variable.sum_of_parts(parts[0], parts[r]);
        parts[r] = {};
      }
    for (int d = 0; d < static_cast<int>(layout_.devices.size()); ++d) {
      Device& device = *layout_.devices[static_cast<size_t>(d)];
      const auto [first, last] = layout_.replicas_with_examples(d);
      for (int r = first; r < last; ++r) {
        Tensor& part = parts[static_cast<size_t>(r - own.first)];
        part = part.defined() ? part.to(device)
                              : Tensor::full(variable.spec.dtype, variable.spec.shape, 0, device);
      }
    }
  }
}

void* ReplicaVariables::part(size_t variable, int replica) const {
  const int number = replica - layout_.own_replicas().first;
  return variables_[variable].impl()->parts[static_cast<size_t>(number)].impl()->data();
}

}  // namespace lockstep::execute
