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
};

KerasTensor normalized(const KerasTensor& x, const std::string& name) {
  return layers::LayerNormalization({.epsilon = 1e-6, .name = name})(x);
}

// Attention, then a dense network on each position; both see a normalised input and are added to it.
KerasTensor transformer_block(KerasTensor x, const BlockOptions& options, const std::string& name) {
  const auto add = [&](KerasTensor y, const std::string& part) {
    if (options.dropout > 0) y = layers::Dropout(options.dropout, {.name = name + part + "_dropout"})(y);
    x = layers::Add({.name = name + part + "_add"})(KerasTensorList{x, y});
  };
  KerasTensor y = normalized(x, name + "_attention_norm");
  add(layers::MultiHeadAttention(options.heads, options.dim / options.heads,
                                 {.dropout = options.dropout, .name = name + "_attention"})(
          KerasTensorList{y, y}, {.use_causal_mask = options.causal}),
      "_attention");
  y = normalized(x, name + "_mlp_norm");
  y = layers::Dense(options.mlp_dim, {.activation = "gelu", .name = name + "_mlp_1"})(y);
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
  const int64_t patches = (image[0] / options.patch_size) * (image[1] / options.patch_size);
  const KerasTensor input = Input(image);
  KerasTensor x = layers::Conv2D(options.dim, options.patch_size,
                                 {.strides = options.patch_size, .name = "patches"})(input);
  x = layers::Reshape({patches, options.dim}, {.name = "sequence"})(x);
  const KerasTensor positions =
      layers::PositionEmbedding(patches, {.initializer = "random_normal", .name = "positions"})(x);
  x = layers::Add({.name = "embedded"})(KerasTensorList{x, positions});
  if (options.dropout > 0) x = layers::Dropout(options.dropout, {.name = "embedded_dropout"})(x);
  for (int64_t i = 0; i < options.depth; ++i)
    x = transformer_block(x, {options.dim, options.heads, options.mlp_dim, options.dropout, false},
                          "block" + std::to_string(i + 1));
  x = layers::GlobalAveragePooling1D({.name = "mean"})(normalized(x, "norm"));
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
    x = transformer_block(x, {options.dim, options.heads, mlp_dim, options.dropout, true},
                          "block" + std::to_string(i + 1));
  x = normalized(x, "norm");
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
