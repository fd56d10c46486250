#include "lockstep/keras/layers/attention.h"

#include "keras/layers/attention_mask.h"
#include "keras/layers/noise.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

// Attention without projections: the layers below differ in how they score.
template <class Settings>
class ScoredAttention : public ConfiguredLayer<Settings> {
 public:
  ScoredAttention(const char* class_name, Settings settings)
      : ConfiguredLayer<Settings>(class_name, std::move(settings)),
        source_(*this, this->settings_.options.seed) {}

  void build_all(const std::vector<Shape>& inputs) override {
    require(inputs.size() == 2 || inputs.size() == 3, ErrorCode::invalid_argument, this->where(),
            this->class_name(), " takes {query, value} or {query, value, key}, received ", inputs.size(),
            " inputs");
    make_weights(inputs[0]);
  }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    Tensor weights = scores(inputs[0], inputs.size() > 2 ? inputs[2] : inputs[1]);
    if (Tensor seen = seen_values(weights, context); seen.defined()) {
      // Lowered, not replaced: where nothing is seen the scores still tell.
      const double much = weights.dtype() == DType::float16 ? 65504.0 : 1e9;
      weights = lockstep::where(seen, weights, weights - much);
    }
    weights = softmax(weights);
    if (const double rate = this->settings_.options.dropout; context.training && rate > 0)
      weights = dropout(weights, rate, {.generator = source_.generator()});
    const Tensor result = matmul(weights, inputs[1]);
    const Tensor& query_mask = context.mask();
    TensorList results = {query_mask.defined() ? lockstep::where(expand_dims(query_mask, -1), result, 0.0)
                                               : result};
    if (context.return_attention_scores) results.push_back(weights);
    return results;
  }

  TensorList compute_mask(const TensorList&, const TensorList& masks, size_t) override { return {masks[0]}; }
  bool supports_masking() const override { return true; }

 protected:
  virtual void make_weights(const Shape& query) = 0;
  // (batch, queries, keys)
  virtual Tensor scores(const Tensor& query, const Tensor& key) const = 0;

  static Tensor added_pairwise(const Tensor& query, const Tensor& key) {
    return expand_dims(query, -2) + expand_dims(key, -3);
  }

 private:
  static Tensor seen_values(const Tensor& scores, const CallContext& context) {
    const Tensor value_mask = context.masks.size() > 1 ? context.masks[1] : Tensor();
    const Tensor seen = value_mask.defined() ? expand_dims(value_mask, -2) : Tensor();
    if (!context.use_causal_mask) return seen;
    return both(seen, causal_mask(scores.shape()[-2], scores.shape()[-1]));
  }

  NoiseSource source_;
};

struct AttentionSettings {
  AttentionOptions options;
  void visit(auto& v) {
    v("use_scale", options.use_scale);
    v("score_mode", options.score_mode);
    v("dropout", options.dropout, kBelowOne);
    v("seed", options.seed, kAnything);
  }
};

class AttentionLayer final : public ScoredAttention<AttentionSettings> {
 public:
  static constexpr const char* kClassName = "Attention";
  AttentionLayer(const char* class_name, AttentionSettings settings)
      : ScoredAttention(class_name, std::move(settings)) {
    const std::string& mode = settings_.options.score_mode;
    require(mode == "dot" || mode == "concat", ErrorCode::invalid_argument, std::source_location::current(),
            "Attention: score_mode must be dot or concat, received \"", mode, "\"");
  }

 protected:
  void make_weights(const Shape&) override {
    if (settings_.options.use_scale) scale_ = add_weight("scale", {}, {.initializer = "ones"});
    if (settings_.options.score_mode == "concat")
      concat_weight_ = add_weight("concat_score_weight", {}, {.initializer = "ones"});
  }
  Tensor scores(const Tensor& query, const Tensor& key) const override {
    if (!concat_weight_.defined()) {
      const Tensor products = matmul(query, key, {.transpose_b = true});
      return scale_.defined() ? products * scale_ : products;
    }
    const Tensor sums = added_pairwise(query, key);
    return reduce_sum(tanh(scale_.defined() ? sums * scale_ : sums), {.axis = {-1}}) * concat_weight_;
  }

 private:
  Variable scale_, concat_weight_;
};
const RegisterLayer<AttentionLayer> attention;

struct AdditiveAttentionSettings {
  AdditiveAttentionOptions options;
  void visit(auto& v) {
    v("use_scale", options.use_scale);
    v("dropout", options.dropout, kBelowOne);
    v("seed", options.seed, kAnything);
  }
};

class AdditiveAttentionLayer final : public ScoredAttention<AdditiveAttentionSettings> {
 public:
  static constexpr const char* kClassName = "AdditiveAttention";
  using ScoredAttention::ScoredAttention;

 protected:
  void make_weights(const Shape& query) override {
    if (settings_.options.use_scale) scale_ = add_weight("scale", {query[-1]});
  }
  Tensor scores(const Tensor& query, const Tensor& key) const override {
    const Tensor parts = tanh(added_pairwise(query, key));
    return reduce_sum(scale_.defined() ? parts * scale_ : parts, {.axis = {-1}});
  }

 private:
  Variable scale_;
};
const RegisterLayer<AdditiveAttentionLayer> additive_attention;

}  // namespace

Layer Attention(const AttentionOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AttentionLayer>({options});
}
Layer AdditiveAttention(const AdditiveAttentionOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AdditiveAttentionLayer>({options});
}

}  // namespace lockstep::keras::layers
