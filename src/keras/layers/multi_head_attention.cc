#include <algorithm>
#include <cmath>
#include <utility>

#include "keras/functional_graph.h"
#include "keras/layers/attention_mask.h"
#include "keras/layers/noise.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/attention.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"

namespace lockstep::keras::layers {
namespace {

std::string letters(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + first + i);
  return text;
}

// "abc,cde->abde" for two free dimensions, one that is summed over and two new ones; and the new ones, "de".
struct Projection {
  std::string equation;
  std::string bias_axes;
};
Projection projection(int free, int bound, int output) {
  const std::string lead = letters(0, free), inner = letters(free, bound),
                    made = letters(free + bound, output);
  return {lead + inner + "," + inner + made + "->" + lead + made, made};
}

// Which dimensions of projected query, key and value (batch, ..., heads, dim) attention runs over, as
// equations.
struct AttentionEquations {
  std::string scores;  // key, query -> scores (batch, heads, query positions..., key positions...)
  std::string combine;
  int axes = 1;
};
AttentionEquations attention_equations(int rank, const std::vector<int64_t>& axes) {
  const std::string target = letters(0, rank);
  std::string source = target, lead;
  int next = rank;
  for (int d = 0; d < rank - 1; ++d)
    if (std::find(axes.begin(), axes.end(), d) != axes.end())
      source[static_cast<size_t>(d)] = letters(next++, 1)[0];
    else
      lead += target[static_cast<size_t>(d)];
  std::string product = lead;
  for (const int64_t d : axes) product += target[static_cast<size_t>(d)];
  for (const int64_t d : axes) product += source[static_cast<size_t>(d)];
  return {source + "," + target + "->" + product, product + "," + source + "->" + target,
          static_cast<int>(axes.size())};
}

// What the two layers with heads share: projections by layers inside, the mask, the gate.
template <class Settings>
class HeadsLayer : public ConfiguredLayer<Settings> {
 public:
  // The activity regularizer is that of the projections, not of the result.
  HeadsLayer(const char* class_name, Settings settings)
      : ConfiguredLayer<Settings>(class_name, with_regularizer_apart(std::move(settings))),
        source_(*this, this->settings_.options.seed) {}

  TensorList compute_mask(const TensorList&, const TensorList& masks, size_t) override { return {masks[0]}; }
  bool inputs_are_arguments() const override { return true; }
  bool supports_masking() const override { return true; }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    const Tensor &query = inputs[0], &value = inputs[1], &key = inputs.size() > 2 ? inputs[2] : inputs[1];
    const Tensor q = query_(unmasked(query)), k = key_(unmasked(key)), v = value_(unmasked(value));
    Tensor scores;
    Tensor result = attend(q, k, v, context, context.return_attention_scores ? &scores : nullptr);
    if (gate_.defined()) result = result * gate_(unmasked(query));
    TensorList results = {output_(result)};
    if (scores.defined()) results.push_back(scores);
    return results;
  }

 protected:
  // `scores`: where the softmax goes, for who asks for it; it is not kept otherwise.
  virtual Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                        const CallContext& context, Tensor* scores) const = 0;

  void check_inputs(const std::vector<Shape>& inputs) const {
    require(inputs.size() == 2 || inputs.size() == 3, ErrorCode::invalid_argument, this->where(),
            this->class_name(), " takes {query, value} or {query, value, key}, received ", inputs.size(),
            " inputs");
    const Shape &value = inputs[1], &key = inputs.back();
    bool same = value.rank() == key.rank();
    for (int d = 1; same && d < value.rank() - 1; ++d)
      same = value[d] < 0 || key[d] < 0 || value[d] == key[d];
    require(same, ErrorCode::shape_mismatch, this->where(), this->class_name(),
            ": value and key must be alike but for the last dimension, received ", value, " and ", key);
  }

  Layer projection_layer(const char* name, const Projection& equation, const Shape& output_shape,
                         const Shape& input, const keras::Activation& activation = {}) {
    const auto& o = this->settings_.options;
    const Layer layer =
        this->track(EinsumDense(equation.equation, output_shape,
                                {.activation = activation,
                                 .bias_axes = o.use_bias ? std::optional(equation.bias_axes) : std::nullopt,
                                 .kernel_initializer = o.kernel_initializer,
                                 .bias_initializer = o.bias_initializer,
                                 .kernel_regularizer = o.kernel_regularizer,
                                 .bias_regularizer = o.bias_regularizer,
                                 .activity_regularizer = this->settings_.activity_regularizer,
                                 .kernel_constraint = o.kernel_constraint,
                                 .bias_constraint = o.bias_constraint,
                                 .name = name,
                                 .dtype = this->policy()}));
    layer.build(input, this->where());
    return layer;
  }

  // As Keras' attributes are called: "query_dense", ..., behind `prefix`; the gate's is always private.
  std::vector<std::string> names_of_projections(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const Layer& layer : this->layers())
      names.push_back((layer == gate_ ? "_" : prefix) + (layer == output_ ? "output" : layer.name()) +
                      "_dense");
    return names;
  }

  // What is seen, but for causality: (batch, queries, keys) with sizes of 1 where it is the same for all.
  Tensor mask_for(const Tensor& query, const Tensor& key, const CallContext& context) const {
    const std::optional<int64_t>& window = this->settings_.options.sliding_window;
    if (!window) return seen_keys(context);
    return both(seen_keys(context), sliding_window_mask(query.shape()[1], key.shape()[1], *window));
  }
  double dropout_rate(const CallContext& context) const {
    return context.training ? this->settings_.options.dropout : 0;
  }
  // Query, key and value are (batch, positions, heads, dim).
  Tensor attend_to_sequence(const Tensor& query, const Tensor& key, const Tensor& value, double scale,
                            const CallContext& context, Tensor* scores) const {
    const Tensor mask = mask_for(query, key, context);
    if (scores) return attend_with_scores(query, key, value, mask, scale, context, *scores);
    return scaled_dot_product_attention(query, key, value,
                                        {.mask = mask.defined() ? expand_dims(mask, 1) : mask,
                                         .scale = scale,
                                         .is_causal = context.use_causal_mask,
                                         .dropout = dropout_rate(context),
                                         .generator = source_.generator()});
  }

  Tensor attend_with_scores(const Tensor& query, const Tensor& key, const Tensor& value, Tensor mask,
                            double scale, const CallContext& context, Tensor& scores) const {
    // Several heads of queries may share one of keys.
    const int64_t sharing = query.shape()[2] / key.shape()[2];
    const auto spread = [&](const Tensor& x) { return sharing > 1 ? repeat(x, sharing, 2) : x; };
    Tensor logits = einsum("bqhd,bkhd->bhqk", {query * scale, spread(key)});
    if (context.use_causal_mask) mask = both(mask, causal_mask(query.shape()[1], key.shape()[1]));
    if (mask.defined()) {
      mask = expand_dims(mask, 1);
      logits = lockstep::where(mask, logits, logits.dtype() == DType::float16 ? -3e4 : -1e9);
    }
    scores = softmax(logits);
    // A query that sees nothing gives zeros, with scores and without.
    if (mask.defined()) scores = lockstep::where(mask, scores, 0.0);
    const Tensor kept = dropout(scores, dropout_rate(context), {.generator = source_.generator()});
    return einsum("bhqk,bkhd->bqhd", {kept, spread(value)});
  }

  NoiseSource source_;
  Layer query_, key_, gate_, value_, output_;

 private:
  static Settings with_regularizer_apart(Settings settings) {
    Regularizer& of_result = settings.options.activity_regularizer;
    if (of_result.defined()) settings.activity_regularizer = std::exchange(of_result, {});
    return settings;
  }
  // The masks are heeded here: the layers inside know none.
  static Tensor unmasked(const Tensor& x) { return mask_of(x).defined() ? identity(x) : x; }
};

void visit_projections(auto& v, auto& settings) {
  auto& o = settings.options;
  v("kernel_initializer", o.kernel_initializer);
  v("bias_initializer", o.bias_initializer);
  v("kernel_regularizer", o.kernel_regularizer);
  v("bias_regularizer", o.bias_regularizer);
  v("activity_regularizer", settings.activity_regularizer);
  v("kernel_constraint", o.kernel_constraint);
  v("bias_constraint", o.bias_constraint);
  v("seed", o.seed, kAnything);
}

// --- MultiHeadAttention ------------------------------------------------------------------------------------

struct MultiHeadAttentionSettings {
  int64_t num_heads = 0;
  int64_t key_dim = 0;
  MultiHeadAttentionOptions options;
  Regularizer activity_regularizer = {};
  void visit(auto& v) {
    v("num_heads", num_heads, kPositive);
    v("key_dim", key_dim, kPositive);
    v("value_dim", options.value_dim, kPositive);
    v("dropout", options.dropout, kBelowOne);
    v("use_bias", options.use_bias);
    v("use_gate", options.use_gate);
    v("output_shape", options.output_shape, kPositive);
    v("attention_axes", options.attention_axes, kFinite);
    v("sliding_window", options.sliding_window, kPositive);
    visit_projections(v, *this);
  }
};

class MultiHeadAttentionLayer final : public HeadsLayer<MultiHeadAttentionSettings> {
 public:
  static constexpr const char* kClassName = "MultiHeadAttention";
  MultiHeadAttentionLayer(const char* class_name, MultiHeadAttentionSettings settings)
      : HeadsLayer(class_name, std::move(settings)) {
    MultiHeadAttentionOptions& o = settings_.options;
    if (!o.value_dim) o.value_dim = settings_.key_dim;
    // Lists in files, whatever was given.
    for (Axes* axes : {&o.output_shape, &o.attention_axes})
      if (axes->single()) *axes = Axes(axes->values());
  }

  std::vector<std::string> stored_names() const override { return names_of_projections(""); }

  void build_all(const std::vector<Shape>& inputs) override {
    check_inputs(inputs);
    const Shape &query = inputs[0], &value = inputs[1], &key = inputs.back();
    MultiHeadAttentionOptions& o = settings_.options;
    const auto heads = [&](int rank, int64_t dim) {
      Shape shape = Dims::filled(rank, -1);
      shape[-2] = settings_.num_heads;
      shape[-1] = dim;
      return shape;
    };
    const auto into_heads = [&](const char* name, const Shape& input, int64_t dim,
                                const keras::Activation& activation = {}) {
      return projection_layer(name, projection(input.rank() - 1, 1, 2), heads(input.rank(), dim), input,
                              activation);
    };
    query_ = into_heads("query", query, settings_.key_dim);
    key_ = into_heads("key", key, settings_.key_dim);
    if (o.use_gate) gate_ = into_heads("gate", query, *o.value_dim, "sigmoid");
    value_ = into_heads("value", value, *o.value_dim);

    const int rank = value.rank() + 1;
    std::vector<int64_t> axes;
    for (const int64_t axis : o.attention_axes.values()) axes.push_back(axis >= 0 ? axis : rank - 1 + axis);
    if (!o.attention_axes.defined())
      for (int64_t d = 1; d < rank - 2; ++d) axes.push_back(d);
    for (const int64_t axis : axes)
      require(axis > 0 && axis < rank - 2, ErrorCode::invalid_argument, where(),
              "MultiHeadAttention: attention_axes names dimensions between the batch and the last of ", value,
              ", received ", Dims(o.attention_axes.values()));
    o.attention_axes = Axes(axes);
    equations_ = attention_equations(rank, axes);

    Shape output = o.output_shape.defined() ? Shape(o.output_shape.values()) : Shape{query[-1]};
    const int made = output.rank();
    for (int d = 1; d < query.rank() - 1; ++d) output.insert(0, -1);
    Shape result = query;
    result[-1] = settings_.num_heads;
    result.push_back(*o.value_dim);
    output_ = projection_layer("attention_output", projection(query.rank() - 1, 2, made), output, result);
  }

 protected:
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const CallContext& context,
                Tensor* scores_out) const override {
    const double scale = 1 / std::sqrt(static_cast<double>(settings_.key_dim));
    if (query.rank() == 4) return attend_to_sequence(query, key, value, scale, context, scores_out);
    Tensor mask = mask_for(query, key, context);
    if (context.use_causal_mask) mask = both(mask, causal_mask(query.shape()[1], key.shape()[1]));
    const Tensor scores = einsum(equations_.scores, {key, query * scale});
    const Tensor weights = softmax_over_keys(scores, mask);
    if (scores_out) *scores_out = weights;
    const Tensor kept = dropout(weights, dropout_rate(context), {.generator = source_.generator()});
    return einsum(equations_.combine, {kept, value});
  }

 private:
  // Over all key positions together; 0 where the mask says so.
  Tensor softmax_over_keys(Tensor scores, Tensor mask) const {
    const int axes = equations_.axes;
    const Shape whole = scores.shape();
    if (mask.defined()) {
      while (mask.rank() < scores.rank()) mask = expand_dims(mask, -2 * axes - 1);
      scores = lockstep::where(mask, scores, scores.dtype() == DType::float16 ? -3e4 : -1e9);
    }
    Shape flat = whole.drop_last(axes);
    int64_t keys = 1;
    for (int d = 1; d <= axes; ++d) keys *= whole[-d];
    flat.push_back(keys);
    const Tensor weights = reshape(softmax(reshape(scores, flat)), whole);
    return mask.defined() ? lockstep::where(mask, weights, 0.0) : weights;
  }

  AttentionEquations equations_;
};
const RegisterLayer<MultiHeadAttentionLayer> multi_head_attention;

// --- GroupQueryAttention -----------------------------------------------------------------------------------

struct GroupQueryAttentionSettings {
  int64_t head_dim = 0;
  int64_t num_query_heads = 0;
  int64_t num_key_value_heads = 0;
  GroupQueryAttentionOptions options;
  Regularizer activity_regularizer = {};
  void visit(auto& v) {
    v("head_dim", head_dim, kPositive);
    v("num_query_heads", num_query_heads, kPositive);
    v("num_key_value_heads", num_key_value_heads, kPositive);
    v("use_bias", options.use_bias);
    v("use_gate", options.use_gate);
    v("sliding_window", options.sliding_window, kPositive);
    v("dropout", options.dropout, kBelowOne);
    visit_projections(v, *this);
  }
};

class GroupQueryAttentionLayer final : public HeadsLayer<GroupQueryAttentionSettings> {
 public:
  static constexpr const char* kClassName = "GroupQueryAttention";
  GroupQueryAttentionLayer(const char* class_name, GroupQueryAttentionSettings settings)
      : HeadsLayer(class_name, std::move(settings)) {
    const auto& s = settings_;
    require(s.num_query_heads % s.num_key_value_heads == 0, ErrorCode::invalid_argument,
            std::source_location::current(),
            "GroupQueryAttention: num_query_heads must be a multiple of num_key_value_heads, received ",
            s.num_query_heads, " and ", s.num_key_value_heads);
  }

  std::vector<std::string> stored_names() const override { return names_of_projections("_"); }

  void build_all(const std::vector<Shape>& inputs) override {
    check_inputs(inputs);
    for (const Shape& input : inputs)
      require(input.rank() == 3, ErrorCode::shape_mismatch, where(),
              "GroupQueryAttention takes inputs (batch, positions, features), received shape ", input);
    const Shape &query = inputs[0], &value = inputs[1], &key = inputs.back();
    const auto& s = settings_;
    const auto into_heads = [&](const char* name, const Shape& input, int64_t heads,
                                const keras::Activation& activation = {}) {
      return projection_layer(name, projection(2, 1, 2), {-1, heads, s.head_dim}, input, activation);
    };
    query_ = into_heads("query", query, s.num_query_heads);
    key_ = into_heads("key", key, s.num_key_value_heads);
    if (s.options.use_gate) gate_ = into_heads("gate", query, s.num_query_heads, "sigmoid");
    value_ = into_heads("value", value, s.num_key_value_heads);
    output_ = projection_layer("attention_output", projection(2, 2, 1), {-1, query[-1]},
                               {query[0], query[1], s.num_query_heads, s.head_dim});
  }

 protected:
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const CallContext& context,
                Tensor* scores_out) const override {
    return attend_to_sequence(query, key, value, 1 / std::sqrt(static_cast<double>(settings_.head_dim)),
                              context, scores_out);
  }
};
const RegisterLayer<GroupQueryAttentionLayer> group_query_attention({"GroupedQueryAttention"});

}  // namespace

Layer MultiHeadAttention(int64_t num_heads, int64_t key_dim, const MultiHeadAttentionOptions& options,
                         std::source_location where) {
  const CallSite site(where);
  return make_configured<MultiHeadAttentionLayer>({num_heads, key_dim, options});
}
Layer GroupQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                          const GroupQueryAttentionOptions& options, std::source_location where) {
  const CallSite site(where);
  // Keras exports the class GroupedQueryAttention under a shorter name, but names layers after the class.
  GroupQueryAttentionOptions named = options;
  if (named.name.empty()) named.name = unique_name("grouped_query_attention");
  return make_configured<GroupQueryAttentionLayer>({head_dim, num_query_heads, num_key_value_heads, named});
}

}  // namespace lockstep::keras::layers
