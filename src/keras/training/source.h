// Where batches come from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/keras/data.h"

namespace lockstep::keras {

struct EpochOptions {
  int64_t batch_size = 32;
  bool shuffle = false;
  // Threads that the step leaves idle; one of them may put the next batch together.
  int free_threads = 0;
};

// One pass over the data.
class BatchReader {
 public:
  virtual ~BatchReader() = default;
  // False where the data has ended. The tensors of the batch may be overwritten by a later call once nobody
  // else holds them.
  virtual bool next(Batch& batch) = 0;
};

class Data::Source {
 public:
  virtual ~Source() = default;
  virtual std::unique_ptr<BatchReader> read(const EpochOptions& options) const = 0;
  // Batches of an epoch; -1: not known.
  virtual int64_t batches(int64_t batch_size) const = 0;
  // The arrays themselves, where the data is arrays in memory.
  virtual const Batch* arrays() const { return nullptr; }
  // Names of the inputs and outputs, where they came by name; in the order of the lists.
  virtual const std::vector<std::string>& x_names() const;
  virtual const std::vector<std::string>& y_names() const;
};

// Arrays with one number of examples. Throws Error(shape_mismatch) naming those that differ.
std::shared_ptr<const Data::Source> array_source(
    Batch arrays, std::vector<std::string> x_names = {}, std::vector<std::string> y_names = {},
    std::source_location where = std::source_location::current());

// All arrays of a batch, undefined ones left out.
template <class F>
void each_array(const Batch& batch, F&& f) {
  for (const TensorList* list : {&batch.x, &batch.y, &batch.sample_weight})
    for (const Tensor& tensor : *list)
      if (tensor.defined()) f(tensor);
}
int64_t examples_in(const Batch& batch);

}  // namespace lockstep::keras
