#include "keras/training/source.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "base/worker.h"
#include "graph/eager.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/datasets.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

const std::vector<std::string> kNoNames;

// Below this a second thread costs more than it saves.
constexpr size_t kPrefetchBytes = size_t{64} << 10;

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
  void copy() const {
    for (const Copy& copy : copies_) {
      char* target = copy.target;
      for (const int64_t row : rows_) {
        std::memcpy(target, copy.source + static_cast<size_t>(row) * copy.row_bytes, copy.row_bytes);
        target += copy.row_bytes;
      }
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
        to[i] = Tensor::empty(spec.dtype, spec.shape);
      copies_.push_back({static_cast<const char*>(from[i].impl()->data()),
                         static_cast<char*>(to[i].impl()->data()), spec.bytes() / rows_.size()});
    }
  }

  std::vector<Copy> copies_;
  std::span<const int64_t> rows_;
};

class ShuffledReader final : public BatchReader {
 public:
  ShuffledReader(const Batch& arrays, const EpochOptions& options)
      : arrays_(arrays), batch_size_(static_cast<size_t>(options.batch_size)) {
    order_.resize(static_cast<size_t>(examples_in(arrays)));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    const uint64_t seed = static_cast<uint64_t>(random::default_generator().advance());
    std::mt19937_64 engine(seed);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[engine() % i]);

    size_t bytes = 0;
    each_array(arrays, [&](const Tensor& tensor) { bytes += tensor.spec().bytes(); });
    const bool large = bytes / std::max<size_t>(1, order_.size()) * batch_size_ >= kPrefetchBytes;
    // Two batches or fewer: nothing to be ahead of.
    if (options.free_threads > 0 && large && order_.size() > 2 * batch_size_)
      worker_.emplace(Waiting::spins_first);
  }
  ~ShuffledReader() override {
    if (worker_) worker_->wait();
  }

  bool next(Batch& batch) override {
    if (!worker_) {
      if (!claim(batch)) return false;
      gathering_.copy();
      return true;
    }
    if (!ahead_) fetch_ahead();
    worker_->wait();
    if (!*ahead_) return false;
    std::swap(batch, next_);
    fetch_ahead();
    return true;
  }

 private:
  bool claim(Batch& batch) {
    const size_t left = order_.size() - at_;
    if (left == 0) return false;
    const std::span<const int64_t> rows(order_.data() + at_, std::min(left, batch_size_));
    at_ += rows.size();
    gathering_.claim(arrays_, rows, batch);
    return true;
  }

  // Memory is claimed here, on the thread that knows the device; the worker only copies.
  void fetch_ahead() {
    ahead_ = claim(next_);
    if (*ahead_)
      worker_->start([](void* gathering) { static_cast<const Gathering*>(gathering)->copy(); }, &gathering_);
  }

  const Batch& arrays_;
  size_t batch_size_;
  std::vector<int64_t> order_;
  size_t at_ = 0;
  Gathering gathering_;
  Batch next_;                 // what the worker is filling
  std::optional<bool> ahead_;  // whether there is such a batch; none before the first
  std::optional<Worker> worker_;
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
    if (options.shuffle) return std::make_unique<ShuffledReader>(arrays_, options);
    return std::make_unique<OrderedReader>(arrays_, options.batch_size);
  }
  int64_t batches(int64_t batch_size) const override {
    return (examples_in(arrays_) + batch_size - 1) / batch_size;
  }
  const Batch* arrays() const override { return &arrays_; }
  const std::vector<std::string>& x_names() const override { return x_names_; }
  const std::vector<std::string>& y_names() const override { return y_names_; }

 private:
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

const std::vector<std::string>& Data::Source::x_names() const { return kNoNames; }
const std::vector<std::string>& Data::Source::y_names() const { return kNoNames; }

int64_t examples_in(const Batch& batch) {
  int64_t examples = 0;
  each_array(batch, [&](const Tensor& tensor) { examples = tensor.shape()[0]; });
  return examples;
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
  for (TensorList* list : {&arrays.x, &arrays.y, &arrays.sample_weight})
    for (Tensor& tensor : *list)
      if (tensor.defined()) tensor = contiguous(tensor, where);
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
