#include <algorithm>
#include <numeric>

#include "keras/layers/input_rank.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"

namespace lockstep::keras::layers {
namespace {

struct FlattenSettings {
  FlattenOptions options;
  void visit(auto& v) { v("data_format", options.data_format); }
};

class FlattenLayer final : public ConfiguredLayer<FlattenSettings> {
 public:
  static constexpr const char* kClassName = "Flatten";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    require(x.rank() >= 1, ErrorCode::shape_mismatch, where(),
            "Flatten takes inputs with a batch dimension, received a scalar");
    Tensor y = x;
    if (settings_.options.data_format.kind() == DataFormat::channels_first && x.rank() > 2) {
      Dims order;
      for (int d = 0; d < x.rank(); ++d)
        if (d != 1) order.push_back(d);
      order.push_back(1);
      y = transpose(x, order);
    }
    int64_t features = 1;
    for (int d = 1; d < x.rank(); ++d) features *= x.shape()[d];
    return reshape(y, {x.shape()[0], features});
  }
};
const RegisterLayer<FlattenLayer> flatten;

struct ReshapeSettings {
  std::vector<int64_t> target_shape;
  LayerOptions options;
  void visit(auto& v) { v("target_shape", target_shape, at_least(-1)); }
};

class ReshapeLayer final : public ConfiguredLayer<ReshapeSettings> {
 public:
  static constexpr const char* kClassName = "Reshape";
  ReshapeLayer(const char* class_name, ReshapeSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const std::vector<int64_t>& target = settings_.target_shape;
    const bool sizes =
        std::all_of(target.begin(), target.end(), [](int64_t size) { return size >= 0 || size == -1; });
    require(sizes && std::count(target.begin(), target.end(), -1) <= 1, ErrorCode::invalid_argument,
            std::source_location::current(),
            "Reshape: target_shape has sizes of 0 and above and at most one -1, received ", Dims(target));
  }
  Tensor call(const Tensor& x, const CallContext&) override {
    const Dims target(settings_.target_shape);
    int64_t features = 1;
    for (int d = 1; d < x.rank(); ++d) features *= x.shape()[d];
    int64_t known = 1;
    bool fits = true;
    for (const int64_t size : target)
      fits = fits && !__builtin_mul_overflow(known, size < 0 ? 1 : size, &known);
    const bool open = std::count(target.begin(), target.end(), -1) > 0;
    fits = fits && (open ? known > 0 && features % known == 0 : features == known);
    require(fits, ErrorCode::shape_mismatch, where(), "Reshape: an example of ", x.shape(), " has ", features,
            " elements, which do not fit target_shape ", target);
    // The batch is named, not left open: an empty one has no elements to tell its size from.
    Shape shape{x.shape()[0]};
    for (const int64_t size : target) shape.push_back(size < 0 ? features / known : size);
    return reshape(x, shape);
  }
};
const RegisterLayer<ReshapeLayer> registered_reshape;

struct PermuteSettings {
  Dims dims;
  LayerOptions options;
  void visit(auto& v) { v("dims", dims, kFinite); }
};

class PermuteLayer final : public ConfiguredLayer<PermuteSettings> {
 public:
  static constexpr const char* kClassName = "Permute";
  PermuteLayer(const char* class_name, PermuteSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    std::vector<int64_t> sorted(settings_.dims.begin(), settings_.dims.end());
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> expected(sorted.size());
    std::iota(expected.begin(), expected.end(), 1);
    require(sorted == expected, ErrorCode::invalid_argument, std::source_location::current(),
            "Permute: dims names each dimension behind the batch once, counted from 1, received ",
            settings_.dims);
  }
  Tensor call(const Tensor& x, const CallContext&) override {
    require_rank(*this, x.shape(), settings_.dims.rank() + 1);
    Dims order = settings_.dims;
    order.insert(0, 0);
    return transpose(x, order);
  }
};
const RegisterLayer<PermuteLayer> permute;

struct RepeatVectorSettings {
  int64_t n = 0;
  LayerOptions options;
  void visit(auto& v) { v("n", n, kPositive); }
};

class RepeatVectorLayer final : public ConfiguredLayer<RepeatVectorSettings> {
 public:
  static constexpr const char* kClassName = "RepeatVector";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    require_rank(*this, x.shape(), 2);
    return broadcast_to(expand_dims(x, 1), {x.shape()[0], settings_.n, x.shape()[1]});
  }
};
const RegisterLayer<RepeatVectorLayer> repeat_vector;

}  // namespace

Layer Flatten(const FlattenOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<FlattenLayer>({options});
}
Layer Reshape(const Shape& target_shape, const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ReshapeLayer>({{target_shape.begin(), target_shape.end()}, options});
}
Layer Permute(const Dims& dims, const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<PermuteLayer>({dims, options});
}
Layer RepeatVector(int64_t n, const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RepeatVectorLayer>({n, options});
}

}  // namespace lockstep::keras::layers
