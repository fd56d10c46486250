#include "execute/replicas.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/device_backend.h"

namespace lockstep::execute {

std::vector<Slice> slice_batch(int64_t batch, int replicas) {
  const int64_t share = (batch + replicas - 1) / replicas;
  std::vector<Slice> slices;
  for (int64_t r = 0; r < replicas; ++r) {
    const int64_t begin = std::min(batch, r * share);
    slices.push_back({begin, std::min(batch, begin + share) - begin});
  }
  return slices;
}

std::vector<Slice> slice_batch(int64_t batch, const std::vector<double>& weights) {
  const int replicas = static_cast<int>(weights.size());
  if (batch <= replicas) return slice_batch(batch, replicas);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> sizes;
  int64_t given = 0;
  for (double part = 0; const double weight : weights) {
    part += weight;
    sizes.push_back(std::llround(static_cast<double>(batch) * part / total) - given);
    given += sizes.back();
  }
  // Empty slices come last, and here there are enough examples for all.
  for (int64_t& size : sizes)
    if (size == 0) {
      --*std::max_element(sizes.begin(), sizes.end());
      size = 1;
    }
  std::vector<Slice> slices;
  for (int64_t begin = 0; const int64_t size : sizes) {
    slices.push_back({begin, size});
    begin += size;
  }
  return slices;
}

ReplicaRange ReplicaLayout::replicas_of(int d) const {
  const int count = static_cast<int>(devices.size());
  const int share = replicas / count;
  const int larger = replicas % count;
  const int first = d * share + std::min(d, larger);
  return {first, first + share + (d < larger ? 1 : 0)};
}

ReplicaRange ReplicaLayout::replicas_with_examples(int d) const {
  ReplicaRange range = replicas_of(d);
  while (replicated() && range.size() > 0 && slices[static_cast<size_t>(range.last) - 1].size == 0)
    --range.last;
  return range;
}

bool ReplicaLayout::shares_gpu() const {
  for (const Device* a : devices)
    for (const Device* b : devices)
      if (a != b && a->kind() == DeviceKind::gpu && b->kind() == DeviceKind::gpu &&
          backend_of(*a).physical() == backend_of(*b).physical())
        return true;
  return false;
}

compile::PlanOptions plan_options(const ReplicaLayout& layout, int d) {
  Device& device = *layout.devices[static_cast<size_t>(d)];
  compile::PlanOptions options;
  options.kind = device.kind();
  options.device = &device;
  if (layout.replicated()) options.split_parameters = layout.split_parameters;
  options.device_threads = device.threads();
  options.replica_threads = layout.reproducible ? 1 : device.threads();
  options.reproducible = layout.reproducible;
  return options;
}

}  // namespace lockstep::execute
