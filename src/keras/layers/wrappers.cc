#include <algorithm>

#include "keras/layers/recurrent_layer.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/recurrent.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

// --- both ways ---------------------------------------------------------------------------------------------

struct BidirectionalSettings {
  Layer layer;
  BidirectionalOptions options;
  void visit(auto& v) {
    v("merge_mode", options.merge_mode);
    v("layer", layer);
    v("backward_layer", options.backward_layer);
  }
};

bool flag(const Layer& layer, const char* name) {
  const Json config = layer.base()->get_config();
  const Json* found = config.find(name);
  require(found && found->is_bool(), ErrorCode::invalid_argument, std::source_location::current(),
          "Bidirectional takes recurrent layers; ", layer.class_name(), " has no setting \"", name, "\"");
  return found->as_bool();
}

// `layer` made anew, with other settings: what is masked counts for nothing in the merged result.
Layer made_anew(const Layer& layer, const Json& settings) {
  Json json = layer.serialize();
  Json config = json.at("config");
  if (config.contains("zero_output_for_mask"))
    config.set("zero_output_for_mask", flag(layer, "return_sequences"));
  for (const auto& [name, value] : settings.members()) config.set(name, value);
  json.set("config", config);
  return Layer::deserialize(json);
}

std::string with_prefix(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name : prefix + name;
}

BidirectionalSettings both_ways(BidirectionalSettings settings) {
  const Layer given = settings.layer;
  require(given.defined(), ErrorCode::invalid_argument, std::source_location::current(),
          "Bidirectional was given an empty Layer");
  settings.layer = made_anew(given, Json::object({{"name", with_prefix("forward_", given.name())}}));
  Layer& backward = settings.options.backward_layer;
  if (backward.defined()) {
    backward = made_anew(backward, Json::object());
  } else {
    backward = made_anew(given, Json::object({{"name", with_prefix("backward_", given.name())},
                                              {"go_backwards", !flag(given, "go_backwards")}}));
  }
  return settings;
}

class BidirectionalLayer final : public ConfiguredLayer<BidirectionalSettings> {
 public:
  static constexpr const char* kClassName = "Bidirectional";
  BidirectionalLayer(const char* class_name, BidirectionalSettings settings)
      : ConfiguredLayer(class_name, both_ways(std::move(settings))),
        forward_(track(settings_.layer)),
        backward_(track(settings_.options.backward_layer)),
        return_sequences_(flag(forward_, "return_sequences")),
        return_state_(flag(forward_, "return_state")) {
    const auto here = std::source_location::current();
    const std::optional<std::string>& mode = settings_.options.merge_mode;
    static constexpr std::string_view kModes[] = {"concat", "sum", "mul", "ave"};
    require(!mode || std::find(std::begin(kModes), std::end(kModes), *mode) != std::end(kModes),
            ErrorCode::invalid_argument, here,
            "Bidirectional: merge_mode is \"concat\", \"sum\", \"mul\", \"ave\" or none, received \"",
            mode.value_or(""), "\"");
    require(flag(forward_, "go_backwards") != flag(backward_, "go_backwards"), ErrorCode::invalid_argument,
            here, "Bidirectional: one of the layers must go backwards, and one must not");
    for (const char* same : {"stateful", "return_sequences", "return_state"})
      require(flag(forward_, same) == flag(backward_, same), ErrorCode::invalid_argument, here,
              "Bidirectional: both layers must have the same ", same);
  }

  void build_all(const std::vector<Shape>& inputs) override {
    forward_.build(inputs, where());
    backward_.build(inputs, where());
  }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    require_one_input(*this, inputs);
    const TensorList& states = context.initial_state;
    require(states.size() % 2 == 0, ErrorCode::invalid_argument, where(),
            "Bidirectional: initial_state holds the states of both directions, received ", states.size(),
            " tensors");
    const auto half = states.begin() + static_cast<std::ptrdiff_t>(states.size() / 2);
    const auto options = [&](TensorList own) {
      return CallOptions{
          .training = context.training, .mask = context.mask(), .initial_state = std::move(own)};
    };
    const TensorList ahead = forward_.apply(inputs, options({states.begin(), half}));
    const TensorList back = backward_.apply(inputs, options({half, states.end()}));
    TensorList results = merged(cast(ahead[0], compute_dtype()), cast(back[0], compute_dtype()));
    if (return_state_) {
      results.insert(results.end(), ahead.begin() + 1, ahead.end());
      results.insert(results.end(), back.begin() + 1, back.end());
    }
    return results;
  }

  TensorList compute_mask(const TensorList&, const TensorList& masks, size_t) override {
    if (!return_sequences_) return {};
    return TensorList(settings_.options.merge_mode ? 1 : 2, masks[0]);
  }
  bool supports_masking() const override { return true; }
  std::vector<std::string> stored_names() const override { return {"forward_layer", "backward_layer"}; }

 private:
  TensorList merged(const Tensor& ahead, const Tensor& made_backwards) const {
    const Tensor back = return_sequences_ ? reverse(made_backwards, {1}) : made_backwards;
    if (!settings_.options.merge_mode) return {ahead, back};
    const std::string& mode = *settings_.options.merge_mode;
    if (mode == "concat") return {concat(TensorList{ahead, back}, -1)};
    if (mode == "mul") return {ahead * back};
    return {mode == "ave" ? (ahead + back) * 0.5 : ahead + back};
  }

  Layer forward_, backward_;
  bool return_sequences_, return_state_;
};
const RegisterLayer<BidirectionalLayer> bidirectional;

// --- step by step ------------------------------------------------------------------------------------------

struct TimeDistributedSettings {
  Layer layer;
  TimeDistributedOptions options;
  void visit(auto& v) { v("layer", layer); }
};

class TimeDistributedLayer final : public ConfiguredLayer<TimeDistributedSettings> {
 public:
  static constexpr const char* kClassName = "TimeDistributed";
  TimeDistributedLayer(const char* class_name, TimeDistributedSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)), layer_(track(settings_.layer)) {}

  void build(const Shape& input) override {
    require(input.rank() >= 3, ErrorCode::shape_mismatch, where(),
            "TimeDistributed takes inputs of shape (batch, time, ...) and rank 3 or more, received ", input);
    Shape step = input;
    step.erase(1);
    layer_.build(step, where());
  }

  std::vector<std::string> stored_names() const override { return {"layer"}; }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    require(inputs.size() == 1, ErrorCode::invalid_argument, where(), "TimeDistributed \"", name(),
            "\" takes one input, received ", inputs.size());
    const Tensor mask = layer_.base()->supports_masking() ? context.mask() : Tensor();
    require(!mask.defined() || (mask.rank() >= 2 && mask.shape()[1] == inputs[0].shape()[1]),
            ErrorCode::shape_mismatch, where(), "TimeDistributed: the mask of inputs ", inputs[0].shape(),
            " is (batch, time), received ", mask.defined() ? mask.shape() : Shape());
    return context.training && keeps_count() ? one_by_one(inputs[0], mask) : all_at_once(inputs[0], mask);
  }
  bool supports_masking() const override { return true; }

 private:
  // Statistics of batches: every step is a batch of its own.
  bool keeps_count() const {
    const std::vector<Variable> weights = layer_.weights();
    return std::any_of(weights.begin(), weights.end(), [](const Variable& w) { return !w.trainable(); });
  }

  // Steps are examples to a layer that does not look beyond one.
  TensorList all_at_once(const Tensor& x, const Tensor& mask) const {
    const int64_t batch = x.shape()[0], time = x.shape()[1];
    const auto folded = [&](const Tensor& t) {
      Shape shape = t.shape();
      shape.erase(1);
      shape[0] = batch * time;
      return reshape(t, shape);
    };
    CallOptions options;
    if (mask.defined()) {
      Shape shape = mask.shape();
      shape[0] = batch;  // one mask may serve all examples
      options.mask = folded(broadcast_to(mask, shape));
    }
    TensorList results = layer_.apply(TensorList{folded(x)}, options);
    for (Tensor& result : results) {
      Shape shape = result.shape();
      shape[0] = time;
      shape.insert(0, batch);
      result = reshape(result, shape);
    }
    return results;
  }

  TensorList one_by_one(const Tensor& x, const Tensor& mask) const {
    const TensorList steps = unstack(x, 1);
    const TensorList masks = mask.defined() ? unstack(mask, 1) : TensorList(steps.size());
    std::vector<TensorList> made;
    for (size_t i = 0; i < steps.size(); ++i) {
      const TensorList results = layer_.apply(TensorList{steps[i]}, {.mask = masks[i]});
      made.resize(results.size());
      for (size_t k = 0; k < results.size(); ++k) made[k].push_back(results[k]);
    }
    TensorList results;
    for (const TensorList& all : made) results.push_back(stack(all, 1));
    return results;
  }

  Layer layer_;
};
const RegisterLayer<TimeDistributedLayer> time_distributed;

}  // namespace

Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<BidirectionalLayer>({layer, options});
}
Layer TimeDistributed(const Layer& layer, const TimeDistributedOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<TimeDistributedLayer>({layer, options});
}

}  // namespace lockstep::keras::layers
