#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "ops/array/lookup.h"

namespace lockstep::keras::layers {
namespace {

template <class Options>
struct TableSettings {
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  Options options;
  void visit(auto& v) {
    v("input_dim", input_dim, kPositive);
    v("output_dim", output_dim, kPositive);
    v("embeddings_initializer", options.embeddings_initializer);
    v("embeddings_regularizer", options.embeddings_regularizer);
    v("activity_regularizer", options.activity_regularizer);
    v("embeddings_constraint", options.embeddings_constraint);
    v("mask_zero", options.mask_zero);
    if constexpr (requires { options.tie_weights; }) {
      v("tie_weights", options.tie_weights);
      v("reverse_dtype", options.reverse_dtype);
      v("logit_soft_cap", options.logit_soft_cap, kPositive);
    }
  }
};

template <class Options>
class TableLayer : public ConfiguredLayer<TableSettings<Options>> {
 public:
  TableLayer(const char* class_name, TableSettings<Options> settings)
      : ConfiguredLayer<TableSettings<Options>>(class_name, std::move(settings)) {
    const TableSettings<Options>& s = this->settings_;
    const Tensor& weights = s.options.weights;
    const Shape shape{s.input_dim, s.output_dim};
    require(!weights.defined() || weights.shape() == shape, ErrorCode::shape_mismatch,
            std::source_location::current(), class_name, ": weights must be of shape ", shape, ", received ",
            weights.defined() ? weights.shape() : Shape());
  }

  // Rows are converted after they are looked up: the table itself is read as it is.
  void build(const Shape&) override {
    const TableSettings<Options>& s = this->settings_;
    embeddings_ = this->add_weight("embeddings", {s.input_dim, s.output_dim},
                                   {.initializer = s.options.embeddings_initializer,
                                    .regularizer = s.options.embeddings_regularizer,
                                    .constraint = s.options.embeddings_constraint,
                                    .autocast = false});
    if (s.options.weights.defined()) embeddings_.assign(cast(s.options.weights, embeddings_.dtype()));
  }

  Tensor call(const Tensor& indices, const CallContext&) override {
    return cast(gather(embeddings_, as_integers(indices)), this->compute_dtype());
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList&, size_t) override {
    if (!this->settings_.options.mask_zero) return {};
    return {not_equal(inputs[0], 0)};
  }
  bool supports_masking() const override { return this->settings_.options.mask_zero; }
  bool autocast_inputs() const override { return false; }

 protected:
  Variable embeddings_;

 private:
  static Tensor as_integers(const Tensor& x) {
    if (x.dtype() == DType::int32 || x.dtype() == DType::int64) return x;
    // Fractions are cut off, as in Keras; what is no number is no row.
    return whole_numbers(is_floating(x.dtype()) ? truncate(x) : x);
  }
};

class EmbeddingLayer final : public TableLayer<EmbeddingOptions> {
 public:
  static constexpr const char* kClassName = "Embedding";
  using TableLayer::TableLayer;
};
const RegisterLayer<EmbeddingLayer> embedding;

class ReversibleEmbeddingLayer final : public TableLayer<ReversibleEmbeddingOptions> {
 public:
  static constexpr const char* kClassName = "ReversibleEmbedding";
  using TableLayer::TableLayer;

  void build(const Shape& input) override {
    TableLayer::build(input);
    const ReversibleEmbeddingOptions& o = settings_.options;
    if (!o.tie_weights)
      reverse_ = add_weight("reverse_embeddings", {settings_.output_dim, settings_.input_dim},
                            {.initializer = o.embeddings_initializer, .autocast = false});
  }

  Tensor call(const Tensor& x, const CallContext& context) override {
    if (!is_floating(x.dtype())) return TableLayer::call(x, context);
    const ReversibleEmbeddingOptions& o = settings_.options;
    require(x.rank() > 1 && x.shape()[-1] == settings_.output_dim, ErrorCode::shape_mismatch, where(),
            "ReversibleEmbedding: vectors must be (batch, ..., ", settings_.output_dim, "), received shape ",
            x.shape());
    const DType dtype = o.reverse_dtype ? DTypePolicy(*o.reverse_dtype).compute_dtype() : compute_dtype();
    Tensor logits = matmul(cast(x, dtype), cast(o.tie_weights ? embeddings_ : reverse_, dtype),
                           {.transpose_b = o.tie_weights});
    if (o.logit_soft_cap) logits = tanh(logits / *o.logit_soft_cap) * *o.logit_soft_cap;
    return logits;
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override {
    if (is_floating(inputs[0].dtype())) return {};
    return TableLayer::compute_mask(inputs, masks, results);
  }

 private:
  Variable reverse_;
};
const RegisterLayer<ReversibleEmbeddingLayer> reversible_embedding;

}  // namespace

Layer Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options,
                std::source_location where) {
  const CallSite site(where);
  return make_configured<EmbeddingLayer>({input_dim, output_dim, options});
}
Layer ReversibleEmbedding(int64_t input_dim, int64_t output_dim, const ReversibleEmbeddingOptions& options,
                          std::source_location where) {
  const CallSite site(where);
  return make_configured<ReversibleEmbeddingLayer>({input_dim, output_dim, options});
}

}  // namespace lockstep::keras::layers
