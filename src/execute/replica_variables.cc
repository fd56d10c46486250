#include "execute/replica_variables.h"

#include <algorithm>
#include <cstring>

#include "comm/connection.h"
#include "comm/workers.h"
#include "graph/tensor_bytes.h"
#include "graph/variable_impl.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// A replica without examples does not run, but what it has must not be left out of a sum: the first one that
// runs gets it, in whichever process that is, so that what is added to what does not depend on who holds
// which replica.
void ReplicaVariables::hand_over(VariableImpl& variable, TensorList& parts, ReplicaRange own) const {
  const auto runs = [&](int r) { return layout_.slices[static_cast<size_t>(r)].size > 0; };
  int heir = 0;
  bool all_run = true;
  for (int r = layout_.replicas - 1; r >= 0; --r) {
    if (runs(r)) heir = r;
    all_run = all_run && runs(r);
  }
  if (all_run) return;
  const auto inherit = [&](const Tensor& part) {
    Tensor& held = parts[static_cast<size_t>(heir - own.first)];
    held = held.defined() ? variable.sum_of_parts(held, part) : part;
  };
  comm::MessageWriter given;
  for (int r = own.first; r < own.last; ++r) {
    Tensor& part = parts[static_cast<size_t>(r - own.first)];
    if (runs(r) || !part.defined()) continue;
    if (layout_.workers)
      given.put_text(bytes_of(part));
    else
      inherit(part);
    part = {};
  }
  if (!layout_.workers) return;
  for (const std::string& worker :
       layout_.workers->gather_large("the parts of " + variable.options.name, given.take())) {
    comm::MessageReader reader(worker);
    while (own.contains(heir) && !reader.ended())
      inherit(tensor_of(variable.spec, reader.get_text()).to(*layout_.devices[0]));
  }
}

void ReplicaVariables::spread() const {
  for (const Variable& handle : variables_) {
    VariableImpl& variable = *handle.impl();
    const ReplicaRange own = layout_.own_replicas();
    TensorList& parts = variable.spread(own.size());
    hand_over(variable, parts, own);
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
