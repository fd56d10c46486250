#include "keras/applications/hugging_face.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/as_error.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/applications.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::applications {
namespace {

using Names = std::vector<std::string>;

// How the elements lie in the file.
enum class Layout {
  same,    // but for the shape
  linear,  // (results, inputs), where a kernel is (inputs, results)
  conv,    // (results, inputs, height, width), where a kernel is (height, width, inputs, results)
};

// Where a weight's value comes from: a tensor, one of three parts of its columns, or a sum.
struct Source {
  std::string name;
  Layout layout = Layout::same;
  int part = -1;           // of the three that GPT-2 keeps side by side
  std::string first = {};  // its elements are added to those of the first row
};

// "block3_attention/query/kernel" as words: the layer, what is in it, the weight.
Names parts_of(const std::string& path) {
  Names parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "block3_mlp_1" -> 3, "mlp_1"; 0 for a layer that is in no block.
std::pair<int64_t, std::string> block_of(const std::string& layer) {
  if (!layer.starts_with("block")) return {0, layer};
  const size_t underscore = layer.find('_');
  if (underscore == std::string::npos) return {0, layer};
  const std::string number = layer.substr(5, underscore - 5);
  if (number.empty() ||
      !std::all_of(number.begin(), number.end(), [](char c) { return '0' <= c && c <= '9'; }))
    return {0, layer};
  return {std::stoll(number), layer.substr(underscore + 1)};
}

// PyTorch calls the scale of a normalisation weight, too.
std::string in_torch(const std::string& weight) {
  static const std::map<std::string, std::string> names{{"kernel", "weight"},
                                                        {"gamma", "weight"},
                                                        {"embeddings", "weight"},
                                                        {"beta", "bias"},
                                                        {"moving_mean", "running_mean"},
                                                        {"moving_variance", "running_var"}};
  const auto found = names.find(weight);
  return found == names.end() ? weight : found->second;
}

// One family of models.
struct Family {
  const char* sign;                                      // a tensor that its files have, behind the prefix
  Names prefixes;                                        // what may stand before every name
  std::function<Source(const Names& parts)> source;      // of a weight here; an empty name: there is none
  std::function<bool(const std::string& name)> ignored;  // tensors that are no weights
};

Source of_gpt2(const Names& parts) {
  const std::string weight = in_torch(parts.back());
  const auto [number, part] = block_of(parts[0]);
  if (number == 0) {
    if (part == "token_embedding") return {"wte." + weight};
    if (part == "positions") return {"wpe." + weight};
    if (part == "norm") return {"ln_f." + weight};
    return {};
  }
  const std::string block = "h." + std::to_string(number - 1) + ".";
  if (part == "attention_norm") return {block + "ln_1." + weight};
  if (part == "mlp_norm") return {block + "ln_2." + weight};
  if (part == "mlp_1") return {block + "mlp.c_fc." + weight};
  if (part == "mlp_2") return {block + "mlp.c_proj." + weight};
  if (part != "attention" || parts.size() < 3) return {};
  if (parts[1] == "attention_output") return {block + "attn.c_proj." + weight};
  const Names columns = {"query", "key", "value"};
  const auto column = std::find(columns.begin(), columns.end(), parts[1]);
  if (column == columns.end()) return {};
  return {.name = block + "attn.c_attn." + weight, .part = static_cast<int>(column - columns.begin())};
}

Source of_vit(const Names& parts) {
  const std::string weight = in_torch(parts.back());
  const Layout kernel = parts.back() == "kernel" ? Layout::linear : Layout::same;
  const auto [number, part] = block_of(parts[0]);
  if (number == 0) {
    if (part == "patches")
      return {"vit.embeddings.patch_embeddings.projection." + weight,
              parts.back() == "kernel" ? Layout::conv : Layout::same};
    if (part == "positions")
      return {.name = "vit.embeddings.position_embeddings", .first = "vit.embeddings.cls_token"};
    if (part == "norm") return {"vit.layernorm." + weight};
    if (part == "predictions") return {"classifier." + weight, kernel};
    return {};
  }
  const std::string block = "vit.encoder.layer." + std::to_string(number - 1) + ".";
  if (part == "attention_norm") return {block + "layernorm_before." + weight};
  if (part == "mlp_norm") return {block + "layernorm_after." + weight};
  if (part == "mlp_1") return {block + "intermediate.dense." + weight, kernel};
  if (part == "mlp_2") return {block + "output.dense." + weight, kernel};
  if (part != "attention" || parts.size() < 3) return {};
  if (parts[1] == "attention_output") return {block + "attention.output.dense." + weight, kernel};
  return {block + "attention.attention." + parts[1] + "." + weight, kernel};
}

// "conv3_block2_1_conv/kernel", "conv1_bn/gamma", "predictions/bias".
Source of_resnet(const Names& parts) {
  const std::string weight = in_torch(parts.back());
  const bool is_kernel = parts.back() == "kernel";
  const std::string& layer = parts[0];
  if (layer == "predictions") return {"classifier.1." + weight, is_kernel ? Layout::linear : Layout::same};
  const bool convolution = layer.ends_with("_conv");
  if (!convolution && !layer.ends_with("_bn")) return {};
  const std::string kind = convolution ? ".convolution." : ".normalization.";
  const Layout layout = is_kernel ? Layout::conv : Layout::same;
  int stage = 0, block = 0, place = 0, length = 0;
  if (layer.starts_with("conv1_")) return {"resnet.embedder.embedder" + kind + weight, layout};
  if (std::sscanf(layer.c_str(), "conv%d_block%d_%d_%n", &stage, &block, &place, &length) != 3 || length == 0)
    return {};
  const std::string where = "resnet.encoder.stages." + std::to_string(stage - 2) + ".layers." +
                            std::to_string(block - 1) +
                            (place == 0 ? std::string(".shortcut") : ".layer." + std::to_string(place - 1));
  return {where + kind + weight, layout};
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"wte.weight",
       {"transformer.", ""},
       of_gpt2,
       // The mask of causality, and the token embeddings once more.
       [](const std::string& name) {
         return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
                name == "lm_head.weight";
       }},
      {"vit.embeddings.cls_token",
       {""},
       of_vit,
       [](const std::string& name) { return name.starts_with("vit.pooler."); }},
      {"resnet.embedder.embedder.convolution.weight",
       {""},
       of_resnet,
       [](const std::string& name) { return name.ends_with(".num_batches_tracked"); }},
  };
  return all;
}

Tensor turned(const Tensor& value, Layout layout) {
  if (layout == Layout::linear) return transpose(value, {1, 0});
  if (layout == Layout::conv) return transpose(value, {2, 3, 1, 0});
  return value;
}

// The third of the last dimension that is meant.
Tensor column(const Tensor& value, int part) {
  const int64_t third = value.shape()[-1] / 3;
  Shape begin = Dims::filled(value.rank(), 0), size = value.shape();
  begin[-1] = part * third;
  size[-1] = third;
  return slice(value, begin, size);
}

// Whether the file's tensor can become the weight.
bool can_become(const TensorSpec& stored, const Source& source, const Variable& weight) {
  const int rank = source.layout == Layout::linear ? 2
                   : source.layout == Layout::conv ? 4
                                                   : stored.shape.rank();
  if (stored.shape.rank() != rank || !is_floating(stored.dtype) || !is_floating(weight.dtype())) return false;
  const int64_t parts = source.part < 0 ? 1 : 3;
  if (stored.shape.size() != parts * weight.shape().size()) return false;
  // A kernel of heads has three dimensions, where the file has a matrix: its inputs or its results are one of
  // them.
  const Shape& s = stored.shape;
  const Shape& w = weight.shape();
  if (source.layout == Layout::conv) return w == Shape{s[2], s[3], s[1], s[0]};
  if (source.layout == Layout::linear) return s[1] == w[0] || s[0] == w[-1];
  if (parts == 3) return s[-1] % 3 == 0 && (rank == 1 || s[0] == w[0]);
  return rank != 2 || s[0] == w[0] || s[1] == w[-1];
}

}  // namespace

std::optional<PendingWeights> read_hugging_face(const Model& model, const train::SafetensorsFile& file,
                                                std::source_location where) {
  const Family* family = nullptr;
  std::string prefix;
  for (const Family& candidate : families())
    for (const std::string& before : candidate.prefixes)
      if (!family && file.find(before + candidate.sign)) family = &candidate, prefix = before;
  if (!family) return {};

  Mismatches wrong;
  std::set<std::string> used;
  struct Found {
    Variable weight;
    Source source;
  };
  std::vector<Found> found;
  for (const Variable& weight : model.weights(where)) {
    const std::string inside = model.name() + "/";
    const std::string path =
        weight.name().starts_with(inside) ? weight.name().substr(inside.size()) : weight.name();
    Source source = family->source(parts_of(path));
    if (source.name.empty()) {
      wrong.add("no counterpart: " + weight.name());
      continue;
    }
    source.name = prefix + source.name;
    const auto* entry = file.find(source.name);
    used.insert(source.name);
    if (!source.first.empty()) used.insert(source.first);
    if (!entry || (!source.first.empty() && !file.find(source.first)))
      wrong.add("missing: " + source.name + ", for " + weight.name());
    else if (!can_become(entry->spec, source, weight))
      wrong.add(weight.name() + " (" + source.name + ")", entry->spec, weight);
    else if (!source.first.empty() && file.find(source.first)->spec.shape.size() != weight.shape()[-1])
      wrong.add(weight.name() + " (" + source.first + ")", file.find(source.first)->spec, weight);
    else
      found.push_back({weight, source});
  }
  for (const auto& entry : file.entries())
    if (!used.contains(entry.name) && !family->ignored(entry.name))
      wrong.add("not in the model: " + entry.name);
  wrong.require_none("\"" + file.path() + "\" does not fit model \"" + model.name() + "\"", where);

  PendingWeights pending;
  for (const auto& [weight, source] : found) {
    Tensor value = turned(file.read(source.name, where), source.layout);
    if (source.part >= 0) value = column(value, source.part);
    value = reshape(value, weight.shape());
    if (!source.first.empty()) {
      const Tensor row = reshape(file.read(source.first, where), {1, weight.shape()[-1]});
      value = concat(TensorList{slice(value, {0, 0}, {1, -1}) + row, slice(value, {1, 0}, {-1, -1})}, 0);
    }
    pending.add(weight, value);
  }
  return pending;
}

namespace {

// Settings of a config.json.
class Config {
 public:
  Config(const Json& json, std::string path, std::source_location where)
      : json_(json), path_(std::move(path)), where_(where) {}

  const Json& at(const char* name) const {
    const Json* value = json_.find(name);
    require(value != nullptr, ErrorCode::invalid_argument, where_, "\"", path_, "\" has no \"", name, "\"");
    return *value;
  }
  int64_t integer(const char* name) const { return at(name).as_int(); }
  double number(const char* name) const { return at(name).as_double(); }
  std::string text(const char* name, const char* otherwise) const {
    const Json* value = json_.find(name);
    return value && value->is_string() ? value->as_string() : otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const Json* value = json_.find(name);
    return value && value->is_bool() ? value->as_bool() : otherwise;
  }
  int64_t classes() const {
    const Json* labels = json_.find("id2label");
    return labels && labels->is_object() ? std::ssize(labels->members()) : 2;
  }
  template <class... Parts>
  void supports(bool holds, const Parts&... parts) const {
    require(holds, ErrorCode::unsupported, where_, "\"", path_, "\": ", parts...);
  }

 private:
  const Json& json_;
  std::string path_;
  std::source_location where_;
};

Model make_gpt2(const Config& config, std::source_location where) {
  const std::string activation = config.text("activation_function", "gelu_new");
  const bool approximate = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  config.supports(approximate || activation == "gelu", "activation_function is \"", activation,
                  "\"; gelu, gelu_new and gelu_pytorch_tanh are known");
  config.supports(
      config.flag("scale_attn_weights", true) && !config.flag("scale_attn_by_inverse_layer_idx", false),
      "attention that is not scaled by the size of its heads is not known");
  return gpt2({.vocabulary = config.integer("vocab_size"),
               .context = config.integer("n_positions"),
               .dim = config.integer("n_embd"),
               .depth = config.integer("n_layer"),
               .heads = config.integer("n_head"),
               .epsilon = config.number("layer_norm_epsilon"),
               .approximate_gelu = approximate},
              where);
}

Model make_vit(const Config& config, std::source_location where) {
  const std::string activation = config.text("hidden_act", "gelu");
  config.supports(activation == "gelu", "hidden_act is \"", activation, "\"; gelu is known");
  config.supports(config.flag("qkv_bias", true), "projections without biases are not known");
  const int64_t size = config.integer("image_size");
  return vit_tiny({.input_shape = {size, size, config.integer("num_channels")},
                   .classes = config.classes(),
                   .patch_size = config.integer("patch_size"),
                   .dim = config.integer("hidden_size"),
                   .depth = config.integer("num_hidden_layers"),
                   .heads = config.integer("num_attention_heads"),
                   .mlp_dim = config.integer("intermediate_size"),
                   .pooling = "token",
                   .epsilon = config.number("layer_norm_eps"),
                   .name = "vit"},
                  where);
}

Model make_resnet(const Config& config, std::source_location where) {
  const std::string kind = config.text("layer_type", "bottleneck");
  const int64_t width = config.integer("embedding_size"), expansion = kind == "basic" ? 1 : 4;
  const auto list = [&](const char* name) {
    std::vector<int64_t> values;
    for (const Json& value : config.at(name).items()) values.push_back(value.as_int());
    return values;
  };
  const std::vector<int64_t> depths = list("depths");
  const std::vector<int64_t> wanted =
      kind == "basic" ? std::vector<int64_t>{2, 2, 2, 2} : std::vector<int64_t>{3, 4, 6, 3};
  const std::vector<int64_t> widths = {width * expansion, 2 * width * expansion, 4 * width * expansion,
                                       8 * width * expansion};
  config.supports(depths == wanted && list("hidden_sizes") == widths,
                  "the zoo has ResNets of depths 2, 2, 2, 2 (basic) "
                  "and 3, 4, 6, 3 (bottleneck) whose stages double the width");
  config.supports(config.text("hidden_act", "relu") == "relu" &&
                      !config.flag("downsample_in_first_stage", false) &&
                      !config.flag("downsample_in_bottleneck", false),
                  "other activations than relu, and other strides than those of v1.5, are not known");
  const ResnetOptions options{.input_shape = {-1, -1, config.integer("num_channels")},
                              .classes = config.classes(),
                              .width = width,
                              .stem = "imagenet",
                              .version = "v1.5"};
  return kind == "basic" ? resnet18(options, where) : resnet50(options, where);
}

}  // namespace

Model from_hugging_face(const std::string& folder, std::source_location where) {
  return as_error("from_hugging_face", where, [&] {
    const std::string path = folder + "/config.json", weights = folder + "/model.safetensors";
    const Json json = Json::read_file(path, where);
    const Config config(json, path, where);
    const std::string type = config.text("model_type", "");
    static const std::map<std::string, Model (*)(const Config&, std::source_location)> makers{
        {"gpt2", make_gpt2}, {"vit", make_vit}, {"resnet", make_resnet}};
    const auto maker = makers.find(type);
    config.supports(maker != makers.end(), "model_type is \"", type, "\"; gpt2, vit and resnet are known");
    require(file_exists(weights), ErrorCode::not_found, where, "there is no \"", weights, "\"",
            file_exists(weights + ".index.json") ? "; weights in several files are not read" : "");
    const Model model = maker->second(config, where);
    const train::SafetensorsFile file(weights, where);
    const auto pending = read_hugging_face(model, file, where);
    require(pending.has_value(), ErrorCode::invalid_argument, where, "\"", weights, "\" has no weights of a ",
            type, " by Hugging Face's names");
    pending->assign(where);
    return model;
  });
}

}  // namespace lockstep::keras::applications
