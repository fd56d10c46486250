#include "keras/training/array_source.h"

#include <algorithm>
#include <utility>

#include "data/host.h"
#include "graph/eager.h"
#include "keras/training/device_memory.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras {
namespace {

// A part of the memory that is left, and no more than is copied in about a second.
constexpr int64_t kShareOfGpu = 4, kMostOnGpu = int64_t{4} << 30;

// The batches of data::RowBatches, as x, y and sample_weight.
class ArrayReader final : public BatchReader {
 public:
  ArrayReader(const Batch& arrays, const data::RowBatchOptions& options)
      : arrays_(arrays), batches_(data::RowBatches::open(listed(arrays), options)) {}

  bool next(Batch& batch) override {
    // The tensors move there and back, so that nobody but the reader holds those that are not in use any
    // more.
    flat_.clear();
    for (TensorList* list : {&batch.x, &batch.y, &batch.sample_weight})
      for (Tensor& tensor : *list)
        if (tensor.defined()) flat_.push_back(std::move(tensor));
    if (!batches_->next(flat_)) return false;
    size_t used = 0;
    const auto fill = [&](const TensorList& arrays, TensorList& list) {
      list.resize(arrays.size());
      for (size_t i = 0; i < arrays.size(); ++i)
        list[i] = arrays[i].defined() ? std::move(flat_[used++]) : Tensor();
    };
    fill(arrays_.x, batch.x);
    fill(arrays_.y, batch.y);
    fill(arrays_.sample_weight, batch.sample_weight);
    return true;
  }
  std::optional<Runs> runs(int64_t most) override {
    std::optional<FunctionCore::RowRuns> rows = batches_->runs(most);
    if (!rows) return std::nullopt;
    return Runs{&arrays_, *std::move(rows)};
  }
  void skip(int64_t batches) override { batches_->skip(batches); }

 private:
  static TensorList listed(const Batch& arrays) {
    TensorList list;
    each_array(arrays, [&](const Tensor& array) { list.push_back(array); });
    return list;
  }

  const Batch& arrays_;
  std::unique_ptr<data::RowBatches> batches_;
  TensorList flat_;
};

class ArraySource final : public Data::Source {
 public:
  ArraySource(Batch arrays, std::vector<std::string> x_names, std::vector<std::string> y_names)
      : arrays_(std::move(arrays)), x_names_(std::move(x_names)), y_names_(std::move(y_names)) {}

  std::unique_ptr<BatchReader> read(const data::RowBatchOptions& options) const override {
    return std::make_unique<ArrayReader>(arrays_, options);
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
    sorted.x = ordered(arrays_.x, model.inputs, x_names_, NamedPart::input, where);
    for (size_t i = 0; i < sorted.x.size(); ++i)
      require(sorted.x[i].defined(), ErrorCode::invalid_argument, where, "the data has no input named \"",
              model.inputs[i], "\"");
    if (!arrays_.y.empty()) sorted.y = ordered(arrays_.y, model.outputs, y_names_, NamedPart::output, where);
    if (!arrays_.sample_weight.empty())
      sorted.sample_weight =
          ordered(arrays_.sample_weight, model.outputs, y_names_, NamedPart::weight, where);
    return array_source(std::move(sorted), {}, {}, where);
  }

 private:
  static TensorList ordered(const TensorList& tensors, const std::vector<std::string>& wanted,
                            const std::vector<std::string>& names, NamedPart part,
                            std::source_location where) {
    TensorList list;
    for (const size_t position : in_order_of(wanted, names, part, where))
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
  const int64_t left = memory_of(device) - device.memory_info().current;
  if (!in_host || bytes > std::min(kMostOnGpu, left / kShareOfGpu)) return data;
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
    require(arrays.x[i].defined(), ErrorCode::invalid_argument, where, "the data's x[", i, "] is undefined");
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

Data::Data(const Tensor& x, const Tensor& y, const Tensor& sample_weight, std::source_location where) {
  const CallSite site(where);
  source_ = array_source({listed(x), listed(y), listed(sample_weight)});
}
Data::Data(const TensorList& x, const TensorList& y, const TensorList& sample_weight,
           std::source_location where) {
  const CallSite site(where);
  source_ = array_source({x, y, sample_weight});
}
Data::Data(const datasets::Examples& examples, std::source_location where) {
  const CallSite site(where);
  source_ = array_source({{examples.x}, {examples.y}, {}});
}
Data::Data(const Named& x, const Named& y, const Named& sample_weight, std::source_location where) {
  const CallSite site(where);
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
