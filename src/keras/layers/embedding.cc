#include "keras/layers/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

struct EmbeddingSettings {
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  EmbeddingOptions options;
  void visit(auto& v) {
    v("input_dim", input_dim);
    v("output_dim", output_dim);
    v("embeddings_initializer", options.embeddings_initializer);
    v("embeddings_regularizer", options.embeddings_regularizer);
    v("activity_regularizer", options.activity_regularizer);
    v("embeddings_constraint", options.embeddings_constraint);
    v("mask_zero", options.mask_zero);
  }
};

class EmbeddingLayer : public ConfiguredLayer<EmbeddingSettings> {
 public:
  static constexpr const char* kClassName = "Embedding";
  EmbeddingLayer(const char* class_name, EmbeddingSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    require(settings_.input_dim > 0 && settings_.output_dim > 0, ErrorCode::invalid_argument,
            std::source_location::current(), class_name,
            ": input_dim and output_dim must be positive, received ", settings_.input_dim, " and ",
            settings_.output_dim);
    const Tensor& weights = settings_.options.weights;
    const Shape shape{settings_.input_dim, settings_.output_dim};
    require(!weights.defined() || weights.shape() == shape, ErrorCode::shape_mismatch,
            std::source_location::current(), class_name, ": weights must be of shape ", shape, ", received ",
            weights.defined() ? weights.shape() : Shape());
  }

  // Rows are converted after they are looked up: the table itself is read as it is.
  void build(const Shape&) override {
    const EmbeddingOptions& o = settings_.options;
    embeddings_ = add_weight("embeddings", {settings_.input_dim, settings_.output_dim},
                             {.initializer = o.embeddings_initializer,
                              .regularizer = o.embeddings_regularizer,
                              .constraint = o.embeddings_constraint,
                              .autocast = false});
    if (o.weights.defined()) embeddings_.assign(cast(o.weights, embeddings_.dtype()));
  }

  Tensor call(const Tensor& indices, const CallContext&) override {
    return cast(gather(embeddings_, as_integers(indices)), compute_dtype());
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList&, size_t) override {
    if (!settings_.options.mask_zero) return {};
    return {not_equal(inputs[0], 0)};
  }
  bool supports_masking() const override { return settings_.options.mask_zero; }
  bool autocast_inputs() const override { return false; }

 protected:
  static Tensor as_integers(const Tensor& x) {
    return x.dtype() == DType::int32 || x.dtype() == DType::int64 ? x : cast(x, DType::int32);
  }

  Variable embeddings_;
};
const RegisterLayer<EmbeddingLayer> registered;

class ReversibleEmbeddingLayer final : public EmbeddingLayer {
 public:
  static constexpr const char* kClassName = "ReversibleEmbedding";
  using EmbeddingLayer::EmbeddingLayer;

  Tensor call(const Tensor& x, const CallContext& context) override {
    if (!is_floating(x.dtype())) return EmbeddingLayer::call(x, context);
    require(x.rank() > 0 && x.shape()[-1] == settings_.output_dim, ErrorCode::shape_mismatch, where(),
            "ReversibleEmbedding: vectors must have ", settings_.output_dim, " elements, received shape ",
            x.shape());
    return matmul(cast(x, compute_dtype()), cast(embeddings_, compute_dtype()), {.transpose_b = true});
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override {
    if (is_floating(inputs[0].dtype())) return LayerBase::compute_mask(inputs, masks, results);
    return EmbeddingLayer::compute_mask(inputs, masks, results);
  }
};
const RegisterLayer<ReversibleEmbeddingLayer> registered_reversible;

}  // namespace

Layer Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options) {
  return make_configured<EmbeddingLayer>({input_dim, output_dim, options});
}
Layer ReversibleEmbedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options) {
  return make_configured<ReversibleEmbeddingLayer>({input_dim, output_dim, options});
}

}  // namespace lockstep::keras::layers
