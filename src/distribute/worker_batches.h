// How global batches come to the workers of a run.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/explain.h"
#include "lockstep/distribute/strategy.h"

namespace lockstep::distribute {

// What a worker reads of a dataset whose batches are global, as the dataset's auto_shard policy says.
struct WorkerDataset {
  // Batches are global ones, which every worker reads and takes its rows of (DATA); or this worker's own
  // parts of them, of which some may have more than others (FILE, OFF).
  enum class Batches : bool { global, own };

  data::Dataset dataset;
  Batches batches = Batches::global;
  std::string description;  // who reads what: "by files: worker 1 of 4 reads files 1, 5, 9, ..."
};
// What this worker reads of `dataset` under a strategy of several workers. `keeps_order`: results come in the
// order of the data, so that it is not shared by files.
WorkerDataset worker_dataset(const Strategy& strategy, const data::Dataset& dataset, bool keeps_order,
                             std::source_location where);

// Where `sharing`, a WorkerDataset's description, is not empty: the explanation with who reads what.
data::Explanation with_sharing(data::Explanation explanation, const std::string& sharing);

// Makes this worker's parts of what it has read.
class WorkerBatches {
 public:
  // The strategy has several workers, and outlives this.
  WorkerBatches(const Strategy& strategy, WorkerDataset::Batches batches)
      : strategy_(strategy), batches_(batches) {}

  // `arrays`: of a batch that this worker has read, empty where its data has ended; becomes its part of the
  // global batch, without rows where only others have some. `layout` says what the arrays are, and becomes
  // another worker's where this one has none. False where the data of all has ended.
  bool take(TensorList& arrays, std::string& layout, std::vector<int64_t>& worker_rows);

  // So many workers have read the same batches, as far as the first ones show: 1 where each has its own.
  int same_examples() const { return compared_ == kCompared ? same_ : 1; }

 private:
  static constexpr int kCompared = 4;  // batches

  const Strategy& strategy_;
  const WorkerDataset::Batches batches_;
  int compared_ = 0;
  int same_ = 0;
};

// Rows [begin, begin + count) of a tensor: a view.
Tensor rows_of(const Tensor& tensor, int64_t begin, int64_t count);

}  // namespace lockstep::distribute
