// Where batches come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/explain.h"
#include "lockstep/keras/data.h"

namespace lockstep::keras {

struct EpochOptions {
  int64_t batch_size = 32;
  bool shuffle = false;
  // Threads of the device, which put a batch together, and those that it leaves idle: one of them may have the
  // next batch ready before it is asked for.
  int threads = 1;
  int free_threads = 0;
};

// One pass over the data.
class BatchReader {
 public:
  virtual ~BatchReader() = default;
  // False where the data has ended. The tensors of the batch may be overwritten by a later call once nobody
  // else holds them.
  virtual bool next(Batch& batch) = 0;

  // Batches of one size that next() would give, as rows of arrays on a GPU.
  struct Rows {
    const Batch* arrays = nullptr;
    Tensor order;  // the numbers of the rows, there as well; undefined: as they lie
    int64_t first = 0;
    int64_t batch_size = 0;
    int64_t batches = 0;
  };
  // At most `most` of them: whole ones, or what is left after those. None where they cannot be had like that, or where
  // nothing is left.
  virtual std::optional<Rows> as_rows(int64_t /*most*/) { return {}; }
  // As if next() had given so many of these.
  virtual void skip(int64_t /*batches*/) {}

  // The exact position, for a reader of the same source that has given nothing yet. Empty where there is no other way
  // than to read up to it.
  virtual data::IteratorState save() { return {}; }
  virtual void restore(const data::IteratorState& /*state*/) {}
  // Where its time goes, where that is known.
  virtual std::optional<data::Explanation> explain() const { return {}; }
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
  virtual std::unique_ptr<BatchReader> read(const EpochOptions& options) const = 0;
  // Batches of an epoch, kUnknown or kEndless.
  virtual int64_t batches(int64_t batch_size) const = 0;
  static constexpr int64_t kUnknown = -1, kEndless = -2;
  // The arrays themselves, where the data is arrays in memory.
  virtual const Batch* arrays() const { return nullptr; }
  // Of the inputs, -1 for the batch; may look at a batch.
  virtual std::vector<TensorSpec> input_specs() const { return {}; }
  // The same with what came by name in the model's order. None where it is in order as it is.
  virtual std::shared_ptr<const Source> in_order(const ModelArrays& model, std::source_location where) const;
};

// Arrays with one number of examples. Throws Error(shape_mismatch) naming those that differ.
std::shared_ptr<const Data::Source> array_source(
    Batch arrays, std::vector<std::string> x_names = {}, std::vector<std::string> y_names = {},
    std::source_location where = std::source_location::current());

// For each of `wanted` its position in `names`, or kMissing. Throws Error(invalid_argument) for a name that is not
// wanted; `what` it names.
std::vector<size_t> in_order_of(const std::vector<std::string>& wanted, const std::vector<std::string>& names,
                                const char* what, std::source_location where);
inline constexpr size_t kMissing = SIZE_MAX;

// All arrays of a batch, undefined ones left out.
template <class F>
void each_array(const Batch& batch, F&& f) {
  for (const TensorList* list : {&batch.x, &batch.y, &batch.sample_weight})
    for (const Tensor& tensor : *list)
      if (tensor.defined()) f(tensor);
}
int64_t examples_in(const Batch& batch);

// Arrays in host memory that fit on the GPU where the caller's ops run, copied there; others as they are.
Data on_device(const Data& data);

}  // namespace lockstep::keras
