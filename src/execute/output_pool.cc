#include "execute/output_pool.h"

namespace lockstep::execute {

ReplicatedOutputs::ReplicatedOutputs(const std::vector<PlannedOutput>& outputs, const ReplicaLayout& layout)
    : outputs_(outputs),
      layout_(layout),
      pools_(outputs.size()),
      data_(outputs.size()),
      unread_(layout.devices.size()),
      own_(layout.own_replicas()),
      own_rows_(layout.replicated() ? layout.own_rows() : Slice()) {
  for (const PlannedOutput& output : outputs) {
    TensorSpec spec = output.spec;
    if (output.per_replica) spec.shape[0] = own_rows_.size;
    if (output.stacked) spec.shape.insert(0, own_.size());
    specs_.push_back(spec);
  }
  for (auto& of_device : unread_) of_device.resize(outputs.size());
}

void ReplicatedOutputs::take(std::span<Tensor> outputs) {
  for (size_t k = 0; k < outputs_.size(); ++k) {
    outputs[k] = Tensor();
    outputs[k] = pools_[k].take(specs_[k], *layout_.devices[0]);
    data_[k] = static_cast<char*>(outputs[k].impl()->data());
  }
}

void* ReplicatedOutputs::of_device(int d, size_t plan, size_t k) {
  return (plan == 0 && d == 0) || outputs_[k].stacked ? data_[k] : unread(d, k);
}

void* ReplicatedOutputs::of_replica(int d, size_t plan, int replica, size_t k) {
  if (outputs_[k].stacked)
    return data_[k] + static_cast<size_t>(replica - own_.first) * outputs_[k].spec.bytes();
  if (!outputs_[k].per_replica) return of_device(d, plan, k);
  const size_t row = specs_[k].shape[0] > 0 ? specs_[k].bytes() / static_cast<size_t>(specs_[k].shape[0]) : 0;
  const int64_t begin = layout_.slices[static_cast<size_t>(replica)].begin - own_rows_.begin;
  return data_[k] + static_cast<size_t>(begin) * row;
}

void* ReplicatedOutputs::unread(int d, size_t k) {
  auto& storage = unread_[static_cast<size_t>(d)][k];
  if (!storage)
    storage = std::make_unique<Storage>(*layout_.devices[static_cast<size_t>(d)], outputs_[k].spec.bytes(),
                                        std::source_location::current());
  return storage->data();
}

}  // namespace lockstep::execute
