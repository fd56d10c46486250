#include "keras/operation_layer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

struct BlockOptions {
  int64_t dim;
  int64_t heads;
  int64_t mlp_dim;
  double dropout;
  bool causal;
  double epsilon;
  bool approximate_gelu;
};

KerasTensor normalized(const KerasTensor& x, double epsilon, const std::string& name) {
  return layers::LayerNormalization({.epsilon = epsilon, .name = name})(x);
}

// As an operation behind the layer: there is no activation of this kind that Keras would know by name.
KerasTensor approximate_gelu(const KerasTensor& x) {
  return call_operation("Gelu", Json::object({{"approximate", true}}),
                        Json::List{Json::object({{"input", 0}})}, {x});
}

// Attention, then a dense network on each position; both see a normalised input and are added to it.
KerasTensor transformer_block(KerasTensor x, const BlockOptions& options, const std::string& name) {
  const auto add = [&](KerasTensor y, const std::string& part) {
    if (options.dropout > 0) y = layers::Dropout(options.dropout, {.name = name + part + "_dropout"})(y);
    x = layers::Add({.name = name + part + "_add"})(KerasTensorList{x, y});
  };
  KerasTensor y = normalized(x, options.epsilon, name + "_attention_norm");
  add(layers::MultiHeadAttention(options.heads, options.dim / options.heads,
                                 {.dropout = options.dropout, .name = name + "_attention"})(
          KerasTensorList{y, y}, {.use_causal_mask = options.causal}),
      "_attention");
  y = normalized(x, options.epsilon, name + "_mlp_norm");
  const Activation gelu = options.approximate_gelu ? Activation() : Activation("gelu");
  y = layers::Dense(options.mlp_dim, {.activation = gelu, .name = name + "_mlp_1"})(y);
  if (options.approximate_gelu) y = approximate_gelu(y);
  add(layers::Dense(options.dim, {.name = name + "_mlp_2"})(y), "_mlp");
  return x;
}

void check_sizes(const char* model, int64_t dim, int64_t depth, int64_t heads) {
  require(dim > 0 && depth >= 0 && heads > 0 && dim % heads == 0, ErrorCode::invalid_argument,
          std::source_location::current(), model,
          ": dim must be a positive multiple of heads and depth not negative, received dim ", dim, ", heads ",
          heads, ", depth ", depth);
}

}  // namespace

Model vit_tiny(const VitOptions& options, std::source_location where) {
  const CallSite site(where);
  const Shape& image = options.input_shape;
  check_sizes("vit_tiny", options.dim, options.depth, options.heads);
  require(image.rank() == 3 && options.patch_size > 0 && image[0] % options.patch_size == 0 &&
              image[1] % options.patch_size == 0,
          ErrorCode::invalid_argument, std::source_location::current(),
          "vit_tiny: input_shape must be (height, width, channels), the first two multiples of patch_size ",
          options.patch_size, "; received ", image);
  const bool token = options.pooling == "token";
  require(token || options.pooling == "mean", ErrorCode::invalid_argument, std::source_location::current(),
          "vit_tiny: pooling must be \"mean\" or \"token\", received \"", options.pooling, "\"");
  const int64_t patches = (image[0] / options.patch_size) * (image[1] / options.patch_size);
  const KerasTensor input = Input(image);
  KerasTensor x = layers::Conv2D(options.dim, options.patch_size,
                                 {.strides = options.patch_size, .name = "patches"})(input);
  x = layers::Reshape({patches, options.dim}, {.name = "sequence"})(x);
  // The token is a learned vector in front of the patches: zeros, to which the embedding of its position adds
  // it.
  if (token) x = layers::ZeroPadding1D({1, 0}, {.name = "with_token"})(x);
  const KerasTensor positions = layers::PositionEmbedding(
      patches + (token ? 1 : 0), {.initializer = "random_normal", .name = "positions"})(x);
  x = layers::Add({.name = "embedded"})(KerasTensorList{x, positions});
  if (options.dropout > 0) x = layers::Dropout(options.dropout, {.name = "embedded_dropout"})(x);
  for (int64_t i = 0; i < options.depth; ++i)
    x = transformer_block(
        x, {options.dim, options.heads, options.mlp_dim, options.dropout, false, options.epsilon, false},
        "block" + std::to_string(i + 1));
  x = normalized(x, options.epsilon, "norm");
  if (token) x = layers::Flatten({.name = "token"})(layers::Cropping1D({0, patches}, {.name = "first"})(x));
  if (!token) x = layers::GlobalAveragePooling1D({.name = "mean"})(x);
  x = layers::Dense(options.classes, {.activation = options.classifier_activation, .name = "predictions"})(x);
  return {input, x, {.name = options.name}};
}

namespace {

// `tied`: the logits are made with the token embeddings.
template <class Options>
Model causal_transformer(const char* model, const Options& options, bool tied) {
  check_sizes(model, options.dim, options.depth, options.heads);
  const KerasTensor tokens = Input({-1}, {.dtype = DType::int32, .name = "tokens"});
  const Layer embedding =
      tied ? layers::ReversibleEmbedding(
                 options.vocabulary, options.dim,
                 {.embeddings_initializer = "random_normal", .name = "token_embedding"})
           : layers::Embedding(options.vocabulary, options.dim, {.name = "token_embedding"});
  KerasTensor x = embedding(tokens);
  const KerasTensor positions =
      layers::PositionEmbedding(options.context, {.initializer = "random_normal", .name = "positions"})(x);
  x = layers::Add({.name = "embedded"})(KerasTensorList{x, positions});
  if (options.dropout > 0) x = layers::Dropout(options.dropout, {.name = "embedded_dropout"})(x);
  const int64_t mlp_dim = options.mlp_dim > 0 ? options.mlp_dim : 4 * options.dim;
  for (int64_t i = 0; i < options.depth; ++i)
    x = transformer_block(x,
                          {options.dim, options.heads, mlp_dim, options.dropout, true, options.epsilon,
                           options.approximate_gelu},
                          "block" + std::to_string(i + 1));
  x = normalized(x, options.epsilon, "norm");
  x = tied ? embedding(x) : layers::Dense(options.vocabulary, {.use_bias = false, .name = "logits"})(x);
  return {tokens, x, {.name = options.name}};
}

}  // namespace

Model gpt_tiny(const GptOptions& options, std::source_location where) {
  const CallSite site(where);
  return causal_transformer("gpt_tiny", options, false);
}
Model gpt2(const Gpt2Options& options, std::source_location where) {
  const CallSite site(where);
  return causal_transformer("gpt2", options, true);
}

}  // namespace lockstep::keras::applications
