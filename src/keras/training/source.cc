#include "keras/training/source.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/worker.h"
#include "data/copy_rows.h"
#include "data/host.h"
#include "device/gpu_driver.h"
#include "graph/eager.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/datasets.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"
#include "ops/random/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

// Less than this is not worth waking a thread for, or giving to one more of a team.
constexpr int64_t kPrefetchBytes = int64_t{64} << 10;
constexpr size_t kThreadBytes = size_t{16} << 10;
// What data may take of a GPU: a part of the memory that is left, and no more than is copied in about a second.
constexpr int64_t kShareOfGpu = 4, kMostOnGpu = int64_t{4} << 30;

// One batch of rows from anywhere in the arrays: claim() says which and finds memory, copy() fetches them.
class Gathering {
 public:
  // Into `batch` where nobody else holds its tensors and they fit, else into new ones.
  void claim(const Batch& arrays, std::span<const int64_t> rows, Batch& batch) {
    copies_.clear();
    rows_ = rows;
    claim(arrays.x, batch.x);
    claim(arrays.y, batch.y);
    claim(arrays.sample_weight, batch.sample_weight);
  }
  // Does not throw, and touches nothing but the memory that was claimed.
  void copy(int threads) const {
    for (const Copy& copy : copies_) {
      const auto rows_per_thread =
          static_cast<int64_t>(kThreadBytes / std::max<size_t>(1, copy.row_bytes) + 1);
      parallel_for(static_cast<int64_t>(rows_.size()), rows_per_thread, threads,
                   [&](int64_t begin, int64_t end) {
                     const auto row = [&](size_t i) {
                       return copy.source + static_cast<size_t>(rows_[i]) * copy.row_bytes;
                     };
                     data::copy_rows(row, copy.row_bytes, static_cast<size_t>(begin),
                                     static_cast<size_t>(end), copy.target);
                   });
    }
  }

 private:
  struct Copy {
    const char* source;
    char* target;
    size_t row_bytes;
  };

  void claim(const TensorList& from, TensorList& to) {
    to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      if (!from[i].defined()) continue;
      Shape shape = from[i].shape();
      shape[0] = static_cast<int64_t>(rows_.size());
      const TensorSpec spec{from[i].dtype(), shape};
      if (!to[i].defined() || !(to[i].spec() == spec) || !sole_owner(to[i]))
        to[i] = Tensor::empty(spec.dtype, spec.shape, data::host_device());
      copies_.push_back({static_cast<const char*>(from[i].impl()->data()),
                         static_cast<char*>(to[i].impl()->data()), spec.bytes() / rows_.size()});
    }
  }

  std::vector<Copy> copies_;
  std::span<const int64_t> rows_;
};

// The order is that of random::permutation, on every kind of device.
class ShuffledReader final : public BatchReader {
 public:
  ShuffledReader(const Batch& arrays, const EpochOptions& options)
      : arrays_(arrays),
        batch_size_(options.batch_size),
        threads_(options.threads),
        examples_(examples_in(arrays)),
        order_(random_permutation(random::default_generator().advance(), examples_)) {
    int64_t bytes = 0;
    each_array(arrays, [&](const Tensor& tensor) { bytes += static_cast<int64_t>(tensor.spec().bytes()); });
    const bool large = bytes / examples_ * batch_size_ >= kPrefetchBytes;
    // Two batches or fewer: nothing to be ahead of.
    if (options.free_threads > 0 && large && examples_ > 2 * batch_size_)
      worker_.emplace(Waiting::spins_first);
  }
  ~ShuffledReader() override {
    if (worker_) worker_->wait();
  }

  bool next(Batch& batch) override {
    if (!worker_) {
      if (!claim(batch)) return false;
      gathering_.copy(threads_);
      return true;
    }
    if (!ahead_) claim_ahead();
    if (!*ahead_) return false;
    // A worker that has no core yet is not waited for.
    if (!taken_.exchange(true, std::memory_order_acq_rel))
      gathering_.copy(threads_);
    else
      worker_->wait();
    std::swap(batch, next_);
    claim_ahead();
    return true;
  }

 private:
  bool claim(Batch& batch) {
    const int64_t size = std::min(batch_size_, examples_ - at_);
    if (size == 0) return false;
    rows_.resize(static_cast<size_t>(size));
    for (int64_t& row : rows_) row = order_(at_++);
    gathering_.claim(arrays_, rows_, batch);
    return true;
  }

  // Memory is claimed on the thread that knows the device; the worker only copies.
  void claim_ahead() {
    ahead_ = claim(next_);
    if (!*ahead_) return;
    taken_.store(false, std::memory_order_release);
    // One that has not come to its last task yet finds this one.
    if (!idle_.load(std::memory_order_acquire)) return;
    worker_->wait();
    idle_.store(false, std::memory_order_relaxed);
    worker_->start([](void* reader) { static_cast<ShuffledReader*>(reader)->work(); }, this);
  }
  void work() {
    if (!taken_.exchange(true, std::memory_order_acq_rel)) gathering_.copy(1);
    idle_.store(true, std::memory_order_release);
  }

  const Batch& arrays_;
  int64_t batch_size_;
  int threads_;
  int64_t examples_;
  TabledPermutation order_;
  int64_t at_ = 0;
  std::vector<int64_t> rows_;  // of the batch that is claimed
  Gathering gathering_;
  Batch next_;                     // what is claimed ahead
  std::atomic<bool> taken_{true};  // somebody copies it, or has
  std::atomic<bool> idle_{true};   // the worker has ended its last task
  std::optional<bool> ahead_;      // whether there is such a batch; none before the first
  std::optional<Worker> worker_;
};

// BatchReader::as_rows of arrays on a GPU, from `at` on.
std::optional<BatchReader::Rows> rows_from(const Batch& arrays, const Tensor& order, int64_t at,
                                           int64_t batch_size, int64_t most) {
  const int64_t left = examples_in(arrays) - at;
  if (left <= 0 || most <= 0) return std::nullopt;
  if (left < batch_size) return BatchReader::Rows{&arrays, order, at, left, 1};
  return BatchReader::Rows{&arrays, order, at, batch_size, std::min(most, left / batch_size)};
}

// Of arrays on a GPU, which gathers the rows itself: they never leave it.
class GpuShuffledReader final : public BatchReader {
 public:
  GpuShuffledReader(const Batch& arrays, int64_t batch_size)
      : arrays_(arrays), device_(arrays.x[0].device()), batch_size_(batch_size) {
    const DeviceScope scope(device_);
    order_ = random::permutation(examples_in(arrays));
  }

  bool next(Batch& batch) override {
    const int64_t size = std::min(batch_size_, order_.size() - at_);
    if (size <= 0) return false;
    const Tensor rows = make_view(*order_.impl(), {DType::int64, {size}}, order_.impl()->strides, at_);
    at_ += size;
    const DeviceScope scope(device_);
    const auto taken = [&](const TensorList& from) {
      TensorList to;
      for (const Tensor& array : from) to.push_back(array.defined() ? gather(array, rows) : Tensor());
      return to;
    };
    batch = {taken(arrays_.x), taken(arrays_.y), taken(arrays_.sample_weight)};
    return true;
  }

  std::optional<Rows> as_rows(int64_t most) override {
    return rows_from(arrays_, order_, at_, batch_size_, most);
  }
  void skip(int64_t batches) override { at_ += batches * batch_size_; }

 private:
  const Batch& arrays_;
  Device& device_;
  int64_t batch_size_;
  Tensor order_;  // on the GPU
  int64_t at_ = 0;
};

// Slices are views: nothing is copied.
class OrderedReader final : public BatchReader {
 public:
  OrderedReader(const Batch& arrays, int64_t batch_size)
      : arrays_(arrays), examples_(examples_in(arrays)), batch_size_(batch_size) {}

  bool next(Batch& batch) override {
    const int64_t size = std::min(batch_size_, examples_ - at_);
    if (size <= 0) return false;
    batch = {cut(arrays_.x, size), cut(arrays_.y, size), cut(arrays_.sample_weight, size)};
    at_ += size;
    return true;
  }

  std::optional<Rows> as_rows(int64_t most) override {
    if (arrays_.x[0].device().kind() != DeviceKind::gpu) return std::nullopt;
    return rows_from(arrays_, Tensor(), at_, batch_size_, most);
  }
  void skip(int64_t batches) override { at_ += batches * batch_size_; }

 private:
  TensorList cut(const TensorList& list, int64_t size) const {
    TensorList cuts;
    for (const Tensor& tensor : list) {
      if (!tensor.defined()) {
        cuts.emplace_back();
        continue;
      }
      Shape shape = tensor.shape();
      shape[0] = size;
      const Strides& strides = tensor.impl()->strides;
      cuts.push_back(make_view(*tensor.impl(), {tensor.dtype(), shape}, strides,
                               tensor.impl()->offset + at_ * strides[0]));
    }
    return cuts;
  }

  const Batch& arrays_;
  int64_t examples_;
  int64_t batch_size_;
  int64_t at_ = 0;
};

class ArraySource final : public Data::Source {
 public:
  ArraySource(Batch arrays, std::vector<std::string> x_names, std::vector<std::string> y_names)
      : arrays_(std::move(arrays)), x_names_(std::move(x_names)), y_names_(std::move(y_names)) {}

  std::unique_ptr<BatchReader> read(const EpochOptions& options) const override {
    if (options.shuffle && arrays_.x[0].device().kind() == DeviceKind::gpu)
      return std::make_unique<GpuShuffledReader>(arrays_, options.batch_size);
    if (options.shuffle) return std::make_unique<ShuffledReader>(arrays_, options);
    return std::make_unique<OrderedReader>(arrays_, options.batch_size);
  }
  int64_t batches(int64_t batch_size) const override {
    return (examples_in(arrays_) + batch_size - 1) / batch_size;
  }
  const Batch* arrays() const override { return &arrays_; }
  std::vector<TensorSpec> input_specs() const override {
    std::vector<TensorSpec> specs;
    for (const Tensor& x : arrays_.x) {
      specs.push_back(x.spec());
      specs.back().shape[0] = -1;
    }
    return specs;
  }
  std::shared_ptr<const Source> in_order(const ModelArrays& model,
                                         std::source_location where) const override {
    if (x_names_.empty() && y_names_.empty()) return nullptr;
    require(!model.inputs.empty(), ErrorCode::invalid_argument, where,
            "data by name needs a model with named inputs (Sequential with an input, or the functional API)");
    Batch sorted;
    sorted.x = ordered(arrays_.x, model.inputs, x_names_, "input", where);
    for (size_t i = 0; i < sorted.x.size(); ++i)
      require(sorted.x[i].defined(), ErrorCode::invalid_argument, where, "the data has no input named \"",
              model.inputs[i], "\"");
    if (!arrays_.y.empty()) sorted.y = ordered(arrays_.y, model.outputs, y_names_, "output", where);
    if (!arrays_.sample_weight.empty())
      sorted.sample_weight =
          ordered(arrays_.sample_weight, model.outputs, y_names_, "weight of output", where);
    return array_source(std::move(sorted), {}, {}, where);
  }

 private:
  static TensorList ordered(const TensorList& tensors, const std::vector<std::string>& wanted,
                            const std::vector<std::string>& names, const char* what,
                            std::source_location where) {
    TensorList list;
    for (const size_t position : in_order_of(wanted, names, what, where))
      list.push_back(position < tensors.size() ? tensors[position] : Tensor());
    return list;
  }

  Batch arrays_;
  std::vector<std::string> x_names_;
  std::vector<std::string> y_names_;
};

TensorList listed(const Tensor& tensor) { return tensor.defined() ? TensorList{tensor} : TensorList{}; }

void split_named(const Data::Named& named, std::vector<std::string>& names, TensorList& tensors) {
  for (const auto& [name, tensor] : named) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
}

}  // namespace

std::shared_ptr<const Data::Source> Data::Source::in_order(const ModelArrays&, std::source_location) const {
  return nullptr;
}

std::vector<size_t> in_order_of(const std::vector<std::string>& wanted, const std::vector<std::string>& names,
                                const char* what, std::source_location where) {
  for (const std::string& name : names) {
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) continue;
    std::string known;
    for (const std::string& other : wanted) known += (known.empty() ? "\"" : ", \"") + other + "\"";
    const std::string near = nearest_spelling(name, wanted);
    fail(ErrorCode::invalid_argument, where, "the data names ", what, " \"", name, "\", the model has ",
         known, near.empty() ? "" : "; did you mean \"" + near + "\"?");
  }
  std::vector<size_t> positions;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    positions.push_back(found == names.end() ? kMissing : static_cast<size_t>(found - names.begin()));
  }
  return positions;
}

int64_t examples_in(const Batch& batch) {
  int64_t examples = 0;
  each_array(batch, [&](const Tensor& tensor) { examples = tensor.shape()[0]; });
  return examples;
}

Data on_device(const Data& data) {
  const Batch* const arrays = data.source()->arrays();
  Device& device = current_device();
  if (!arrays || device.kind() != DeviceKind::gpu) return data;
  int64_t bytes = 0;
  bool in_host = true;
  each_array(*arrays, [&](const Tensor& tensor) {
    bytes += static_cast<int64_t>(tensor.spec().bytes());
    in_host = in_host && tensor.device().kind() == DeviceKind::cpu;
  });
  const MemoryInfo memory = device.memory_info();
  const auto& gpus = machine_gpus().list;
  const int64_t all = memory.limit > 0 ? memory.limit : gpus.empty() ? 0 : gpus[0].memory;
  if (!in_host || bytes > std::min(kMostOnGpu, (all - memory.current) / kShareOfGpu)) return data;
  Batch there = *arrays;
  for (TensorList* list : {&there.x, &there.y, &there.sample_weight})
    for (Tensor& tensor : *list)
      if (tensor.defined()) tensor = tensor.to(device);
  return Data(array_source(std::move(there)));
}

std::shared_ptr<const Data::Source> array_source(Batch arrays, std::vector<std::string> x_names,
                                                 std::vector<std::string> y_names,
                                                 std::source_location where) {
  require(!arrays.x.empty(), ErrorCode::invalid_argument, where, "the data has no x");
  for (size_t i = 0; i < arrays.x.size(); ++i)
    require(arrays.x[i].defined(), ErrorCode::invalid_argument, where, "the data's x[", i, "] is none");
  int64_t examples = -1;
  each_array(arrays, [&](const Tensor& tensor) {
    require(tensor.rank() > 0, ErrorCode::shape_mismatch, where,
            "the data's arrays need a first dimension that runs over the examples, received a scalar");
    if (examples < 0) examples = tensor.shape()[0];
    require(tensor.shape()[0] == examples, ErrorCode::shape_mismatch, where,
            "the data's arrays must have one number of examples (their first dimension), received ",
            arrays.x[0].shape(), " and ", tensor.shape());
  });
  require(examples > 0, ErrorCode::invalid_argument, where, "the data has no examples: its x is ",
          arrays.x[0].spec());
  // Rows are gathered where the arrays are: all on one GPU, or in host memory.
  bool on_gpu = arrays.x[0].device().kind() == DeviceKind::gpu;
  each_array(arrays,
             [&](const Tensor& tensor) { on_gpu = on_gpu && &tensor.device() == &arrays.x[0].device(); });
  for (TensorList* list : {&arrays.x, &arrays.y, &arrays.sample_weight})
    for (Tensor& tensor : *list) {
      if (!tensor.defined()) continue;
      if (!on_gpu && tensor.device().kind() == DeviceKind::gpu)
        tensor = tensor.to(data::host_device(), where);
      tensor = contiguous(tensor, where);
    }
  return std::make_shared<ArraySource>(std::move(arrays), std::move(x_names), std::move(y_names));
}

Data::Data(const Tensor& x, const Tensor& y, const Tensor& sample_weight)
    : source_(array_source({listed(x), listed(y), listed(sample_weight)})) {}
Data::Data(const TensorList& x, const TensorList& y, const TensorList& sample_weight)
    : source_(array_source({x, y, sample_weight})) {}
Data::Data(const datasets::Examples& examples) : source_(array_source({{examples.x}, {examples.y}, {}})) {}
Data::Data(const Named& x, const Named& y, const Named& sample_weight) {
  Batch arrays;
  std::vector<std::string> x_names, y_names;
  split_named(x, x_names, arrays.x);
  split_named(y, y_names, arrays.y);
  if (!sample_weight.empty()) {
    for (const std::string& name : y_names) {
      const auto found = sample_weight.find(name);
      arrays.sample_weight.push_back(found == sample_weight.end() ? Tensor() : found->second);
    }
  }
  source_ = array_source(std::move(arrays), std::move(x_names), std::move(y_names));
}

}  // namespace lockstep::keras
