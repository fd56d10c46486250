// One pass over arrays in memory, batch after batch: what fit, evaluate and predict read arrays with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/execute/function.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

class AdaptivePrefetch;

struct RowBatchOptions {
  int64_t batch_size = 32;
  // In the order of random::permutation, on every kind of device: it follows from the state of the default
  // generator, which a pass advances once.
  bool shuffle = false;
  // Threads that gather a batch, and cores that they leave idle: one of those may prefetch the next batch.
  int threads = 1;
  int free_threads = 0;
  // Finds out whether prefetching pays, over all passes that are given the same one. Null: it always does.
  std::shared_ptr<AdaptivePrefetch> adaptive_prefetch = nullptr;
};

// Used by one thread at a time.
class RowBatches {
 public:
  // The arrays agree in their first dimension, which is not 0, are contiguous, and lie in host memory or on
  // one GPU.
  static std::unique_ptr<RowBatches> open(const TensorList& arrays, const RowBatchOptions& options);
  virtual ~RowBatches() = default;
  RowBatches(const RowBatches&) = delete;
  RowBatches& operator=(const RowBatches&) = delete;

  // False where the rows have ended. The batch is where the arrays are: views of them where it is in order,
  // else a copy, into the memory of the tensors in `batch` where nobody else holds those. After the first
  // calls that allocates nothing in host memory.
  virtual bool next(TensorList& batch) = 0;

  // The next batches of one size without taking them, at most `most`: whole ones, or what is left behind
  // those. The arrays are this object's. Nullopt where nothing is left, and where the arrays are not on a
  // GPU.
  std::optional<FunctionCore::RowRuns> runs(int64_t most) const;
  // As if next() had given so many batches. Copies nothing.
  virtual void skip(int64_t batches) { at_ = std::min(rows_, at_ + batches * batch_size_); }

 protected:
  RowBatches(const TensorList& arrays, int64_t batch_size);
  // The order of the rows, on the arrays' GPU; undefined: as they lie.
  virtual Tensor order() const { return {}; }
  int64_t next_size() const { return std::min(batch_size_, rows_ - at_); }

  const TensorList arrays_;
  const int64_t rows_;
  const int64_t batch_size_;
  int64_t at_ = 0;  // rows that were given
};

}  // namespace lockstep::data
