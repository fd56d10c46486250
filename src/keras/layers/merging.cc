#include "lockstep/keras/layers/merging.h"

#include <algorithm>
#include <numeric>

#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

bool all_defined(const TensorList& masks) {
  return !masks.empty() &&
         std::all_of(masks.begin(), masks.end(), [](const Tensor& mask) { return mask.defined(); });
}

// Whole numbers beside floating-point ones become such.
TensorList of_one_dtype(const TensorList& inputs) {
  const auto floats =
      std::find_if(inputs.begin(), inputs.end(), [](const Tensor& x) { return is_floating(x.dtype()); });
  if (floats == inputs.end()) return inputs;
  TensorList alike;
  for (const Tensor& x : inputs) alike.push_back(is_floating(x.dtype()) ? x : cast(x, floats->dtype()));
  return alike;
}

// --- elementwise -------------------------------------------------------------------------------------------

struct MergeSettings {
  LayerOptions options;
  void visit(auto&) {}
};

class MergeLayer : public ConfiguredLayer<MergeSettings> {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  void build_all(const std::vector<Shape>& inputs) override {
    require(!inputs.empty(), ErrorCode::invalid_argument, where(), class_name(), " takes one input or more");
    int64_t batch = -1;
    Shape merged;
    for (const Shape& input : inputs) {
      require(input.rank() >= 1, ErrorCode::shape_mismatch, where(), class_name(),
              " takes inputs with a batch dimension, received a scalar");
      if (input[0] >= 0) {
        require(batch < 0 || batch == input[0], ErrorCode::shape_mismatch, where(), class_name(),
                ": inputs have batches of ", batch, " and of ", input[0], " examples");
        batch = input[0];
      }
      merge_shape(merged, input);
    }
  }

  TensorList call_all(const TensorList& given, const CallContext& context) final {
    const TensorList inputs = of_one_dtype(given);
    int rank = 0;
    for (const Tensor& input : inputs) rank = std::max(rank, input.rank());
    TensorList equal_ranks, masks;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor x = inputs[i], mask = context.masks[i];
      if (mask.defined()) mask = expand_dims(mask, -1);
      for (int missing = rank - inputs[i].rank(); missing > 0; --missing) {
        x = expand_dims(x, 1);
        if (mask.defined()) mask = expand_dims(mask, 1);
      }
      equal_ranks.push_back(x);
      masks.push_back(mask);
    }
    return {merge(equal_ranks, masks)};
  }

  TensorList compute_mask(const TensorList&, const TensorList& masks, size_t) override {
    if (!all_defined(masks)) return {};
    return {std::accumulate(masks.begin() + 1, masks.end(), masks[0],
                            [](const Tensor& a, const Tensor& b) { return logical_or(a, b); })};
  }
  bool supports_masking() const override { return true; }
  bool takes_list() const override { return true; }

 protected:
  // All of one rank; masks have a last dimension of 1, and are undefined where an input has none.
  virtual Tensor merge(const TensorList& inputs, const TensorList& masks) const = 0;

 private:
  // Sizes behind the batch broadcast from the last on.
  void merge_shape(Shape& merged, const Shape& input) const {
    Shape other;
    for (int d = 1; d < input.rank(); ++d) other.push_back(input[d]);
    if (merged.rank() < other.rank()) std::swap(merged, other);
    for (int d = 1; d <= other.rank(); ++d) {
      int64_t& size = merged[-d];
      const int64_t more = other[-d];
      require(size < 0 || more < 0 || size == 1 || more == 1 || size == more, ErrorCode::shape_mismatch,
              where(), class_name(), ": inputs of sizes ", merged, " and ", other, " do not broadcast");
      if (size == 1 || (size < 0 && more > 1)) size = more;
    }
  }
};

// The plain fold of a binary op.
template <Tensor (*kOp)(const OperandArg&, const OperandArg&)>
Tensor fold(const TensorList& inputs) {
  return std::accumulate(inputs.begin() + 1, inputs.end(), inputs[0],
                         [](const Tensor& a, const Tensor& b) { return kOp(a, b); });
}

class AddLayer final : public MergeLayer {
 public:
  static constexpr const char* kClassName = "Add";
  using MergeLayer::MergeLayer;
  Tensor merge(const TensorList& inputs, const TensorList&) const override { return fold<add>(inputs); }
};
const RegisterLayer<AddLayer> registered_add;

class AverageLayer final : public MergeLayer {
 public:
  static constexpr const char* kClassName = "Average";
  using MergeLayer::MergeLayer;
  Tensor merge(const TensorList& inputs, const TensorList&) const override {
    return fold<add>(inputs) / static_cast<double>(inputs.size());
  }
};
const RegisterLayer<AverageLayer> average;

class SubtractLayer final : public MergeLayer {
 public:
  static constexpr const char* kClassName = "Subtract";
  using MergeLayer::MergeLayer;
  void build_all(const std::vector<Shape>& inputs) override {
    require(inputs.size() == 2, ErrorCode::invalid_argument, where(), "Subtract takes 2 inputs, received ",
            inputs.size());
    MergeLayer::build_all(inputs);
  }
  Tensor merge(const TensorList& inputs, const TensorList&) const override { return inputs[0] - inputs[1]; }
};
const RegisterLayer<SubtractLayer> registered_subtract;

class MultiplyLayer final : public MergeLayer {
 public:
  static constexpr const char* kClassName = "Multiply";
  using MergeLayer::MergeLayer;
  // A masked factor is 1; where all are masked the product is 0.
  Tensor merge(const TensorList& inputs, const TensorList& masks) const override {
    TensorList factors;
    for (size_t i = 0; i < inputs.size(); ++i)
      factors.push_back(masks[i].defined() ? lockstep::where(masks[i], inputs[i], 1.0) : inputs[i]);
    const Tensor product = fold<multiply>(factors);
    if (!all_defined(masks)) return product;
    const Tensor any = std::accumulate(masks.begin() + 1, masks.end(), masks[0],
                                       [](const Tensor& a, const Tensor& b) { return logical_or(a, b); });
    return lockstep::where(any, product, 0.0);
  }
};
const RegisterLayer<MultiplyLayer> registered_multiply;

// What one side masks is taken from the other.
template <Tensor (*kOp)(const OperandArg&, const OperandArg&)>
class ExtremumLayer : public MergeLayer {
 public:
  using MergeLayer::MergeLayer;
  Tensor merge(const TensorList& inputs, const TensorList& masks) const override {
    Tensor result = inputs[0], known = masks[0];
    for (size_t i = 1; i < inputs.size(); ++i) {
      const Tensor other = masks[i].defined() ? lockstep::where(masks[i], inputs[i], result) : inputs[i];
      if (known.defined()) result = lockstep::where(known, result, other);
      known = known.defined() && masks[i].defined() ? logical_or(known, masks[i]) : Tensor();
      result = kOp(result, other);
    }
    return result;
  }
};
class MaximumLayer final : public ExtremumLayer<maximum> {
 public:
  static constexpr const char* kClassName = "Maximum";
  using ExtremumLayer::ExtremumLayer;
};
class MinimumLayer final : public ExtremumLayer<minimum> {
 public:
  static constexpr const char* kClassName = "Minimum";
  using ExtremumLayer::ExtremumLayer;
};
const RegisterLayer<MaximumLayer> registered_maximum;
const RegisterLayer<MinimumLayer> registered_minimum;

// --- concatenation -----------------------------------------------------------------------------------------

struct ConcatenateSettings {
  ConcatenateOptions options;
  void visit(auto& v) { v("axis", options.axis, kFinite); }
};

class ConcatenateLayer final : public ConfiguredLayer<ConcatenateSettings> {
 public:
  static constexpr const char* kClassName = "Concatenate";
  using ConfiguredLayer::ConfiguredLayer;

  void build_all(const std::vector<Shape>& inputs) override {
    require(!inputs.empty(), ErrorCode::invalid_argument, where(), "Concatenate takes one input or more");
    const int axis = normalize_axis(settings_.options.axis, inputs[0].rank(), "Concatenate", where());
    for (const Shape& input : inputs) {
      bool fits = input.rank() == inputs[0].rank();
      for (int d = 0; fits && d < input.rank(); ++d)
        fits = d == axis || input[d] < 0 || inputs[0][d] < 0 || input[d] == inputs[0][d];
      require(fits, ErrorCode::shape_mismatch, where(), "Concatenate: shapes ", inputs[0], " and ", input,
              " differ beside axis ", settings_.options.axis);
    }
  }
  TensorList call_all(const TensorList& inputs, const CallContext&) override {
    return {concat(of_one_dtype(inputs), static_cast<int>(settings_.options.axis))};
  }
  // A step counts where any of its features does; an input without a mask counts everywhere.
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t) override {
    if (std::none_of(masks.begin(), masks.end(), [](const Tensor& mask) { return mask.defined(); }))
      return {};
    TensorList whole;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor mask = masks[i].defined() ? masks[i] : ones(inputs[i].shape(), DType::boolean);
      if (mask.rank() < inputs[i].rank()) mask = broadcast_to(expand_dims(mask, -1), inputs[i].shape());
      whole.push_back(mask);
    }
    return {reduce_any(concat(whole, static_cast<int>(settings_.options.axis)), {.axis = {-1}})};
  }
  bool takes_list() const override { return true; }
  bool supports_masking() const override { return true; }
};
const RegisterLayer<ConcatenateLayer> concatenate;

// --- products ----------------------------------------------------------------------------------------------

struct DotSettings {
  Axes axes;
  DotOptions options;
  void visit(auto& v) {
    v("axes", axes, kFinite);
    v("normalize", options.normalize);
  }
};

class DotLayer final : public ConfiguredLayer<DotSettings> {
 public:
  static constexpr const char* kClassName = "Dot";
  DotLayer(const char* class_name, DotSettings settings) : ConfiguredLayer(class_name, std::move(settings)) {
    require(settings_.axes.single() || settings_.axes.values().size() == 2, ErrorCode::invalid_argument,
            std::source_location::current(),
            "Dot: axes is one axis for both inputs or a list of two, received ",
            Dims(settings_.axes.values()));
  }

  void build_all(const std::vector<Shape>& inputs) override {
    require(inputs.size() == 2, ErrorCode::invalid_argument, where(), "Dot takes 2 inputs, received ",
            inputs.size());
    const auto [a, b] = axes(inputs[0], inputs[1]);
    require(inputs[0][a] < 0 || inputs[1][b] < 0 || inputs[0][a] == inputs[1][b], ErrorCode::shape_mismatch,
            where(), "Dot: axis ", a, " of ", inputs[0], " and axis ", b, " of ", inputs[1],
            " differ in size");
  }

  TensorList call_all(const TensorList& inputs, const CallContext&) override {
    Tensor x = inputs[0], y = inputs[1];
    const auto [a, b] = axes(x.shape(), y.shape());
    if (settings_.options.normalize) {
      x = normalized(x, a);
      y = normalized(y, b);
    }
    const Tensor products = batch_dot(x, y, a, b);
    return {products.rank() == 1 ? expand_dims(products, -1) : products};
  }
  TensorList compute_mask(const TensorList&, const TensorList&, size_t) override { return {}; }
  bool takes_list() const override { return true; }
  bool supports_masking() const override { return true; }

 private:
  std::pair<int, int> axes(const Shape& x, const Shape& y) const {
    require(x.rank() >= 2 && y.rank() >= 2, ErrorCode::shape_mismatch, where(),
            "Dot takes inputs of rank 2 or more, received shapes ", x, " and ", y);
    const std::vector<int64_t>& given = settings_.axes.values();
    const int a = normalize_axis(given.front(), x.rank(), "Dot", where());
    const int b = normalize_axis(given.back(), y.rank(), "Dot", where());
    require(a > 0 && b > 0, ErrorCode::invalid_argument, where(),
            "Dot: axis 0 is the batch, which is not summed over");
    return {a, b};
  }
  static Tensor normalized(const Tensor& x, int axis) {
    const Tensor squares = reduce_sum(square(x), {.axis = {axis}, .keepdims = true});
    return x * rsqrt(maximum(squares, 1e-14));
  }
};
const RegisterLayer<DotLayer> registered_dot;

}  // namespace

Layer Add(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AddLayer>({options});
}
Layer Subtract(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SubtractLayer>({options});
}
Layer Average(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AverageLayer>({options});
}
Layer Multiply(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<MultiplyLayer>({options});
}
Layer Maximum(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<MaximumLayer>({options});
}
Layer Minimum(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<MinimumLayer>({options});
}
Layer Concatenate(const ConcatenateOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ConcatenateLayer>({options});
}
Layer Dot(const Axes& axes, const DotOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<DotLayer>({axes, options});
}

}  // namespace lockstep::keras::layers
