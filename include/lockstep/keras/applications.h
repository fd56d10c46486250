// Architectures that are often started from, without weights: each function gives a new model, made with the
// functional API and ready for compile().
//
//   Model model = applications::lenet();
//   Model as_keras = applications::resnet50({.input_shape = {224, 224, 3}, .classes = 1000});
//
// Classifiers end in logits unless classifier_activation says otherwise ("softmax"): train them with
// from_logits. Images are channels last. The defaults are small enough for a CPU, but for Keras' networks of
// images. All throw Error(invalid_argument) for arguments out of range. Several threads may make models at
// once; each model then belongs to one (model.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/keras/activations.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras::applications {

struct MlpOptions {
  Shape input_shape = {784};            // of higher rank: flattened first
  std::vector<int64_t> hidden = {128};  // units of the layers in between; empty: a linear classifier
  int64_t classes = 10;
  Activation activation = "relu";
  double dropout = 0;  // behind each hidden layer
  Activation classifier_activation = {};
  std::string name = "mlp";
};
Model mlp(const MlpOptions& options = {}, std::source_location where = std::source_location::current());

struct LenetOptions {
  Shape input_shape = {28, 28, 1};
  int64_t classes = 10;
  Activation activation = "relu";
  Activation classifier_activation = {};
  std::string name = "lenet";
};
// LeNet-5 with max pooling: two convolutions of 5 x 5 (6 and 16 filters), dense layers of 120 and 84.
Model lenet(const LenetOptions& options = {}, std::source_location where = std::source_location::current());

struct ResnetOptions {
  Shape input_shape = {32, 32, 3};
  int64_t classes = 10;
  // Filters of the first stage; each of the three that follow has twice as many as the one before.
  int64_t width = 64;
  // "imagenet": a convolution of 7 x 7 and a pooling that make images four times smaller; "small": one of 3 x
  // 3 that keeps their size, for images of a few dozen pixels; "auto": the former from 64 pixels on, which
  // the log says.
  std::string stem = "auto";
  // For networks of 1 x 1 convolutions: "v1" is Keras' network; "v1.5" has no biases, an epsilon of 1e-5, and
  // strides in the 3 x 3 convolutions, as most others have.
  std::string version = "v1";
  // The classifier; without it come the last feature maps, or what `pooling` makes of them.
  bool include_top = true;
  std::string pooling = {};  // without the classifier: "avg", "max", or empty
  Activation classifier_activation = {};
  std::string name = {};  // empty: the function's
};
// Residual blocks of two 3 x 3 convolutions, without biases.
Model resnet18(const ResnetOptions& options = {},
               std::source_location where = std::source_location::current());
// Residual blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions: Keras' ResNet50 with its layer names, biases and
// epsilon.
Model resnet50(const ResnetOptions& options = {},
               std::source_location where = std::source_location::current());
// The same, of 33 and of 50 blocks.
Model resnet101(const ResnetOptions& options = {},
                std::source_location where = std::source_location::current());
Model resnet152(const ResnetOptions& options = {},
                std::source_location where = std::source_location::current());

// Keras' networks of images in their published sizes, with Keras' names of layers: Keras' files of weights
// fit them.
struct ImageOptions {
  // Empty: the one that it was published with, (224, 224, 3) or (299, 299, 3); -1: any size.
  Shape input_shape = {};
  // The classifier; without it come the last feature maps, or what `pooling` makes of them.
  bool include_top = true;
  std::string pooling = {};  // without the classifier: "avg", "max", or empty
  int64_t classes = 1000;
  Activation classifier_activation = {};
  std::string name = {};  // empty: the function's
};
// Convolutions of 3 x 3, 13 or 16 of them, and three dense layers: 138 or 144 million weights.
Model vgg16(const ImageOptions& options = {}, std::source_location where = std::source_location::current());
Model vgg19(const ImageOptions& options = {}, std::source_location where = std::source_location::current());
// Residual blocks that are normalised before their convolutions: 26, 45 and 60 million weights.
Model resnet50_v2(const ImageOptions& options = {},
                  std::source_location where = std::source_location::current());
Model resnet101_v2(const ImageOptions& options = {},
                   std::source_location where = std::source_location::current());
Model resnet152_v2(const ImageOptions& options = {},
                   std::source_location where = std::source_location::current());
// Every block sees the results of all blocks before it: 8 million weights.
Model densenet121(const ImageOptions& options = {},
                  std::source_location where = std::source_location::current());
// Blocks that widen, convolve each channel by itself and narrow again: 3.5 million weights.
Model mobilenet_v2(const ImageOptions& options = {},
                   std::source_location where = std::source_location::current());
// The same with channels weighed by their means: 5.3 million weights. Takes images of 0 to 255 as they are.
Model efficientnet_b0(const ImageOptions& options = {},
                      std::source_location where = std::source_location::current());
// Windows of several sizes side by side: 24 million weights. Images of 299 x 299, at least 75.
Model inception_v3(const ImageOptions& options = {},
                   std::source_location where = std::source_location::current());
// Separable convolutions throughout: 23 million weights. Images of 299 x 299, at least 71.
Model xception(const ImageOptions& options = {},
               std::source_location where = std::source_location::current());

struct VitOptions {
  Shape input_shape = {28, 28, 1};
  int64_t classes = 10;
  int64_t patch_size = 7;
  int64_t dim = 64;
  int64_t depth = 2;  // transformer blocks
  int64_t heads = 4;
  int64_t mlp_dim = 128;
  double dropout = 0;
  // What the classifier sees: "mean" of the patches, or a "token" of its own in front of them, as most
  // published ones have.
  std::string pooling = "mean";
  double epsilon = 1e-6;  // of the normalisations
  Activation classifier_activation = {};
  std::string name = "vit_tiny";
};
// A vision transformer: patches by a strided convolution, learned position embeddings, blocks that normalise
// first. ViT-Ti/16 is {.input_shape = {224, 224, 3}, .classes = 1000, .patch_size = 16, .dim = 192, .depth =
// 12, .heads = 3, .mlp_dim = 768}.
Model vit_tiny(const VitOptions& options = {}, std::source_location where = std::source_location::current());

struct GptOptions {
  int64_t vocabulary = 256;  // bytes
  int64_t context = 64;      // tokens that it sees
  int64_t dim = 64;
  int64_t depth = 2;
  int64_t heads = 4;
  int64_t mlp_dim = 0;  // 0: 4 dim
  double dropout = 0;
  double epsilon = 1e-6;          // of the normalisations
  bool approximate_gelu = false;  // by tanh
  std::string name = "gpt_tiny";
};
// A causal transformer: int32 tokens (batch, up to `context`) to logits (batch, tokens, vocabulary) of what
// comes next.
Model gpt_tiny(const GptOptions& options = {}, std::source_location where = std::source_location::current());

struct Gpt2Options {
  int64_t vocabulary = 50257;
  int64_t context = 1024;
  int64_t dim = 768;
  int64_t depth = 12;
  int64_t heads = 12;
  int64_t mlp_dim = 0;  // 0: 4 dim
  double dropout = 0;
  double epsilon = 1e-6;          // of the normalisations
  bool approximate_gelu = false;  // by tanh
  std::string name = "gpt2";
};
// GPT-2 of 124 million parameters: the same network, of which the logits are products with the token
// embeddings. The published weights were trained with {.epsilon = 1e-5, .approximate_gelu = true}.
Model gpt2(const Gpt2Options& options = {}, std::source_location where = std::source_location::current());

// --- published weights -------------------------------------------------------------------------------------

// The model of a folder as Hugging Face's hub has it, config.json and model.safetensors, weights and all. Of
// the types "gpt2", "vit" (gives the logits of its classifier) and "resnet" (18 and 50, of the kinds that
// resnet18 and resnet50 have). Images are channels last here, and (0, 1) or normalised as the publisher says.
// Throws Error(unsupported) for another type, or settings that have no counterpart, and
// Error(invalid_argument) where the file does not fit.
//
// Model::load_weights() reads such a model.safetensors into a model of this zoo, too.
Model from_hugging_face(const std::string& folder,
                        std::source_location where = std::source_location::current());

// --- by name, for files ------------------------------------------------------------------------------------

// mlp, lenet, resnet18, resnet50, resnet101, resnet152, vgg16, vgg19, resnet50_v2, resnet101_v2,
// resnet152_v2, densenet121, mobilenet_v2, efficientnet_b0, inception_v3, xception, vit_tiny, gpt_tiny, gpt2.
std::vector<std::string> names();
// Every option with its default, by the names of the structs above.
Json default_options(const std::string& name, std::source_location where = std::source_location::current());
// Options that are left out keep their defaults. Throws Error(not_found) for an unknown name and
// Error(invalid_argument) for an unknown option, naming the nearest known one.
Model make(const std::string& name, const Json& options = Json::object(),
           std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::applications
