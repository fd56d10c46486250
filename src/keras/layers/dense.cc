#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

struct DenseSettings {
  int64_t units = 0;
  DenseOptions options;

  void visit(auto& v) {
    v("units", units, kPositive);
    v("activation", options.activation);
    v("use_bias", options.use_bias);
    v("kernel_initializer", options.kernel_initializer);
    v("bias_initializer", options.bias_initializer);
    v("kernel_regularizer", options.kernel_regularizer);
    v("bias_regularizer", options.bias_regularizer);
    v("kernel_constraint", options.kernel_constraint);
    v("bias_constraint", options.bias_constraint);
  }
};

class DenseLayer final : public ConfiguredLayer<DenseSettings> {
 public:
  static constexpr const char* kClassName = "Dense";

  using ConfiguredLayer::ConfiguredLayer;

  void build(const Shape& input) override {
    const DenseOptions& o = settings_.options;
    require(input.rank() >= 2, ErrorCode::shape_mismatch, std::source_location::current(),
            "Dense takes inputs of rank 2 or more (batch, ..., features), received shape ", input);
    kernel_ = add_weight("kernel", {input[-1], settings_.units},
                         {.initializer = o.kernel_initializer,
                          .regularizer = o.kernel_regularizer,
                          .constraint = o.kernel_constraint});
    if (o.use_bias)
      bias_ = add_weight("bias", {settings_.units},
                         {.initializer = o.bias_initializer,
                          .regularizer = o.bias_regularizer,
                          .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    // Whole numbers, counts say, are taken as the numbers that the weights are.
    const Tensor y = matmul(is_floating(x.dtype()) ? x : cast(x, compute_dtype()), kernel_);
    return settings_.options.activation(bias_.defined() ? y + bias_ : y);
  }

  bool supports_masking() const override { return true; }

 private:
  Variable kernel_;
  Variable bias_;
};

const RegisterLayer<DenseLayer> registered;

}  // namespace

Layer Dense(int64_t units, const DenseOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<DenseLayer>({units, options});
}

}  // namespace lockstep::keras::layers
