#include <algorithm>
#include <numeric>

#include "comm/workers.h"
#include "distribute/strategy_impl.h"
#include "distribute/worker_batches.h"
#include "execute/replicas.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"

namespace lockstep::distribute {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size,
                                                 std::source_location where) const {
  require(global_batch_size % num_replicas_in_sync == 0, ErrorCode::invalid_argument, where,
          "a global batch of ", global_batch_size, " cannot be divided evenly among ", num_replicas_in_sync,
          " replicas");
  return global_batch_size / num_replicas_in_sync;
}

Distributed Strategy::distribute(const Tensor& batch, std::source_location where) const {
  require(batch.defined() && batch.rank() > 0, ErrorCode::shape_mismatch, where,
          "a batch has a first dimension that runs over the examples, received ",
          batch.defined() ? "a scalar: the dataset is not batched, add  .batch(global_batch_size)" : "none");
  const int64_t rows = batch.shape()[0];
  if (impl_->workers) {
    const std::vector<execute::ReplicaRange> ranges = execute::replicas_of_workers(
        num_replicas_in_sync(), num_workers(), static_cast<int>(devices().size()));
    std::vector<int64_t> worker_rows = execute::rows_of_workers(rows, ranges);
    const int64_t begin = std::accumulate(worker_rows.begin(), worker_rows.begin() + worker(), int64_t{0});
    return distribute_own(rows_of(batch, begin, worker_rows[static_cast<size_t>(worker())]), worker_rows);
  }
  const std::vector<execute::Slice> slices = impl_->options.weights.empty()
                                                 ? execute::slice_batch(rows, num_replicas_in_sync())
                                                 : execute::slice_batch(rows, impl_->options.weights);
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : slices) sizes.push_back(slice.size);
  return Distributed::rows(batch, std::move(sizes));
}

Distributed Strategy::distribute_own(const Tensor& own, const std::vector<int64_t>& worker_rows) const {
  const std::vector<execute::ReplicaRange> ranges =
      execute::replicas_of_workers(num_replicas_in_sync(), num_workers(), static_cast<int>(devices().size()));
  const std::vector<execute::Slice> slices = execute::slice_rows(worker_rows, ranges);
  const execute::ReplicaRange range = ranges[static_cast<size_t>(worker())];
  std::vector<int64_t> sizes;
  for (int r = range.first; r < range.last; ++r) sizes.push_back(slices[static_cast<size_t>(r)].size);
  return Distributed::rows(own, std::move(sizes), worker_rows);
}

DistributedElement Strategy::distribute(const data::Element& batch, std::source_location where) const {
  DistributedElement element{batch.structure(), {}};
  for (const Tensor& tensor : batch.flat()) element.flat.push_back(distribute(tensor, where));
  return element;
}

const Distributed& DistributedElement::operator[](Located<int64_t> position) const {
  require(position.value >= 0 && position.value < static_cast<int64_t>(flat.size()),
          ErrorCode::invalid_argument, position.where, "a batch of ", flat.size(), " tensors has no number ",
          position.value);
  return flat[static_cast<size_t>(position.value)];
}

DistributedDataset::DistributedDataset(const Strategy& strategy, data::Dataset dataset, bool own_batches,
                                       std::string sharing)
    : strategy_(std::make_shared<const Strategy>(strategy)),
      dataset_(std::move(dataset)),
      own_batches_(own_batches),
      sharing_(std::move(sharing)) {}

data::Explanation DistributedDataset::explain(const data::ExplainOptions& options,
                                              std::source_location where) const {
  return with_sharing(data::explain(dataset_, options, where), sharing_);
}

DistributedDataset Strategy::distribute_dataset(const data::Dataset& dataset,
                                                std::source_location where) const {
  require(dataset.defined(), ErrorCode::invalid_argument, where, "distribute_dataset: there is no dataset");
  if (!impl_->workers) return {*this, dataset};
  impl_->workers->require_equal("the number of batches of the dataset", std::to_string(dataset.cardinality()),
                                where);
  const WorkerDataset own = worker_dataset(*this, dataset, false, where);
  return {*this, own.dataset, own.batches == WorkerDataset::Batches::own, own.description};
}

DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<data::Dataset(const InputContext&)>& make, std::source_location where) const {
  require(
      !elastic(), ErrorCode::unsupported, where,
      "distribute_datasets_from_function: every worker would read a dataset of its own, and an elastic run "
      "would lose it with the worker; use distribute_dataset(), whose batches all workers have");
  const InputContext context{.num_input_pipelines = num_workers(),
                             .input_pipeline_id = worker(),
                             .num_replicas_in_sync = num_replicas_in_sync()};
  const data::Dataset local = make(context);
  require(local.defined(), ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the function returned no dataset");
  // A replica's batches, one for each replica of this process, are its part of a global one.
  const auto size = local.element_spec(where).tensors;
  require(!size.empty() && size[0].shape.rank() > 0, ErrorCode::shape_mismatch, where,
          "distribute_datasets_from_function: the dataset is not batched; add  "
          ".batch(context.get_per_replica_batch_size(global_batch_size))");
  const int64_t each = size[0].shape[0];
  const execute::ReplicaRange own = execute::replicas_of_workers(
      num_replicas_in_sync(), num_workers(),
      std::max(1, static_cast<int>(devices().size())))[static_cast<size_t>(worker())];
  const std::string sharing =
      impl_->workers ? "by the program: every worker reads the dataset that the function makes for it" : "";
  if (own.size() == 1) return {*this, local, impl_->workers != nullptr, sharing};
  require(each > 0, ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the size of a batch must be known; batch with drop_remainder");
  return {*this, local.rebatch(each * own.size(), false, where), impl_->workers != nullptr, sharing};
}

DistributedDataset::iterator& DistributedDataset::iterator::operator++() {
  batch_ = {};
  goes_on_ = iterator_->next(batch_);
  cut();
  return *this;
}

void DistributedDataset::iterator::cut() {
  if (!strategy_->workers()) {
    if (goes_on_) element_ = strategy_->distribute(batch_);
    return;
  }
  TensorList arrays = batch_.defined() ? batch_.flat() : TensorList();
  std::string layout;
  std::vector<int64_t> worker_rows;
  if (!parts_)
    parts_ = std::make_shared<WorkerBatches>(
        *strategy_, own_batches_ ? WorkerDataset::Batches::own : WorkerDataset::Batches::global);
  goes_on_ = parts_->take(arrays, layout, worker_rows);
  strategy_->note_same_examples(parts_->same_examples());
  if (!goes_on_) return;
  // A worker that never had a batch knows their structure from the dataset.
  if (batch_.defined())
    structure_ = batch_.structure();
  else if (!structure_)
    structure_ = dataset_.element_spec().structure;
  element_ = {*structure_, {}};
  for (const Tensor& array : arrays) element_.flat.push_back(strategy_->distribute_own(array, worker_rows));
}

}  // namespace lockstep::distribute
