#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/as_error.h"
#include "keras/models/functional_model.h"
#include "keras/models/sequential_model.h"
#include "keras/onnx/graph_writer.h"
#include "keras/operation_layer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::onnx {
namespace {

using Values = std::vector<Value>;
using Ints = std::vector<int64_t>;

// One call of a layer that is to become nodes.
class Call {
 public:
  Call(GraphWriter& graph, const Layer& layer, const KerasTensorList& inputs, const KerasTensor& result,
       Values values)
      : graph(graph),
        layer(layer),
        inputs(inputs),
        result(result),
        values(std::move(values)),
        config_(layer.base()->get_config()) {}

  template <class... Parts>
  void supports(bool holds, const Parts&... parts) const {
    require(holds, ErrorCode::unsupported, std::source_location::current(), "export_onnx: layer \"",
            layer.name(), "\" (", layer.class_name(), "): ", parts...);
  }

  const Value& x() const { return values[0]; }
  int rank() const { return inputs[0].shape().rank(); }
  Value node(const std::string& op, const Values& operands, const Attributes& attributes = {}) const {
    return graph.node(op, operands, attributes, layer.name());
  }
  // A weight of this name: as its value is now; none where there is no such weight.
  Tensor weight(const std::string& name) const {
    for (const Variable& variable : layer.weights())
      if (variable.name().ends_with("/" + name)) return variable.value();
    return {};
  }
  Value constant(const Tensor& value, const std::string& name) const {
    return graph.constant(value, layer.name() + "/" + name);
  }
  Value plus_bias(const Value& value, const std::string& name = "bias") const {
    const Tensor bias = weight(name);
    return bias.defined() ? node("Add", {value, constant(bias, name)}) : value;
  }

  const Json* setting(const char* name) const { return config_.find(name); }
  std::string text(const char* name) const {
    const Json* value = setting(name);
    return value && value->is_string() ? value->as_string() : "";
  }
  double number(const char* name, double otherwise) const {
    const Json* value = setting(name);
    return value && value->is_number() ? value->as_double() : otherwise;
  }
  bool flag(const char* name) const {
    const Json* value = setting(name);
    return value && value->is_bool() && value->as_bool();
  }
  // One number, or a list, for this many dimensions.
  Ints sizes(const char* name, size_t count) const {
    const Json* value = setting(name);
    if (!value || value->is_null()) return Ints(count, 1);
    if (value->is_int()) return Ints(count, value->as_int());
    Ints list;
    for (const Json& item : value->items()) list.push_back(item.as_int());
    supports(list.size() == count, "\"", name, "\" is ", *value);
    return list;
  }
  void expect_channels_last() const {
    supports(text("data_format") != "channels_first", "channels must be last");
  }
  Value activated(const Value& value) const { return activated(value, text("activation")); }
  Value activated(const Value& value, const std::string& activation) const;

  GraphWriter& graph;
  const Layer& layer;
  const KerasTensorList& inputs;
  const KerasTensor& result;
  Values values;

 private:
  Json config_;
};

// x / 2 (1 + erf(x / sqrt 2)), or its approximation by tanh
Value gelu(const Call& call, const Value& x, bool approximate) {
  GraphWriter& g = call.graph;
  Value share;
  if (approximate) {
    const Value cube = call.node("Mul", {call.node("Mul", {x, x}), x});
    const Value inner = call.node("Add", {x, call.node("Mul", {cube, g.number(0.044715)})});
    share = call.node("Tanh", {call.node("Mul", {inner, g.number(0.7978845608028654)})});
  } else {
    share = call.node("Erf", {call.node("Mul", {x, g.number(0.7071067811865476)})});
  }
  const Value half = call.node("Mul", {x, g.number(0.5)});
  return call.node("Mul", {half, call.node("Add", {share, g.number(1)})});
}

Value Call::activated(const Value& value, const std::string& activation) const {
  static const std::map<std::string, std::string> plain{{"relu", "Relu"},         {"tanh", "Tanh"},
                                                        {"sigmoid", "Sigmoid"},   {"softplus", "Softplus"},
                                                        {"softsign", "Softsign"}, {"exponential", "Exp"}};
  if (activation.empty() || activation == "linear") return value;
  if (const auto found = plain.find(activation); found != plain.end()) return node(found->second, {value});
  if (activation == "softmax") return node("Softmax", {value}, {{"axis", int64_t{-1}}});
  if (activation == "log_softmax") return node("LogSoftmax", {value}, {{"axis", int64_t{-1}}});
  if (activation == "elu") return node("Elu", {value});
  if (activation == "silu" || activation == "swish") return node("Mul", {value, node("Sigmoid", {value})});
  supports(activation == "gelu", "activation \"", activation, "\" cannot be written");
  return gelu(*this, value, false);
}

// Around what knows channels first alone.
Value with_channels_first(const Call& call, const Value& x, const std::function<Value(const Value&)>& f) {
  const int rank = call.rank();
  Ints there = {0, rank - 1}, back = {0};
  for (int64_t d = 1; d < rank - 1; ++d) there.push_back(d);
  for (int64_t d = 2; d < rank; ++d) back.push_back(d);
  back.push_back(1);
  return call.node("Transpose", {f(call.node("Transpose", {x}, {{"perm", there}}))}, {{"perm", back}});
}

Value dense(const Call& call) {
  return call.activated(
      call.plus_bias(call.node("MatMul", {call.x(), call.constant(call.weight("kernel"), "kernel")})));
}

// "same" as Keras has it: more at the end where it is odd.
std::string padding_of(const Call& call) {
  const std::string padding = call.text("padding");
  call.supports(padding == "same" || padding == "valid", "padding \"", padding, "\" cannot be written");
  return padding == "same" ? "SAME_UPPER" : "VALID";
}

Value convolution(const Call& call) {
  call.expect_channels_last();
  const auto spatial = static_cast<size_t>(call.rank() - 2);
  Tensor kernel = call.weight("kernel");
  Dims order = {static_cast<int64_t>(spatial) + 1, static_cast<int64_t>(spatial)};
  for (size_t d = 0; d < spatial; ++d) order.push_back(static_cast<int64_t>(d));
  kernel = transpose(kernel, order);
  const Ints dilations = call.sizes("dilation_rate", spatial);
  Attributes attributes{{"strides", call.sizes("strides", spatial)},
                        {"dilations", dilations},
                        {"group", static_cast<int64_t>(call.number("groups", 1))}};
  const std::string padding = padding_of(call);
  if (padding == "VALID" || dilations == Ints(spatial, 1)) {
    attributes.emplace_back("auto_pad", padding);
  } else {
    // Runtimes want the numbers where there are dilations, which have no strides.
    Ints pads(2 * spatial);
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t all = dilations[d] * (kernel.shape()[static_cast<int>(d) + 2] - 1);
      pads[d] = all / 2;
      pads[spatial + d] = all - all / 2;
    }
    attributes.emplace_back("pads", pads);
  }
  const Value y = with_channels_first(call, call.x(), [&](const Value& x) {
    return call.node("Conv", {x, call.constant(kernel, "kernel")}, attributes);
  });
  return call.activated(call.plus_bias(y));
}

Value pooling(const Call& call, const std::string& op) {
  call.expect_channels_last();
  const auto spatial = static_cast<size_t>(call.rank() - 2);
  const Ints window = call.sizes("pool_size", spatial);
  const Json* strides = call.setting("strides");
  return with_channels_first(call, call.x(), [&](const Value& x) {
    return call.node(op, {x},
                     {{"kernel_shape", window},
                      {"strides", strides && !strides->is_null() ? call.sizes("strides", spatial) : window},
                      {"auto_pad", padding_of(call)}});
  });
}

Value global_mean(const Call& call) {
  call.expect_channels_last();
  Ints axes;
  for (int64_t d = 1; d < call.rank() - 1; ++d) axes.push_back(d);
  return call.node("ReduceMean", {call.x()}, {{"axes", axes}, {"keepdims", int64_t{call.flag("keepdims")}}});
}

// The moving statistics, as one product and one sum.
Value batch_normalization(const Call& call) {
  const auto axis = static_cast<int64_t>(call.number("axis", -1));
  call.supports(axis == -1 || axis == call.rank() - 1, "the axis must be the last one");
  const Tensor mean = call.weight("moving_mean"), gamma = call.weight("gamma"), beta = call.weight("beta");
  Tensor scale = rsqrt(call.weight("moving_variance") + call.number("epsilon", 1e-3));
  if (gamma.defined()) scale = scale * gamma;
  Tensor shift = (mean * scale) * -1.0;
  if (beta.defined()) shift = shift + beta;
  return call.node(
      "Add", {call.node("Mul", {call.x(), call.constant(scale, "scale")}), call.constant(shift, "shift")});
}

Value layer_normalization(const Call& call) {
  const Json* axis = call.setting("axis");
  const bool last = axis && (*axis == Json(-1) || *axis == Json(Json::List{-1}) ||
                             *axis == Json(call.rank() - 1) || *axis == Json(Json::List{call.rank() - 1}));
  call.supports(last, "the axis must be the last one");
  const Tensor gamma = call.weight("gamma"), beta = call.weight("beta");
  const int64_t size = call.inputs[0].shape()[-1];
  const Values operands = {
      call.x(), call.constant(gamma.defined() ? gamma : Tensor::full(DType::float32, {size}, 1), "gamma"),
      call.constant(beta.defined() ? beta : Tensor::full(DType::float32, {size}, 0), "beta")};
  return call.node("LayerNormalization", operands,
                   {{"axis", int64_t{-1}}, {"epsilon", call.number("epsilon", 1e-3)}});
}

Value reshaped(const Call& call) {
  Ints sizes = {0};  // the batch's
  for (int d = 1; d < call.result.shape().rank(); ++d) sizes.push_back(call.result.shape()[d]);
  call.supports(std::count(sizes.begin(), sizes.end(), -1) <= 1,
                "more than one size of the result is not known");
  return call.node("Reshape", {call.x(), call.graph.integers(sizes)});
}

// [[1, 1], [2, 2]], [1, 1] or 1: before and behind each dimension between the batch and the channels.
std::pair<Ints, Ints> margins(const Call& call, const char* name) {
  const auto spatial = static_cast<size_t>(call.rank() - 2);
  const Json* value = call.setting(name);
  Ints before, behind;
  if (value && value->is_list() && spatial == 1 && value->items().size() == 2 &&
      value->at(size_t{0}).is_int())
    return {{value->at(size_t{0}).as_int()}, {value->at(size_t{1}).as_int()}};
  if (value && value->is_list() && value->at(size_t{0}).is_list()) {
    for (const Json& pair : value->items()) {
      before.push_back(pair.at(size_t{0}).as_int());
      behind.push_back(pair.at(size_t{1}).as_int());
    }
    return {before, behind};
  }
  before = call.sizes(name, spatial);
  return {before, before};
}

Value padded(const Call& call) {
  call.expect_channels_last();
  const auto [before, behind] = margins(call, "padding");
  Ints pads = {0};
  pads.insert(pads.end(), before.begin(), before.end());
  pads.insert(pads.end(), {0, 0});
  pads.insert(pads.end(), behind.begin(), behind.end());
  pads.push_back(0);
  return call.node("Pad", {call.x(), call.graph.integers(pads)});
}

Value cropped(const Call& call) {
  call.expect_channels_last();
  const auto [before, behind] = margins(call, "cropping");
  Ints starts, ends, axes;
  for (size_t d = 0; d < before.size(); ++d) {
    starts.push_back(before[d]);
    ends.push_back(behind[d] == 0 ? INT64_MAX : -behind[d]);
    axes.push_back(static_cast<int64_t>(d) + 1);
  }
  return call.node(
      "Slice", {call.x(), call.graph.integers(starts), call.graph.integers(ends), call.graph.integers(axes)});
}

Value embedding(const Call& call) {
  call.supports(!call.flag("mask_zero"), "masks cannot be written");
  const Value table = call.constant(call.weight("embeddings"), "embeddings");
  if (!is_floating(call.inputs[0].dtype()))
    return call.node("Gather", {table, call.x()}, {{"axis", int64_t{0}}});
  // A ReversibleEmbedding of vectors gives logits.
  const Tensor back = call.weight("reverse_embeddings");
  call.supports(!back.defined(), "embeddings that are not tied cannot be written");
  return call.node("MatMul", {call.x(), call.node("Transpose", {table}, {{"perm", Ints{1, 0}}})});
}

// The size of a dimension, as a list of one.
Value size_of_dimension(const Call& call, const Value& value, int64_t dimension) {
  return call.node("Slice", {call.node("Shape", {value}), call.graph.integers({dimension}),
                             call.graph.integers({dimension + 1})});
}

Value position_embedding(const Call& call) {
  call.supports(call.rank() == 3, "inputs must be (batch, positions, features)");
  const Value table = call.constant(call.weight("embeddings"), "embeddings");
  const Value rows = call.node("Slice", {table, call.graph.integers({0}),
                                         size_of_dimension(call, call.x(), 1), call.graph.integers({0})});
  return call.node("Expand", {rows, call.node("Shape", {call.x()})});
}

Value attention(const Call& call, const SymbolicCallOptions& options) {
  call.supports(call.inputs.size() >= 2 && call.rank() == 3 && call.inputs[1].shape().rank() == 3,
                "inputs must be (batch, positions, features)");
  call.supports(!options.attention_mask.defined() && !options.mask.defined() && options.masks.empty() &&
                    !options.return_attention_scores,
                "masks other than the causal one, and scores, cannot be written");
  call.supports(!call.flag("use_gate") &&
                    (!call.setting("sliding_window") || call.setting("sliding_window")->is_null()),
                "gates and windows cannot be written");
  const auto projected = [&](const std::string& name, const Value& x, const char* equation) {
    const Value y = call.node("Einsum", {x, call.constant(call.weight(name + "/kernel"), name + "/kernel")},
                              {{"equation", std::string(equation)}});
    return call.plus_bias(y, name + "/bias");
  };
  const Value query = projected("query", call.values[0], "btd,dhk->bthk");
  const Value key = projected("key", call.values.back(), "btd,dhk->bthk");
  const Value value = projected("value", call.values[1], "btd,dhk->bthk");
  const double scale = 1 / std::sqrt(call.number("key_dim", 1));
  Value scores = call.node("Einsum", {call.node("Mul", {query, call.graph.number(scale)}), key},
                           {{"equation", std::string("bqhk,bshk->bhqs")}});
  if (options.use_causal_mask) {
    const Value sizes = call.node(
        "Concat", {size_of_dimension(call, call.values[0], 1), size_of_dimension(call, call.values[1], 1)},
        {{"axis", int64_t{0}}});
    const Value ones = call.node("Expand", {call.graph.number(1), sizes});
    const Value seen = call.node("Trilu", {ones}, {{"upper", int64_t{0}}});
    scores = call.node("Where",
                       {call.node("Greater", {seen, call.graph.number(0)}), scores, call.graph.number(-1e9)});
  }
  const Value shares = call.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const Value mixed = call.node("Einsum", {shares, value}, {{"equation", std::string("bhqs,bshk->bqhk")}});
  return projected("attention_output", mixed, "bqhk,hkd->bqd");
}

Value merged(const Call& call, const std::string& op) {
  Value sum = call.values[0];
  for (size_t i = 1; i < call.values.size(); ++i) sum = call.node(op, {sum, call.values[i]});
  return sum;
}

// Operations between layers: of tensors and numbers, elementwise, and gelu.
Value operation(const Call& call, const CallForm& form) {
  static const std::map<std::string, std::string> known{
      {"Add", "Add"}, {"Subtract", "Sub"}, {"Multiply", "Mul"}, {"TrueDivide", "Div"}, {"Divide", "Div"}};
  if (call.layer.class_name() == "Gelu") {
    const Json* approximate = call.setting("approximate");
    return gelu(call, call.x(), !approximate || !approximate->is_bool() || approximate->as_bool());
  }
  const auto found = known.find(call.layer.class_name());
  call.supports(found != known.end(), "this operation cannot be written");
  Json::List places;
  for (size_t i = 0; i < call.values.size(); ++i)
    places.push_back(Json::object({{"value", static_cast<int64_t>(i)}}));
  const Json arguments = form.written(places).at("args");
  Values operands;
  for (const Json& argument : arguments.items()) {
    const Json* place = argument.is_object() ? argument.find("value") : nullptr;
    call.supports(place || argument.is_number(), "argument ", argument, " cannot be written");
    operands.push_back(place ? call.values[static_cast<size_t>(place->as_int())]
                             : call.graph.number(argument.as_double()));
  }
  call.supports(operands.size() == 2, "it takes two values");
  return call.node(found->second, operands);
}

using Maker = std::function<Value(const Call&)>;

const std::map<std::string, Maker>& makers() {
  const auto same = [](const Call& call) { return call.x(); };
  static const std::map<std::string, Maker> all{
      {"Dense", dense},
      {"Conv1D", convolution},
      {"Conv2D", convolution},
      {"MaxPooling1D", [](const Call& call) { return pooling(call, "MaxPool"); }},
      {"MaxPooling2D", [](const Call& call) { return pooling(call, "MaxPool"); }},
      {"AveragePooling1D", [](const Call& call) { return pooling(call, "AveragePool"); }},
      {"AveragePooling2D", [](const Call& call) { return pooling(call, "AveragePool"); }},
      {"GlobalAveragePooling1D", global_mean},
      {"GlobalAveragePooling2D", global_mean},
      {"BatchNormalization", batch_normalization},
      {"LayerNormalization", layer_normalization},
      {"Activation", [](const Call& call) { return call.activated(call.x()); }},
      {"ReLU",
       [](const Call& call) {
         call.supports(call.number("negative_slope", 0) == 0 && call.number("threshold", 0) == 0 &&
                           (!call.setting("max_value") || call.setting("max_value")->is_null()),
                       "only the plain one can be written");
         return call.activated(call.x(), "relu");
       }},
      {"Softmax", [](const Call& call) { return call.activated(call.x(), "softmax"); }},
      {"Add", [](const Call& call) { return merged(call, "Add"); }},
      {"Multiply", [](const Call& call) { return merged(call, "Mul"); }},
      {"Concatenate",
       [](const Call& call) {
         return call.node("Concat", call.values, {{"axis", static_cast<int64_t>(call.number("axis", -1))}});
       }},
      {"ZeroPadding1D", padded},
      {"ZeroPadding2D", padded},
      {"Cropping1D", cropped},
      {"Cropping2D", cropped},
      {"Reshape", reshaped},
      {"Flatten", [](const Call& call) { return call.node("Flatten", {call.x()}); }},
      {"Rescaling",
       [](const Call& call) {
         const Value scaled = call.node("Mul", {call.x(), call.graph.number(call.number("scale", 1))});
         return call.node("Add", {scaled, call.graph.number(call.number("offset", 0))});
       }},
      {"Embedding", embedding},
      {"ReversibleEmbedding", embedding},
      {"PositionEmbedding", position_embedding},
      {"Dropout", same},
      {"GaussianNoise", same},
      {"GaussianDropout", same},
      {"SpatialDropout1D", same},
      {"SpatialDropout2D", same},
  };
  return all;
}

class Exporter {
 public:
  explicit Exporter(const Model& model) {
    const auto& base = model.model_base();
    const KerasTensorList inputs = base.inputs(), outputs = base.outputs();
    std::vector<std::string> names = base.input_names(), result_names = base.output_names(outputs.size());
    for (std::vector<std::string>* all : {&names, &result_names})
      for (std::string& name : *all) name = graph_.reserve(name);
    for (size_t i = 0; i < inputs.size(); ++i)
      graph_.add_input(names[i], {inputs[i].dtype(), inputs[i].shape()});
    const Values results = enter(base, names);
    for (size_t i = 0; i < outputs.size(); ++i)
      graph_.add_output(result_names[i], results[i], {outputs[i].dtype(), outputs[i].shape()});
  }
  std::string finish(const std::string& name) const { return graph_.finish(name); }

 private:
  Values enter(const ModelBase& model, const Values& inputs) {
    if (const auto* functional = dynamic_cast<const FunctionalModel*>(&model))
      return enter_functional(*functional, inputs);
    const auto* sequential = dynamic_cast<const SequentialModel*>(&model);
    require(sequential && sequential->values().size() == model.layers().size(), ErrorCode::unsupported,
            std::source_location::current(), "export_onnx: model \"", model.name(),
            "\" is neither functional nor a built Sequential; a call() of your own cannot be written");
    Value value = inputs[0];
    KerasTensor before = sequential->input();
    for (size_t i = 0; i < model.layers().size(); ++i) {
      const KerasTensor& after = sequential->values()[i];
      value = apply(model.layers()[i], {before}, {after}, {}, {value})[0];
      before = after;
    }
    return {value};
  }

  Values enter_functional(const FunctionalModel& model, const Values& inputs) {
    std::map<std::pair<const LayerCall*, int>, Value> known;
    const auto key = [](const KerasTensor& value) {
      return std::pair(value.impl()->call.get(), value.impl()->output);
    };
    const KerasTensorList given = model.inputs();
    for (size_t i = 0; i < given.size(); ++i) known[key(given[i])] = inputs[i];
    for (const auto& call : model.graph().calls) {
      if (call->inputs.empty()) continue;
      Values values;
      for (const KerasTensor& input : call->inputs) values.push_back(known.at(key(input)));
      KerasTensorList results;
      for (size_t i = 0; i < call->results.size(); ++i)
        results.emplace_back(std::make_shared<KerasTensor::Impl>(KerasTensor::Impl{
            call->results[i].shape, call->results[i].dtype, call->layer.name(), call, static_cast<int>(i)}));
      const Values made = apply(call->layer, call->inputs, results, call->options, values);
      for (size_t i = 0; i < made.size(); ++i) known[{call.get(), static_cast<int>(i)}] = made[i];
    }
    Values outputs;
    for (const KerasTensor& output : model.outputs()) outputs.push_back(known.at(key(output)));
    return outputs;
  }

  Values apply(const Layer& layer, const KerasTensorList& inputs, const KerasTensorList& results,
               const SymbolicCallOptions& options, const Values& values) {
    if (const auto* model = dynamic_cast<const ModelBase*>(layer.base().get())) return enter(*model, values);
    const Call call(graph_, layer, inputs, results[0], values);
    call.supports(layer.base()->compute_dtype() == DType::float32, "only float32 can be written");
    call.supports(results.size() == 1, "layers of several results cannot be written");
    if (is_operation(*layer.base())) {
      call.supports(options.form != nullptr, "operations that are called as layers are cannot be written");
      return {operation(call, *options.form)};
    }
    if (layer.class_name() == "MultiHeadAttention") return {attention(call, options)};
    call.supports(!options.mask.defined(), "masks cannot be written");
    const auto found = makers().find(layer.class_name());
    call.supports(found != makers().end(), "layers of this class cannot be written");
    return {found->second(call)};
  }

  GraphWriter graph_;
};

}  // namespace
}  // namespace lockstep::keras::onnx

namespace lockstep::keras::models {

void export_onnx(const Model& model, const std::string& path, std::source_location where) {
  as_error("export_onnx", where, [&] {
    require(model.built(where) && !model.model_base(where).inputs().empty(), ErrorCode::failed_precondition,
            where, "export_onnx: model \"", model.name(),
            "\" has no weights yet; call build() or fit() first");
    AtomicFile file(path, where);
    file.write(onnx::Exporter(model).finish(model.name()));
    file.commit();
  });
}

}  // namespace lockstep::keras::models
