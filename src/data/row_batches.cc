#include "data/row_batches.h"

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "base/worker.h"
#include "data/adaptive_prefetch.h"
#include "data/row_gather.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"
#include "ops/random/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// A smaller batch is not worth waking a thread for.
constexpr int64_t kPrefetchBytes = int64_t{64} << 10;

bool on_gpu(const TensorList& arrays) { return arrays[0].device().kind() == DeviceKind::gpu; }

class RowsInOrder final : public RowBatches {
 public:
  RowsInOrder(const TensorList& arrays, int64_t batch_size) : RowBatches(arrays, batch_size) {}

  bool next(TensorList& batch) override {
    const int64_t size = next_size();
    if (size <= 0) return false;
    batch.resize(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const TensorImpl& array = *arrays_[i].impl();
      Shape shape = array.spec.shape;
      shape[0] = size;
      batch[i] =
          make_view(array, {array.spec.dtype, shape}, array.strides, array.offset + at_ * array.strides[0]);
    }
    at_ += size;
    return true;
  }
};

class ShuffledRowsOnHost final : public RowBatches {
 public:
  ShuffledRowsOnHost(const TensorList& arrays, const RowBatchOptions& options)
      : RowBatches(arrays, options.batch_size),
        threads_(options.threads),
        adaptive_(options.adaptive_prefetch),
        order_(random_permutation(random::default_generator().advance(), rows_)) {
    int64_t bytes = 0;
    for (const Tensor& array : arrays_) bytes += static_cast<int64_t>(array.spec().bytes());
    const bool large = bytes / rows_ * batch_size_ >= kPrefetchBytes;
    // Of two batches or fewer none is worth prefetching.
    may_prefetch_ = options.free_threads > 0 && large && rows_ > 2 * batch_size_;
  }
  ~ShuffledRowsOnHost() override {
    if (worker_) worker_->wait();
  }

  bool next(TensorList& batch) override {
    const bool prefetch = may_prefetch_ && (!adaptive_ || adaptive_->prefetches_next(now_ns()));
    if (!prefetched_) {
      if (!claim(batch)) return false;
      gather_.copy(threads_);
    } else {
      if (!*prefetched_) return false;
      // A worker that has no core yet is not waited for.
      if (!taken_.exchange(true, std::memory_order_acq_rel))
        gather_.copy(threads_);
      else
        worker_->wait();
      std::swap(batch, next_);
    }
    prefetched_.reset();
    if (prefetch) start_prefetch();
    return true;
  }

  void skip(int64_t batches) override {
    if (prefetched_.value_or(false)) {
      if (taken_.exchange(true, std::memory_order_acq_rel)) worker_->wait();
      at_ -= static_cast<int64_t>(numbers_.size());
    }
    prefetched_.reset();
    RowBatches::skip(batches);
  }

 private:
  bool claim(TensorList& batch) {
    const int64_t size = next_size();
    if (size == 0) return false;
    numbers_.resize(static_cast<size_t>(size));
    for (int64_t& number : numbers_) number = order_(at_++);
    gather_.claim(arrays_, numbers_, batch);
    return true;
  }

  // Memory is claimed on the thread that knows the device; the worker only copies.
  void start_prefetch() {
    prefetched_ = claim(next_);
    if (!*prefetched_) return;
    if (!worker_) worker_.emplace(Waiting::spins_first);
    taken_.store(false, std::memory_order_release);
    // A worker that has not come to its last task yet finds this one.
    if (!idle_.load(std::memory_order_acquire)) return;
    worker_->wait();
    idle_.store(false, std::memory_order_relaxed);
    worker_->start([](void* self) { static_cast<ShuffledRowsOnHost*>(self)->work(); }, this);
  }
  void work() {
    if (!taken_.exchange(true, std::memory_order_acq_rel)) gather_.copy(1);
    idle_.store(true, std::memory_order_release);
  }

  static int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  int threads_;
  bool may_prefetch_ = false;
  std::shared_ptr<AdaptivePrefetch> adaptive_;
  TabledPermutation order_;
  std::vector<int64_t> numbers_;  // of the rows that are claimed
  RowGather gather_;
  TensorList next_;                 // the batch that is prefetched
  std::atomic<bool> taken_{true};   // somebody copies it, or has
  std::atomic<bool> idle_{true};    // the worker has ended its last task
  std::optional<bool> prefetched_;  // whether there is such a batch; nullopt where none was claimed
  std::optional<Worker> worker_;
};

// The GPU gathers the rows itself: they never leave it.
class ShuffledRowsOnGpu final : public RowBatches {
 public:
  ShuffledRowsOnGpu(const TensorList& arrays, int64_t batch_size)
      : RowBatches(arrays, batch_size), device_(arrays_[0].device()) {
    const DeviceScope scope(device_);
    order_ = random::permutation(rows_);
  }

  bool next(TensorList& batch) override {
    const int64_t size = next_size();
    if (size <= 0) return false;
    const Tensor numbers = make_view(*order_.impl(), {DType::int64, {size}}, order_.impl()->strides, at_);
    at_ += size;
    const DeviceScope scope(device_);
    batch.resize(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) batch[i] = gather(arrays_[i], numbers);
    return true;
  }

 private:
  Tensor order() const override { return order_; }

  Device& device_;
  Tensor order_;
};

}  // namespace

RowBatches::RowBatches(const TensorList& arrays, int64_t batch_size)
    : arrays_(arrays), rows_(arrays[0].shape()[0]), batch_size_(batch_size) {}

std::optional<FunctionCore::RowRuns> RowBatches::runs(int64_t most) const {
  const int64_t left = rows_ - at_;
  if (left <= 0 || most <= 0 || !on_gpu(arrays_)) return std::nullopt;
  const bool whole = left >= batch_size_;
  return FunctionCore::RowRuns{.arrays = arrays_,
                               .order = order(),
                               .first = at_,
                               .rows = whole ? batch_size_ : left,
                               .runs = whole ? std::min(most, left / batch_size_) : 1};
}

std::unique_ptr<RowBatches> RowBatches::open(const TensorList& arrays, const RowBatchOptions& options) {
  if (!options.shuffle) return std::make_unique<RowsInOrder>(arrays, options.batch_size);
  if (on_gpu(arrays)) return std::make_unique<ShuffledRowsOnGpu>(arrays, options.batch_size);
  return std::make_unique<ShuffledRowsOnHost>(arrays, options);
}

}  // namespace lockstep::data
