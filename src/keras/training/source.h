// Where batches come from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/row_batches.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/explain.h"
#include "lockstep/keras/data.h"

namespace lockstep::keras {

// One pass over the data. Must not outlive its source.
class BatchReader {
 public:
  virtual ~BatchReader() = default;
  // False where the data has ended. The tensors of the batch may be overwritten by a later call once nobody
  // else holds them.
  virtual bool next(Batch& batch) = 0;

  // Batches that next() would give, as rows of arrays on a GPU.
  struct Runs {
    const Batch* arrays = nullptr;  // which of them are x, y and sample_weight
    FunctionCore::RowRuns rows;
  };
  // As data::RowBatches::runs(). Nullopt where batches cannot be had like that.
  virtual std::optional<Runs> runs(int64_t /*most*/) { return {}; }
  // As if next() had given so many batches, or all that are left.
  virtual void skip(int64_t batches) {
    for (Batch skipped; batches > 0 && next(skipped);) --batches;
  }

  // The next batch is the last one once more: of workers that have formed anew, this one's part of it may be
  // another.
  virtual void again() {}

  // The exact position, for a reader of the same source that has given nothing yet. Empty where the number of
  // batches is all that there is to know: skip() then leads there.
  virtual data::IteratorState save() { return {}; }
  virtual void restore(const data::IteratorState& /*state*/) {}
  // Where its time goes, where that is known.
  virtual std::optional<data::Explanation> explain() const { return {}; }
  // So many workers read the same batches; 1: each has its own.
  virtual int same_examples() const { return 1; }
};

// What a model calls its arrays; nothing is known of one that was not built yet.
struct ModelArrays {
  std::vector<std::string> inputs;
  std::vector<Shape> shapes;  // of the inputs
  std::vector<std::string> outputs;
};

class Data::Source {
 public:
  virtual ~Source() = default;
  // The options are for arrays: a dataset has its own.
  virtual std::unique_ptr<BatchReader> read(const data::RowBatchOptions& options) const = 0;
  // Batches of an epoch, kUnknown or kEndless.
  virtual int64_t batches(int64_t batch_size) const = 0;
  static constexpr int64_t kUnknown = -1, kEndless = -2;
  // The arrays themselves, where the data is arrays in memory.
  virtual const Batch* arrays() const { return nullptr; }
  // The specs of the inputs, with -1 for the batch; may read a batch to find out.
  virtual std::vector<TensorSpec> input_specs() const { return {}; }
  // The same with what came by name in the model's order. Null where it is in order as it is.
  virtual std::shared_ptr<const Source> in_order(const ModelArrays& /*model*/,
                                                 std::source_location /*where*/) const {
    return nullptr;
  }
  // The same on another dataset, made of its own. Null where it is none.
  using DatasetChange = std::function<data::Dataset(const data::Dataset&)>;
  virtual std::shared_ptr<const Source> with_dataset(const DatasetChange& /*change*/) const {
    return nullptr;
  }
};

// What the names of data belong to.
enum class NamedPart : uint8_t { input, output, weight };
// As errors call it: "weight of output".
const char* text_of(NamedPart part);

// For each of `wanted` its position in `names`, or kMissing. Throws Error(invalid_argument) for a name that
// is not wanted. Inputs that all are there may have others beside them: they are warned of.
std::vector<size_t> in_order_of(const std::vector<std::string>& wanted, const std::vector<std::string>& names,
                                NamedPart part, std::source_location where);
inline constexpr size_t kMissing = SIZE_MAX;

// All arrays of a batch, undefined ones left out.
template <class F>
void each_array(const Batch& batch, F&& f) {
  for (const TensorList* list : {&batch.x, &batch.y, &batch.sample_weight})
    for (const Tensor& tensor : *list)
      if (tensor.defined()) f(tensor);
}
int64_t examples_in(const Batch& batch);

// Batches of a pass: `told` where that is positive, else what the data has, or kUnknown. Throws
// Error(invalid_argument) that names the caller and its option where the data has no end.
int64_t steps_of(const Data& data, int64_t told, int64_t batch_size, const char* caller, const char* option,
                 std::source_location where);

}  // namespace lockstep::keras
