#include "lockstep/keras/find_batch_size.h"

#include <algorithm>
#include <vector>

#include "keras/training/device_memory.h"
#include "keras/training/trainer.h"
#include "keras/training/unchanged.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {
namespace {

int64_t bytes_of(const std::vector<Variable>& variables) {
  int64_t bytes = 0;
  for (const Variable& variable : variables) bytes += static_cast<int64_t>(variable.spec().bytes());
  return bytes;
}

// `count` rows: those of `tensor`, over and over.
Tensor repeated(const Tensor& tensor, int64_t count) {
  if (!tensor.defined()) return tensor;
  const int64_t rows = tensor.shape()[0];
  Dims from = Dims::filled(tensor.rank(), 0), size = Dims::filled(tensor.rank(), -1);
  size[0] = std::min(rows, count);
  const Tensor head = slice(tensor, from, size);
  if (rows >= count) return head;
  const Tensor whole = concat(TensorList(static_cast<size_t>((count + rows - 1) / rows), head), 0);
  size[0] = count;
  return slice(whole, from, size);
}

Batch repeated(const Batch& arrays, int64_t count) {
  Batch batch;
  const auto fill = [&](const TensorList& from, TensorList& to) {
    for (const Tensor& tensor : from) to.push_back(repeated(tensor, count));
  };
  fill(arrays.x, batch.x);
  fill(arrays.y, batch.y);
  fill(arrays.sample_weight, batch.sample_weight);
  return batch;
}

class Search {
 public:
  Search(const Model& model, const Batch& arrays, const FindBatchSizeOptions& options,
         std::source_location where)
      : model_(model),
        trainer_(model.model_base().trainer()),
        arrays_(arrays),
        options_(options),
        where_(where),
        limit_(options.memory_limit > 0 ? options.memory_limit : memory_of(current_device())) {}

  BatchSizes run() {
    // Makes weights and slots, so that they are counted and kept.
    need(options_.smallest);
    trainer_.build_optimizer();
    const Unchanged unchanged(model_);
    BatchSizes found;
    bool grows = true;
    int64_t before = 0, bytes_before = 0;
    for (int64_t batch = options_.smallest; batch <= options_.most; batch *= 2) {
      // What two sizes needed says what the next one will, before anything of its size is made.
      if (slope_ > 0 && bytes_before + slope_ * (batch - before) > limit_) break;
      const int64_t bytes = need(batch);
      if (before > 0) slope_ = std::max<int64_t>(1, (bytes - bytes_before) / (batch - before));
      if (bytes > limit_) break;
      before = batch;
      bytes_before = bytes;
      if (!grows) continue;
      const double speed = examples_per_second(batch);
      grows = found.table.empty() ||
              speed >= found.table.back().examples_per_second * (1 + options_.least_growth);
      if (grows) found.fastest = batch;
      found.table.push_back({batch, bytes, speed});
    }
    require(before > 0, ErrorCode::failed_precondition, where_, "find_batch_size: a batch of ",
            options_.smallest, " needs ", need(options_.smallest), " bytes, ", limit_, " may be held");
    found.largest = largest_between(before, bytes_before);
    return found;
  }

 private:
  // Bytes that training with batches of this size holds.
  int64_t need(int64_t size) {
    const Batch batch = repeated(arrays_, size);
    const ProgramStatistics statistics =
        trainer_.make_step_functions().statistics(StepKind::train, batch, where_);
    int64_t bytes =
        statistics.arena_bytes + bytes_of(model_.weights()) + bytes_of(model_.optimizer().variables());
    // One is in use while the next is put together.
    each_array(batch,
               [&](const Tensor& tensor) { bytes += 2 * static_cast<int64_t>(tensor.spec().bytes()); });
    return bytes;
  }

  // From a size that fits: up to its double, where the plan of every size that is tried says whether it fits.
  int64_t largest_between(int64_t fits, int64_t bytes) {
    slope_ = std::max<int64_t>(1, slope_);
    int64_t high = std::min(options_.most, fits + (limit_ - bytes) / slope_);
    while (fits < high && need(high) > limit_) {
      // Memory grows in steps here and there: come down by what is too much.
      high = std::max(fits, high - std::max<int64_t>(1, (need(high) - limit_) / slope_));
    }
    return std::max(fits, high);
  }

  double examples_per_second(int64_t size) {
    const Batch batch = repeated(arrays_, size);
    const Clock& clock = Clock::system();
    StepFunctions functions = trainer_.make_step_functions();
    Tensor loss;
    const auto step = [&] { functions.run(StepKind::train, batch, /*eagerly=*/false, loss, where_); };
    for (int i = 0; i < 2; ++i) step();
    const auto budget = static_cast<int64_t>(options_.seconds * 1e9);
    // The best of several readings: others on the machine can only make a step slower.
    double best = 0;
    const int64_t begin = clock.now_ns();
    do {
      const int64_t start = clock.now_ns();
      step();
      best = std::max(best, static_cast<double>(size) * 1e9 /
                                static_cast<double>(std::max<int64_t>(1, clock.now_ns() - start)));
    } while (clock.now_ns() - begin < budget);
    return best;
  }

  const Model& model_;
  Trainer& trainer_;
  const Batch& arrays_;
  FindBatchSizeOptions options_;
  std::source_location where_;
  int64_t limit_;
  int64_t slope_ = 0;  // bytes per example; 0: not known
};

}  // namespace

BatchSizes find_batch_size(const Model& model, const Data& data, const FindBatchSizeOptions& options,
                           std::source_location where) {
  Trainer& trainer = model.model_base().trainer();
  trainer.require_compiled("find_batch_size", where);
  require(options.smallest >= 1 && options.most >= options.smallest, ErrorCode::invalid_argument, where,
          "find_batch_size: smallest must be at least 1 and most at least that, received ", options.smallest,
          " and ", options.most);
  const Data ordered = trainer.in_model_order(data, where);
  const Batch* arrays = ordered.source()->arrays();
  require(arrays != nullptr, ErrorCode::unsupported, where,
          "find_batch_size: needs arrays in memory; a few examples are enough");
  return Search(model, *arrays, options, where).run();
}

}  // namespace lockstep::keras
