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

namespace {

// Part `index` of `count` of all replicas.
ReplicaRange even_part(int replicas, int index, int count) {
  const int share = replicas / count;
  const int larger = replicas % count;
  const int first = index * share + std::min(index, larger);
  return {first, first + share + (index < larger ? 1 : 0)};
}

}  // namespace

std::vector<ReplicaRange> replicas_of_workers(int replicas, int workers, int devices) {
  std::vector<ReplicaRange> ranges;
  for (int w = 0; w < workers; ++w)
    ranges.push_back({even_part(replicas, w * devices, workers * devices).first,
                      even_part(replicas, (w + 1) * devices - 1, workers * devices).last});
  return ranges;
}

std::vector<int64_t> rows_of_workers(int64_t batch, const std::vector<ReplicaRange>& workers) {
  const std::vector<Slice> slices = slice_batch(batch, workers.back().last);
  std::vector<int64_t> rows;
  for (const ReplicaRange& range : workers) {
    int64_t own = 0;
    for (int r = range.first; r < range.last; ++r) own += slices[static_cast<size_t>(r)].size;
    rows.push_back(own);
  }
  return rows;
}

std::vector<Slice> slice_rows(const std::vector<int64_t>& rows, const std::vector<ReplicaRange>& workers) {
  const int64_t batch = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  if (rows == rows_of_workers(batch, workers)) return slice_batch(batch, workers.back().last);
  std::vector<Slice> slices;
  int64_t begin = 0;
  for (size_t w = 0; w < rows.size(); ++w) {
    for (const Slice& slice : slice_batch(rows[w], workers[w].size()))
      slices.push_back({begin + slice.begin, slice.size});
    begin += rows[w];
  }
  return slices;
}

ReplicaRange ReplicaLayout::replicas_of(int of_worker, int d) const {
  const int count = static_cast<int>(devices.size());
  return even_part(replicas, of_worker * count + d, num_workers * count);
}

ReplicaRange ReplicaLayout::own_replicas() const {
  return {replicas_of(0).first, replicas_of(static_cast<int>(devices.size()) - 1).last};
}

Slice ReplicaLayout::own_rows() const {
  const ReplicaRange own = own_replicas();
  const Slice &first = slices[static_cast<size_t>(own.first)],
              &last = slices[static_cast<size_t>(own.last) - 1];
  return {first.begin, last.begin + last.size - first.begin};
}

ReplicaRange ReplicaLayout::with_examples(ReplicaRange range) const {
  while (replicated() && range.size() > 0 && slices[static_cast<size_t>(range.last) - 1].size == 0)
    --range.last;
  return range;
}

ReplicaRange ReplicaLayout::replicas_with_examples(int d) const { return with_examples(replicas_of(d)); }

bool ReplicaLayout::shares_gpu() const {
  std::vector<int> gpus;
  for (const Device* device : devices)
    if (const int gpu = backend_of(*device).physical(); gpu >= 0) gpus.push_back(gpu);
  std::sort(gpus.begin(), gpus.end());
  return std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end();
}

compile::PlanOptions plan_options(const ReplicaLayout& layout, int d) {
  Device& device = *layout.devices[static_cast<size_t>(d)];
  compile::PlanOptions options = compile::PlanOptions::on(device.kind(), &device, device.threads());
  if (layout.replicated()) options.split_parameters = layout.split_parameters;
  if (layout.reproducible) options.replica_threads = 1;
  options.reproducible = layout.reproducible;
  return options;
}

}  // namespace lockstep::execute
