#include "distribute/worker_batches.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/connection.h"
#include "comm/workers.h"
#include "data/stages/auto_shard.h"
#include "data/stages/options.h"
#include "execute/replicas.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::distribute {
namespace {

using comm::MessageReader;
using comm::MessageWriter;
using data::AutoShardPolicy;
using data::Dataset;
using data::Element;

// A worker's batches are as large as the dataset says for all of them: each is cut into as many parts as
// there are workers.
Dataset in_parts(const Dataset& dataset, int64_t workers, std::source_location where) {
  return dataset.flat_map(
      [workers, where](const Element& batch) {
        require(!batch.flat().empty() && batch.flat()[0].rank() > 0, ErrorCode::shape_mismatch, where,
                "an element of the dataset is ", batch.spec(),
                ", no batch: add  .batch(global_batch_size)  before it is distributed");
        const int64_t rows = batch.flat()[0].shape()[0];
        return Dataset::from_tensor_slices(batch).batch(std::max<int64_t>(1, (rows + workers - 1) / workers));
      },
      where);
}

void put(MessageWriter& message, const Tensor& array) {
  message.put(static_cast<int32_t>(array.dtype())).put(int32_t{array.rank()});
  for (int i = 0; i < array.rank(); ++i) message.put(array.shape()[i]);
}

// A checksum of the values, which tells batches apart that are not the same. What does not lie in host memory
// in one piece is taken to be like no other's.
uint32_t checksum(const TensorList& arrays, int rank) {
  uint32_t sum = 0;
  for (const Tensor& array : arrays) {
    const TensorImpl& impl = *array.impl();
    const bool readable =
        impl.storage->device().kind() == DeviceKind::cpu && is_contiguous(impl.spec.shape, impl.strides);
    if (!readable) return static_cast<uint32_t>(rank);
    sum = crc32c({static_cast<const char*>(impl.data()), impl.spec.bytes()}, sum);
  }
  return sum;
}

// An array of that kind without rows.
Tensor empty_like(MessageReader& message) {
  const auto dtype = static_cast<DType>(message.get<int32_t>());
  Shape shape;
  for (auto rank = message.get<int32_t>(); rank > 0; --rank) shape.push_back(message.get<int64_t>());
  shape[0] = 0;
  return Tensor::empty(dtype, shape, device_by_name("/CPU:0"));
}

}  // namespace

Tensor rows_of(const Tensor& tensor, int64_t begin, int64_t count) {
  const TensorImpl& impl = *tensor.impl();
  Shape shape = impl.spec.shape;
  shape[0] = count;
  return make_view(impl, {impl.spec.dtype, shape}, impl.strides, impl.offset + begin * impl.strides[0]);
}

WorkerDataset worker_dataset(const Strategy& strategy, const Dataset& dataset, bool keeps_order,
                             std::source_location where) {
  const int64_t count = strategy.num_workers(), index = strategy.worker();
  const AutoShardPolicy policy = data::options_of(*dataset.node()).auto_shard;
  // What a lost worker alone would have read cannot be read again by the others.
  require(!strategy.elastic() || policy == AutoShardPolicy::data || policy == AutoShardPolicy::automatic,
          ErrorCode::unsupported, where, "the dataset's auto_shard policy is ",
          policy == AutoShardPolicy::off ? "OFF" : "FILE",
          ", so that every worker reads a part of its own, and an elastic run would lose a worker's part "
          "with it; "
          "set Options::auto_shard to data, or leave it at automatic");
  if (policy == AutoShardPolicy::off)
    return {in_parts(dataset, count, where), WorkerDataset::Batches::own,
            "not shared: each worker reads all of the data, and every example is seen by each"};
  const bool may_share_files =
      policy == AutoShardPolicy::file ||
      (policy == AutoShardPolicy::automatic && !strategy.options().reproducible && !strategy.elastic());
  std::string reason = policy == AutoShardPolicy::data ? "the policy is DATA"
                       : strategy.elastic()            ? "the run is elastic"
                                                       : "the run is reproducible";
  if (may_share_files && !keeps_order) {
    if (const std::optional<Dataset> sharded = data::shard_by_files(dataset, count, index, reason))
      return {in_parts(*sharded, count, where), WorkerDataset::Batches::own,
              detail::concat("by files: worker ", index, " of ", count, " reads files ", index, ", ",
                             index + count, ", ", index + 2 * count, ", ... of those in order")};
    require(policy != AutoShardPolicy::file, ErrorCode::failed_precondition, where,
            "the files cannot be shared among ", count, " workers: ", reason,
            "; write more files, or set Options::auto_shard to data");
  }
  // Rows of one batch are shared only where it is the same batch at all of them.
  const std::string hazard = data::order_hazard(dataset);
  require(hazard.empty(), ErrorCode::failed_precondition, where, "the batches cannot be shared among ", count,
          " workers by rows: ", hazard,
          ", so that each has them in another order, and some examples would be seen twice and some never; "
          "make the strategy before the dataset, give it a seed, or leave deterministic out");
  strategy.workers()->require_equal(
      "the order of the data (give shuffle a seed, or draw the same random numbers on all workers before it)",
      data::order_seeds(dataset), where);
  return {dataset, WorkerDataset::Batches::global,
          "by rows: every worker reads all batches and keeps its rows of each (" + reason + ")"};
}

data::Explanation with_sharing(data::Explanation explanation, const std::string& sharing) {
  if (!sharing.empty()) explanation.cause += "; the data is shared " + sharing;
  return explanation;
}

bool WorkerBatches::take(TensorList& arrays, std::string& layout, std::vector<int64_t>& worker_rows) {
  comm::Workers& workers = *strategy_.workers();
  const auto rank = static_cast<size_t>(workers.rank());
  const int64_t read = arrays.empty() ? 0 : arrays[0].shape()[0];
  if (batches_ == WorkerDataset::Batches::global) {
    if (arrays.empty()) return false;
    worker_rows = execute::rows_of_workers(
        read, execute::replicas_of_workers(strategy_.num_replicas_in_sync(), workers.size(),
                                           static_cast<int>(strategy_.devices().size())));
    const int64_t begin =
        std::accumulate(worker_rows.begin(), worker_rows.begin() + workers.rank(), int64_t{0});
    for (Tensor& array : arrays) array = rows_of(array, begin, worker_rows[rank]);
    return true;
  }
  const bool compares = compared_ < kCompared;
  MessageWriter own;
  own.put(read).put(compares ? checksum(arrays, workers.rank()) : uint32_t{0});
  own.put_text(layout).put(static_cast<int32_t>(arrays.size()));
  for (const Tensor& array : arrays) put(own, array);
  worker_rows.clear();
  const std::vector<std::string> all = workers.gather("the rows of the next batch", own.take());
  std::map<uint32_t, int> alike;
  for (const std::string& each : all) {
    MessageReader message(each);
    worker_rows.push_back(message.get<int64_t>());
    if (worker_rows.back() > 0) ++alike[message.get<uint32_t>()];
  }
  if (compares && !alike.empty()) {
    int most_alike = 0;
    for (const auto& [sum, count] : alike) most_alike = std::max(most_alike, count);
    same_ = compared_++ == 0 ? most_alike : std::min(same_, most_alike);
  }
  const auto most = std::max_element(worker_rows.begin(), worker_rows.end());
  if (*most == 0) return false;
  if (read > 0) return true;
  MessageReader other(all[static_cast<size_t>(most - worker_rows.begin())]);
  other.get<int64_t>();
  other.get<uint32_t>();
  layout = other.get_text();
  for (auto count = other.get<int32_t>(); count > 0; --count) arrays.push_back(empty_like(other));
  return true;
}

}  // namespace lockstep::distribute
