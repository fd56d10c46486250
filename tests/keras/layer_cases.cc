#include "keras/layer_cases.h"

#include "lockstep/keras/layers.h"

namespace lockstep::keras::testing {

using namespace layers;  // NOLINT(google-build-using-namespace): a table of nothing but layers

namespace {

LayerInput x(const Shape& shape) { return {.shape = shape}; }
LayerInput indices(const Shape& shape, int64_t below) {
  return {.shape = shape, .dtype = DType::int32, .below = below};
}

// A mask of sequences of four steps.
Tensor some_of_four() { return Tensor::from(std::vector<bool>{false, true, false, true}, {1, 4}); }

}  // namespace

const std::vector<LayerCase>& layer_cases() {
  // The first tensor of a program fixes its devices, and rows hold tensors.
  static const bool two_devices = (set_logical_cpus({.threads_of = {1, 1}}), true);
  static_cast<void>(two_devices);
  static const std::vector<std::string> kernel_bias = {"kernel", "bias"};
  static const std::vector<std::string> lstm_weights = {"lstm_cell/kernel", "lstm_cell/recurrent_kernel",
                                                        "lstm_cell/bias"};
  static const std::vector<std::string> conv_lstm_weights = {
      "conv_lstm_cell/kernel", "conv_lstm_cell/recurrent_kernel", "conv_lstm_cell/bias"};
  static const std::vector<std::string> gru_weights = {"gru_cell/kernel", "gru_cell/recurrent_kernel",
                                                       "gru_cell/bias"};
  static const std::vector<std::string> attention_weights = {"query/kernel",
                                                             "query/bias",
                                                             "key/kernel",
                                                             "key/bias",
                                                             "value/kernel",
                                                             "value/bias",
                                                             "attention_output/kernel",
                                                             "attention_output/bias"};
  static const std::vector<LayerCase> cases = {
      // --- core ---
      {.name = "dense", .make = [] { return Dense(3); }, .inputs = {x({4})}, .weights = {"kernel", "bias"}},
      {.name = "dense_of_sequences",
       .make = [] { return Dense(3, {.activation = "tanh", .use_bias = false}); },
       .inputs = {x({2, 4})},
       .weights = {"kernel"}},
      {.name = "einsum_dense",
       .make =
           [] {
             return EinsumDense("abc,cd->abd", {-1, 3}, {.bias_axes = "d"});
           },
       .inputs = {x({2, 4})},
       .weights = {"kernel", "bias"}},
      {.name = "einsum_dense_dots",
       .make = [] { return EinsumDense("...x,xy->...y", {3}, {.activation = "tanh", .bias_axes = "y"}); },
       .inputs = {x({2, 3, 4})},
       .weights = {"kernel", "bias"}},
      {.name = "einsum_dense_dots_behind",
       .make = [] { return EinsumDense("ab...,bc->ac...", {3}, {.bias_axes = "c"}); },
       .inputs = {x({4, 2, 2})},
       .weights = {"kernel", "bias"}},
      {.name = "einsum_dense_transposed",
       .make =
           [] {
             return EinsumDense("abc,dc->adb", {3, 2}, {.bias_axes = "d"});
           },
       .inputs = {x({2, 4})},
       .weights = {"kernel", "bias"}},
      {.name = "embedding",
       .make = [] { return Embedding(5, 3); },
       .inputs = {indices({4}, 5)},
       .weights = {"embeddings"},
       .differentiable = false},
      {.name = "position_embedding",
       .make = [] { return PositionEmbedding(6); },
       .inputs = {x({4, 3})},
       .weights = {"embeddings"},
       .differentiable = false},
      {.name = "embedding_masked",
       .make = [] { return Embedding(5, 3, {.embeddings_regularizer = "l2", .mask_zero = true}); },
       .inputs = {indices({4}, 5)},
       .weights = {"embeddings"},
       .differentiable = false},
      {.name = "reversible_embedding",
       .make = [] { return ReversibleEmbedding(5, 3); },
       .inputs = {indices({4}, 5)},
       .weights = {"embeddings"},
       .differentiable = false},
      {.name = "reversible_embedding_back",
       .make = [] { return ReversibleEmbedding(5, 3, {.logit_soft_cap = 2}); },
       .inputs = {x({4, 3})},
       .weights = {"embeddings"}},
      {.name = "activation", .make = [] { return layers::Activation("gelu"); }, .inputs = {x({4})}},
      {.name = "identity", .make = [] { return Identity(); }, .inputs = {x({4})}},
      {.name = "masking", .make = [] { return Masking({.mask_value = 0.5}); }, .inputs = {x({2, 3})}},
      {.name = "dropout", .make = [] { return Dropout(0.5); }, .inputs = {x({4})}, .random = true},
      {.name = "dropout_shared",
       .make =
           [] {
             return Dropout(0.5, {.noise_shape = Shape{-1, 1, 3}, .seed = 3});
           },
       .inputs = {x({2, 3})},
       .random = true},
      {.name = "alpha_dropout",
       .make = [] { return AlphaDropout(0.3, {.seed = 3}); },
       .inputs = {x({4})},
       .random = true},
      {.name = "spatial_dropout_1d",
       .make = [] { return SpatialDropout1D(0.5); },
       .inputs = {x({2, 3})},
       .random = true},
      {.name = "spatial_dropout_2d",
       .make = [] { return SpatialDropout2D(0.5, {.data_format = "channels_first", .seed = 1}); },
       .inputs = {x({3, 2, 2})},
       .random = true},
      {.name = "spatial_dropout_3d",
       .make = [] { return SpatialDropout3D(0.5); },
       .inputs = {x({2, 2, 2, 3})},
       .random = true},
      {.name = "gaussian_noise",
       .make = [] { return GaussianNoise(0.5); },
       .inputs = {x({4})},
       .random = true},
      {.name = "gaussian_dropout",
       .make = [] { return GaussianDropout(0.5); },
       .inputs = {x({4})},
       .random = true},
      {.name = "activity_regularization",
       .make = [] { return ActivityRegularization({.l1 = 0.1, .l2 = 0.2}); },
       .inputs = {x({4})}},
      {.name = "flatten", .make = [] { return Flatten(); }, .inputs = {x({2, 3, 4})}},
      {.name = "flatten_channels_first",
       .make = [] { return Flatten({.data_format = "channels_first"}); },
       .inputs = {x({2, 3, 4})}},
      {.name = "flatten_vector", .make = [] { return Flatten(); }, .inputs = {x({})}},
      {.name = "reshape",
       .make =
           [] {
             return Reshape({3, 2});
           },
       .inputs = {x({6})}},
      {.name = "reshape_open",
       .make =
           [] {
             return Reshape({-1, 2});
           },
       .inputs = {x({3, 4})}},
      {.name = "permute",
       .make =
           [] {
             return Permute({2, 1});
           },
       .inputs = {x({2, 3})}},
      {.name = "repeat_vector", .make = [] { return RepeatVector(3); }, .inputs = {x({4})}},
      // --- activations ---
      {.name = "relu", .make = [] { return ReLU(); }, .inputs = {x({4})}},
      {.name = "relu_full",
       .make = [] { return ReLU({.max_value = 1, .negative_slope = 0.1, .threshold = 0.2}); },
       .inputs = {x({4})}},
      {.name = "leaky_relu", .make = [] { return LeakyReLU(); }, .inputs = {x({4})}},
      {.name = "prelu",
       .make = [] { return PReLU({.alpha_initializer = initializers::Constant(0.25)}); },
       .inputs = {x({2, 3})},
       .weights = {"alpha"}},
      {.name = "prelu_shared",
       .make = [] { return PReLU({.shared_axes = {1}}); },
       .inputs = {x({2, 3})},
       .weights = {"alpha"}},
      {.name = "elu", .make = [] { return ELU({.alpha = 0.7}); }, .inputs = {x({4})}},
      {.name = "softmax", .make = [] { return Softmax(); }, .inputs = {x({4})}},
      {.name = "softmax_axes",
       .make =
           [] {
             return Softmax({.axis = {1, 2}});
           },
       .inputs = {x({2, 3, 2})}},
      // --- merging ---
      {.name = "add", .make = [] { return Add(); }, .inputs = {x({2, 3}), x({2, 3}), x({2, 3})}},
      {.name = "add_broadcast", .make = [] { return Add(); }, .inputs = {x({2, 3}), x({3})}},
      {.name = "subtract", .make = [] { return Subtract(); }, .inputs = {x({3}), x({3})}},
      {.name = "multiply", .make = [] { return Multiply(); }, .inputs = {x({2, 3}), x({1, 3})}},
      {.name = "average", .make = [] { return Average(); }, .inputs = {x({3}), x({3}), x({3})}},
      {.name = "maximum", .make = [] { return Maximum(); }, .inputs = {x({3}), x({3})}},
      {.name = "minimum", .make = [] { return Minimum(); }, .inputs = {x({3}), x({3})}},
      {.name = "concatenate",
       .make = [] { return Concatenate({.axis = 1}); },
       .inputs = {x({2, 3}), x({4, 3})}},
      {.name = "dot", .make = [] { return Dot(1); }, .inputs = {x({3}), x({3})}},
      {.name = "dot_axes",
       .make =
           [] {
             return Dot({1, 2}, {.normalize = true});
           },
       .inputs = {x({3, 2}), x({4, 3})}},
      // --- normalization ---
      {.name = "batch_normalization",
       .make = [] { return BatchNormalization(); },
       .inputs = {x({3})},
       .weights = {"gamma", "beta", "moving_mean", "moving_variance"}},
      {.name = "batch_normalization_images",
       .make =
           [] {
             return BatchNormalization({.axis = 1, .momentum = 0.5, .scale = false, .synchronized = true});
           },
       .inputs = {x({3, 2, 2})},
       .weights = {"beta", "moving_mean", "moving_variance"}},
      {.name = "batch_renormalization",
       .make =
           [] {
             return BatchNormalization(
                 {.renorm = true, .renorm_clipping = {.rmin = 0.5, .rmax = 2, .dmax = 1}});
           },
       .inputs = {x({3})},
       .weights = {"gamma", "beta", "moving_mean", "moving_variance", "moving_stddev", "renorm_mean",
                   "renorm_stddev"},
       .random = true},
      {.name = "layer_normalization",
       .make = [] { return LayerNormalization(); },
       .inputs = {x({2, 4})},
       .weights = {"gamma", "beta"}},
      {.name = "layer_normalization_axes",
       .make =
           [] {
             return LayerNormalization({.axis = {1, 3}, .scale = false});
           },
       .inputs = {x({2, 3, 2})},
       .weights = {"beta"}},
      {.name = "layer_normalization_last_two",
       .make =
           [] {
             return LayerNormalization({.axis = {-1, -2}});
           },
       .inputs = {x({3, 2})},
       .weights = {"gamma", "beta"}},
      {.name = "layer_normalization_rms",
       .make = [] { return LayerNormalization({.axis = 1, .rms_scaling = true}); },
       .inputs = {x({3, 2})},
       .weights = {"gamma"}},
      {.name = "group_normalization",
       .make = [] { return GroupNormalization({.groups = 2}); },
       .inputs = {x({3, 4})},
       .weights = {"gamma", "beta"}},
      {.name = "group_normalization_first",
       .make = [] { return GroupNormalization({.groups = -1, .axis = 1, .center = false}); },
       .inputs = {x({2, 3})},
       .weights = {"gamma"}},
      {.name = "rms_normalization",
       .make = [] { return RMSNormalization(); },
       .inputs = {x({4})},
       .weights = {"scale"}},
      {.name = "unit_normalization",
       .make =
           [] {
             return UnitNormalization({.axis = {1, 2}});
           },
       .inputs = {x({2, 3})}},
      {.name = "spectral_normalization",
       .make = [] { return SpectralNormalization(Dense(3)); },
       .inputs = {x({4})},
       .weights = {"dense/kernel", "vector_u", "dense/bias"},
       .random = true},
      // --- preprocessing ---
      {.name = "rescaling", .make = [] { return Rescaling(1 / 255.0, -1.0); }, .inputs = {x({4})}},
      {.name = "rescaling_lists",
       .make =
           [] {
             return Rescaling({1, 2, 3}, {0.5, 0, 1});
           },
       .inputs = {x({2, 3})}},
      {.name = "normalization",
       .make = [] { return Normalization(); },
       .inputs = {x({4})},
       .weights = {"mean", "variance", "count"}},
      {.name = "normalization_given",
       .make =
           [] {
             return Normalization({.mean = {1, 2, 3}, .variance = {1, 4, 9}, .invert = true});
           },
       .inputs = {x({2, 3})}},
      {.name = "normalization_all",
       .make = [] { return Normalization({.axis = {}, .mean = 2, .variance = 4}); },
       .inputs = {x({2, 3})}},
      {.name = "category_encoding",
       .make = [] { return CategoryEncoding(5); },
       .inputs = {indices({4}, 5)},
       .differentiable = false},
      {.name = "category_encoding_one_hot",
       .make = [] { return CategoryEncoding(5, {.output_mode = "one_hot"}); },
       .inputs = {indices({4}, 5)},
       .differentiable = false},
      {.name = "category_encoding_count",
       .make = [] { return CategoryEncoding(5, {.output_mode = "count"}); },
       .inputs = {indices({4}, 5), x({4})},
       .differentiable = false},
      {.name = "discretization",
       .make =
           [] {
             return Discretization({.bin_boundaries = std::vector{-0.5, 0.0, 0.5}});
           },
       .inputs = {x({4})},
       .differentiable = false,
       .result = DType::int32},
      {.name = "discretization_one_hot",
       .make = [] { return Discretization({.bin_boundaries = std::vector{0.0}, .output_mode = "one_hot"}); },
       .inputs = {x({4})},
       .differentiable = false},
      // --- attention ---
      {.name = "multi_head_attention",
       .make = [] { return MultiHeadAttention(2, 3); },
       .inputs = {x({3, 4}), x({3, 4})},
       .weights = attention_weights},
      {.name = "multi_head_attention_cross",
       .make = [] { return MultiHeadAttention(2, 3, {.value_dim = 2, .output_shape = 5}); },
       .inputs = {x({3, 4}), x({2, 3}), x({2, 5})},
       .weights = attention_weights,
       .call = {.use_causal_mask = true}},
      {.name = "multi_head_attention_axes",
       .make =
           [] {
             return MultiHeadAttention(
                 2, 2,
                 {.dropout = 0.5, .use_bias = false, .attention_axes = {1, 2}, .use_gate = true, .seed = 1});
           },
       .inputs = {x({2, 2, 3}), x({2, 2, 3})},
       .weights = {"query/kernel", "key/kernel", "gate/kernel", "value/kernel", "attention_output/kernel"},
       .random = true},
      {.name = "multi_head_attention_window",
       .make = [] { return MultiHeadAttention(1, 2, {.sliding_window = 2}); },
       .inputs = {x({4, 3}), x({4, 3})},
       .weights = attention_weights},
      {.name = "group_query_attention",
       .make = [] { return GroupQueryAttention(2, 4, 2); },
       .inputs = {x({3, 4}), x({3, 4})},
       .weights = attention_weights,
       .call = {.use_causal_mask = true}},
      {.name = "attention", .make = [] { return Attention(); }, .inputs = {x({3, 4}), x({2, 4})}},
      {.name = "attention_concat",
       .make = [] { return Attention({.use_scale = true, .score_mode = "concat"}); },
       .inputs = {x({3, 4}), x({2, 4}), x({2, 4})},
       .weights = {"scale", "concat_score_weight"}},
      {.name = "additive_attention",
       .make = [] { return AdditiveAttention(); },
       .inputs = {x({3, 4}), x({2, 4})},
       .weights = {"scale"},
       .call = {.use_causal_mask = true}},
      // --- convolutional ---
      {.name = "conv1d", .make = [] { return Conv1D(2, 3); }, .inputs = {x({5, 3})}, .weights = kernel_bias},
      {.name = "conv1d_causal",
       .make = [] { return Conv1D(2, 2, {.padding = "causal", .dilation_rate = 2}); },
       .inputs = {x({5, 3})},
       .weights = kernel_bias},
      {.name = "conv2d",
       .make =
           [] {
             return Conv2D(2, {2, 3}, {.strides = 2, .padding = "same", .activation = "tanh"});
           },
       .inputs = {x({5, 4, 3})},
       .weights = kernel_bias},
      {.name = "conv2d_groups",
       .make = [] { return Conv2D(4, 2, {.data_format = "channels_first", .groups = 2, .use_bias = false}); },
       .inputs = {x({2, 4, 3})},
       .weights = {"kernel"}},
      {.name = "conv3d",
       .make = [] { return Conv3D(2, 2); },
       .inputs = {x({3, 2, 3, 2})},
       .weights = kernel_bias},
      {.name = "conv1d_transpose",
       .make = [] { return Conv1DTranspose(2, 3, {.strides = 2}); },
       .inputs = {x({3, 2})},
       .weights = kernel_bias},
      {.name = "conv2d_transpose",
       .make = [] { return Conv2DTranspose(2, 3, {.strides = 2, .padding = "same"}); },
       .inputs = {x({2, 3, 2})},
       .weights = kernel_bias},
      {.name = "conv3d_transpose",
       .make = [] { return Conv3DTranspose(2, 2); },
       .inputs = {x({2, 2, 2, 2})},
       .weights = kernel_bias},
      {.name = "depthwise_conv1d",
       .make = [] { return DepthwiseConv1D(2, {.depth_multiplier = 2}); },
       .inputs = {x({4, 3})},
       .weights = kernel_bias},
      {.name = "depthwise_conv2d",
       .make = [] { return DepthwiseConv2D(2, {.padding = "same"}); },
       .inputs = {x({3, 4, 2})},
       .weights = kernel_bias},
      {.name = "separable_conv1d",
       .make = [] { return SeparableConv1D(3, 2); },
       .inputs = {x({4, 2})},
       .weights = {"depthwise_kernel", "pointwise_kernel", "bias"}},
      {.name = "separable_conv2d",
       .make = [] { return SeparableConv2D(3, 2, {.depth_multiplier = 2}); },
       .inputs = {x({3, 4, 2})},
       .weights = {"depthwise_kernel", "pointwise_kernel", "bias"}},
      // --- pooling ---
      {.name = "max_pooling1d", .make = [] { return MaxPooling1D(); }, .inputs = {x({5, 3})}},
      {.name = "max_pooling2d",
       .make = [] { return MaxPooling2D({.pool_size = 3, .strides = 2, .padding = "same"}); },
       .inputs = {x({4, 5, 2})}},
      {.name = "max_pooling3d", .make = [] { return MaxPooling3D(); }, .inputs = {x({2, 4, 3, 2})}},
      {.name = "average_pooling1d",
       .make = [] { return AveragePooling1D({.pool_size = 3, .strides = 1, .padding = "same"}); },
       .inputs = {x({5, 3})}},
      {.name = "average_pooling2d",
       .make = [] { return AveragePooling2D({.data_format = "channels_first"}); },
       .inputs = {x({2, 4, 5})}},
      {.name = "average_pooling3d", .make = [] { return AveragePooling3D(); }, .inputs = {x({2, 4, 3, 2})}},
      {.name = "adaptive_max_pooling1d",
       .make = [] { return AdaptiveMaxPooling1D(3); },
       .inputs = {x({5, 3})}},
      {.name = "adaptive_max_pooling2d",
       .make =
           [] {
             return AdaptiveMaxPooling2D({2, 3}, {.data_format = "channels_first"});
           },
       .inputs = {x({2, 5, 4})}},
      {.name = "adaptive_max_pooling3d",
       .make = [] { return AdaptiveMaxPooling3D(2); },
       .inputs = {x({3, 4, 2, 2})}},
      {.name = "adaptive_average_pooling1d",
       .make = [] { return AdaptiveAveragePooling1D(4); },
       .inputs = {x({3, 3})}},
      {.name = "adaptive_average_pooling2d",
       .make =
           [] {
             return AdaptiveAveragePooling2D({3, 2});
           },
       .inputs = {x({5, 4, 2})}},
      {.name = "adaptive_average_pooling3d",
       .make = [] { return AdaptiveAveragePooling3D(2, {.data_format = "channels_first"}); },
       .inputs = {x({2, 3, 4, 2})}},
      {.name = "global_max_pooling1d",
       .make = [] { return GlobalMaxPooling1D({.keepdims = true}); },
       .inputs = {x({4, 3})}},
      {.name = "global_max_pooling2d", .make = [] { return GlobalMaxPooling2D(); }, .inputs = {x({2, 3, 2})}},
      {.name = "global_max_pooling3d",
       .make = [] { return GlobalMaxPooling3D(); },
       .inputs = {x({2, 3, 2, 2})}},
      {.name = "global_average_pooling1d",
       .make = [] { return GlobalAveragePooling1D(); },
       .inputs = {x({4, 3})}},
      {.name = "global_average_pooling2d",
       .make = [] { return GlobalAveragePooling2D({.data_format = "channels_first", .keepdims = true}); },
       .inputs = {x({2, 3, 2})}},
      {.name = "global_average_pooling3d",
       .make = [] { return GlobalAveragePooling3D(); },
       .inputs = {x({2, 3, 2, 2})}},
      // --- reshaping ---
      {.name = "zero_padding1d",
       .make =
           [] {
             return ZeroPadding1D({1, 2});
           },
       .inputs = {x({3, 2})}},
      {.name = "zero_padding2d",
       .make =
           [] {
             return ZeroPadding2D({{1, 0}, {0, 2}}, {.data_format = "channels_first"});
           },
       .inputs = {x({2, 3, 2})}},
      {.name = "zero_padding3d", .make = [] { return ZeroPadding3D(); }, .inputs = {x({1, 2, 1, 2})}},
      {.name = "cropping1d", .make = [] { return Cropping1D(); }, .inputs = {x({4, 2})}},
      {.name = "cropping2d",
       .make =
           [] {
             return Cropping2D({{1, 0}, {0, 2}});
           },
       .inputs = {x({3, 4, 2})}},
      {.name = "cropping3d", .make = [] { return Cropping3D(); }, .inputs = {x({3, 4, 3, 2})}},
      {.name = "up_sampling1d", .make = [] { return UpSampling1D(3); }, .inputs = {x({3, 2})}},
      {.name = "up_sampling2d",
       .make =
           [] {
             return UpSampling2D({2, 3}, {.data_format = "channels_first"});
           },
       .inputs = {x({2, 2, 3})}},
      {.name = "up_sampling2d_bilinear",
       .make = [] { return UpSampling2D(2, {.interpolation = "bilinear"}); },
       .inputs = {x({2, 3, 2})}},
      {.name = "up_sampling3d",
       .make =
           [] {
             return UpSampling3D({2, 1, 2});
           },
       .inputs = {x({2, 2, 1, 2})}},
      // --- recurrent ---
      {.name = "simple_rnn",
       .make = [] { return SimpleRNN(3); },
       .inputs = {x({4, 2})},
       .weights = {"simple_rnn_cell/kernel", "simple_rnn_cell/recurrent_kernel", "simple_rnn_cell/bias"}},
      {.name = "simple_rnn_dropout",
       .make = [] { return SimpleRNN(3, {.dropout = 0.3, .recurrent_dropout = 0.2, .seed = 1}); },
       .inputs = {x({4, 2})},
       .weights = {"simple_rnn_cell/kernel", "simple_rnn_cell/recurrent_kernel", "simple_rnn_cell/bias"},
       .random = true},
      {.name = "lstm", .make = [] { return LSTM(3); }, .inputs = {x({4, 2})}, .weights = lstm_weights},
      {.name = "lstm_sequences",
       .make = [] { return LSTM(3, {.return_sequences = true, .return_state = true, .go_backwards = true}); },
       .inputs = {x({4, 2})},
       .weights = lstm_weights,
       .mask = some_of_four},
      {.name = "lstm_zero_output",
       .make =
           [] {
             return LSTM(
                 3,
                 {.use_bias = false, .return_sequences = true, .unroll = true, .zero_output_for_mask = true});
           },
       .inputs = {x({4, 2})},
       .weights = {"lstm_cell/kernel", "lstm_cell/recurrent_kernel"},
       .mask = some_of_four},
      {.name = "lstm_dropout",
       .make = [] { return LSTM(3, {.dropout = 0.3, .recurrent_dropout = 0.2}); },
       .inputs = {x({4, 2})},
       .weights = lstm_weights,
       .random = true},
      {.name = "conv_lstm_1d",
       .make =
           [] { return ConvLSTM1D(2, 2, {.strides = 2, .return_sequences = true, .return_state = true}); },
       .inputs = {x({4, 5, 2})},
       .weights = conv_lstm_weights,
       .mask = some_of_four},
      {.name = "conv_lstm_2d",
       .make =
           [] {
             return ConvLSTM2D(2, {2, 3},
                               {.padding = "same", .data_format = "channels_first", .go_backwards = true});
           },
       .inputs = {x({2, 2, 3, 4})},
       .weights = conv_lstm_weights},
      {.name = "conv_lstm_2d_dropout",
       .make = [] { return ConvLSTM2D(2, 2, {.dropout = 0.3, .recurrent_dropout = 0.2, .seed = 1}); },
       .inputs = {x({3, 3, 3, 2})},
       .weights = conv_lstm_weights,
       .random = true},
      {.name = "conv_lstm_3d",
       .make = [] { return ConvLSTM3D(2, 2, {.use_bias = false, .unroll = true}); },
       .inputs = {x({2, 3, 2, 3, 1})},
       .weights = {"conv_lstm_cell/kernel", "conv_lstm_cell/recurrent_kernel"}},
      {.name = "gru", .make = [] { return GRU(3); }, .inputs = {x({4, 2})}, .weights = gru_weights},
      {.name = "gru_reset_before",
       .make =
           [] {
             return GRU(3, {.recurrent_activation = "hard_sigmoid",
                            .dropout = 0.3,
                            .recurrent_dropout = 0.2,
                            .return_sequences = true,
                            .reset_after = false});
           },
       .inputs = {x({4, 2})},
       .weights = gru_weights,
       .random = true},
      {.name = "gru_masked",
       .make = [] { return GRU(3, {.return_state = true, .zero_output_for_mask = true}); },
       .inputs = {x({4, 2})},
       .weights = gru_weights,
       .mask = some_of_four},
      {.name = "rnn",
       .make =
           [] {
             return RNN({LSTMCell(3, {.name = "lstm_cell"}), GRUCell(2, {.name = "gru_cell"})},
                        {.return_sequences = true, .return_state = true});
           },
       .inputs = {x({4, 2})},
       .weights = {"stacked_rnn_cells/lstm_cell/kernel", "stacked_rnn_cells/lstm_cell/recurrent_kernel",
                   "stacked_rnn_cells/lstm_cell/bias", "stacked_rnn_cells/gru_cell/kernel",
                   "stacked_rnn_cells/gru_cell/recurrent_kernel", "stacked_rnn_cells/gru_cell/bias"}},
      {.name = "simple_rnn_cell",
       .make = [] { return SimpleRNNCell(3, {.activation = "relu"}); },
       .inputs = {x({2})},
       .weights = {"kernel", "recurrent_kernel", "bias"}},
      {.name = "lstm_cell",
       .make = [] { return LSTMCell(3, {.unit_forget_bias = false}); },
       .inputs = {x({2})},
       .weights = {"kernel", "recurrent_kernel", "bias"}},
      {.name = "gru_cell",
       .make = [] { return GRUCell(3); },
       .inputs = {x({2})},
       .weights = {"kernel", "recurrent_kernel", "bias"}},
      {.name = "stacked_rnn_cells",
       .make =
           [] {
             return StackedRNNCells({LSTMCell(3, {.name = "lstm_cell"}), GRUCell(2, {.name = "gru_cell"})});
           },
       .inputs = {x({2})},
       .weights = {"lstm_cell/kernel", "lstm_cell/recurrent_kernel", "lstm_cell/bias", "gru_cell/kernel",
                   "gru_cell/recurrent_kernel", "gru_cell/bias"}},
      {.name = "bidirectional",
       .make = [] { return Bidirectional(LSTM(2, {.name = "lstm"})); },
       .inputs = {x({4, 2})},
       .weights = {"forward_lstm/lstm_cell/kernel", "forward_lstm/lstm_cell/recurrent_kernel",
                   "forward_lstm/lstm_cell/bias", "backward_lstm/lstm_cell/kernel",
                   "backward_lstm/lstm_cell/recurrent_kernel", "backward_lstm/lstm_cell/bias"}},
      {.name = "bidirectional_apart",
       .make =
           [] {
             return Bidirectional(
                 SimpleRNN(2,
                           {.use_bias = false, .return_sequences = true, .return_state = true, .name = "a"}),
                 {.merge_mode = {},
                  .backward_layer = GRU(2, {.use_bias = false,
                                            .return_sequences = true,
                                            .return_state = true,
                                            .go_backwards = true,
                                            .name = "b"})});
           },
       .inputs = {x({4, 2})},
       .weights = {"forward_a/simple_rnn_cell/kernel", "forward_a/simple_rnn_cell/recurrent_kernel",
                   "b/gru_cell/kernel", "b/gru_cell/recurrent_kernel"},
       .mask = some_of_four},
      {.name = "time_distributed",
       .make = [] { return TimeDistributed(Dense(3)); },
       .inputs = {x({4, 2})},
       .weights = {"dense/kernel", "dense/bias"},
       .mask = some_of_four},
      {.name = "time_distributed_statistics",
       .make = [] { return TimeDistributed(BatchNormalization()); },
       .inputs = {x({4, 2})},
       .weights = {"batch_normalization/gamma", "batch_normalization/beta", "batch_normalization/moving_mean",
                   "batch_normalization/moving_variance"}},
      // --- images ---
      {.name = "resizing", .make = [] { return Resizing(3, 5); }, .inputs = {x({4, 3, 2})}},
      {.name = "resizing_bicubic",
       .make = [] { return Resizing(3, 5, {.interpolation = "bicubic", .antialias = true}); },
       .inputs = {x({4, 3, 2})}},
      {.name = "resizing_area",
       .make = [] { return Resizing(2, 5, {.interpolation = "area", .data_format = "channels_first"}); },
       .inputs = {x({2, 4, 3})}},
      {.name = "up_sampling_lanczos",
       .make = [] { return UpSampling2D(2, {.interpolation = "lanczos3"}); },
       .inputs = {x({3, 4, 2})}},
      {.name = "integer_lookup",
       .make =
           [] {
             return IntegerLookup({.num_oov_indices = 2, .mask_token = 0, .vocabulary = {7, 3, 4}});
           },
       .inputs = {indices({4}, 9)},
       .differentiable = false,
       .result = DType::int64},
      {.name = "resizing_cropped",
       .make = [] { return Resizing(2, 2, {.crop_to_aspect_ratio = true, .data_format = "channels_first"}); },
       .inputs = {x({2, 4, 3})}},
      {.name = "resizing_padded",
       .make = [] { return Resizing(3, 3, {.pad_to_aspect_ratio = true, .fill_value = 0.5}); },
       .inputs = {x({2, 4, 2})}},
      {.name = "resizing_integers",
       .make = [] { return Resizing(3, 5); },
       .inputs = {indices({4, 3, 2}, 200)},
       .differentiable = false,
       .result = DType::int32},
      {.name = "center_crop", .make = [] { return CenterCrop(2, 2); }, .inputs = {x({4, 3, 2})}},
      {.name = "center_crop_small", .make = [] { return CenterCrop(4, 2); }, .inputs = {x({3, 3, 2})}},
      {.name = "random_crop",
       .make = [] { return RandomCrop(2, 3); },
       .inputs = {x({4, 5, 2})},
       .random = true},
      {.name = "random_flip",
       .make = [] { return RandomFlip("horizontal_and_vertical", {.seed = 1}); },
       .inputs = {x({2, 3, 2})},
       .random = true},
      {.name = "random_rotation",
       .make = [] { return RandomRotation(0.2, {.fill_mode = "constant", .interpolation = "nearest"}); },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_translation",
       .make =
           [] {
             return RandomTranslation({-0.2, 0.3}, 0.2, {.fill_mode = "wrap"});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_zoom",
       .make = [] { return RandomZoom(0.5, {}, {.data_format = "channels_first"}); },
       .inputs = {x({2, 3, 4})},
       .random = true},
      {.name = "random_contrast",
       .make =
           [] {
             return RandomContrast(0.5, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_brightness",
       .make =
           [] {
             return RandomBrightness({-0.2, 0.1}, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "auto_contrast",
       .make =
           [] {
             return AutoContrast({.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 3})}},
      {.name = "equalization",
       .make =
           [] {
             return Equalization({.value_range = {-1.0, 1.0}, .bins = 16});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "solarization",
       .make =
           [] {
             return Solarization(
                 {.addition_factor = 0.2, .threshold_factor = {0.3, 0.6}, .value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_invert",
       .make =
           [] {
             return RandomInvert(0.5, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_grayscale",
       .make = [] { return RandomGrayscale(0.5, {.data_format = "channels_first"}); },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_posterization",
       .make =
           [] {
             return RandomPosterization({2.0, 5.0}, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_hue",
       .make =
           [] {
             return RandomHue(0.5, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 3})},
       .random = true},
      {.name = "random_saturation",
       .make =
           [] {
             return RandomSaturation({0.2, 0.8}, {.value_range = {0.0, 1.0}});
           },
       .inputs = {x({3, 4, 3})},
       .random = true},
      {.name = "random_color_degeneration",
       .make =
           [] {
             return RandomColorDegeneration(0.5, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({3, 4, 3})},
       .random = true},
      {.name = "random_sharpness",
       .make =
           [] {
             return RandomSharpness({0.1, 0.9}, {.value_range = {-1.0, 1.0}});
           },
       .inputs = {x({4, 5, 2})},
       .random = true},
      {.name = "random_gaussian_blur",
       .make =
           [] {
             return RandomGaussianBlur(0.5, {.kernel_size = {3, 5}, .sigma = {0.5, 1.0}});
           },
       .inputs = {x({6, 5, 2})},
       .random = true},
      {.name = "random_color_jitter",
       .make =
           [] {
             return RandomColorJitter({.value_range = {-1.0, 1.0},
                                       .brightness_factor = 0.2,
                                       .contrast_factor = 0.3,
                                       .saturation_factor = {0.2, 0.8},
                                       .hue_factor = 0.1});
           },
       .inputs = {x({3, 4, 3})},
       .random = true},
      {.name = "random_shear",
       .make =
           [] {
             return RandomShear(0.3, {0.1, 0.2}, {.interpolation = "nearest", .fill_mode = "constant"});
           },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_perspective",
       .make = [] { return RandomPerspective(0.5, {.scale = 0.6, .fill_value = 0.5}); },
       .inputs = {x({3, 4, 2})},
       .random = true},
      {.name = "random_erasing",
       .make =
           [] {
             return RandomErasing(0.7, {.scale = {0.1, 0.6}, .value_range = {-1.0, 1.0}});
           },
       .inputs = {x({5, 6, 2})},
       .random = true},
      {.name = "mix_up", .make = [] { return MixUp(0.4); }, .inputs = {x({3, 4, 2})}, .random = true},
      {.name = "cut_mix", .make = [] { return CutMix(0.8); }, .inputs = {x({5, 6, 2})}, .random = true},
      {.name = "rand_augment",
       .make =
           [] {
             return RandAugment({.value_range = {-1.0, 1.0}, .num_ops = 3, .factor = 0.4});
           },
       .inputs = {x({4, 5, 3})},
       .random = true},
  };
  return cases;
}

const std::set<std::string>& classes_without_cases() {
  static const std::set<std::string> classes = {"InputLayer",        "Lambda",  "Sequential",
                                                "Functional",        "Model",   "StringLookup",
                                                "TextVectorization", "Hashing", "HashedCrossing"};
  return classes;
}

}  // namespace lockstep::keras::testing
