#include "keras/functional_graph.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/emit.h"
#include "keras/fields.h"
#include "keras/operation_layer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {

namespace {
const KerasTensor::Impl& defined_value(const KerasTensor& value, std::source_location where) {
  require(
      value.defined(), ErrorCode::failed_precondition, where,
      "this KerasTensor was default-constructed: it is no value of a model; make inputs with Input(shape)");
  return *value.impl();
}
}  // namespace

const Shape& KerasTensor::shape(std::source_location where) const {
  return defined_value(*this, where).shape;
}
DType KerasTensor::dtype(std::source_location where) const { return defined_value(*this, where).dtype; }
const std::string& KerasTensor::name(std::source_location where) const {
  return defined_value(*this, where).name;
}

// --- what a layer gives ------------------------------------------------------------------------------------

namespace {

bool known(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
}

// Sizes in the place of those that are not known, input by input.
using Filled = std::vector<Shape>;

Filled with_unknown_as(const std::vector<TensorSpec>& inputs, int64_t size) {
  Filled filled;
  for (const TensorSpec& input : inputs) {
    filled.push_back(input.shape);
    for (int d = 0; d < filled.back().rank(); ++d)
      if (filled.back()[d] < 0) filled.back()[d] = size;
  }
  return filled;
}

// The same, with the size that another input has in the dimension as far from the end: inputs that are to be
// broadcast, multiplied or joined fit each other so.
Filled with_unknown_as_beside(const std::vector<TensorSpec>& inputs, int64_t size) {
  Filled filled = with_unknown_as(inputs, size);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int back = 1; back <= inputs[i].shape.rank(); ++back) {
      if (inputs[i].shape[-back] >= 0) continue;
      for (const TensorSpec& beside : inputs)
        if (beside.shape.rank() >= back && beside.shape[-back] > 1) filled[i][-back] = beside.shape[-back];
    }
  return filled;
}

constexpr int64_t kUsual = 83;

thread_local int inferring = 0;

TensorList trace_call(const Layer& layer, const std::vector<TensorSpec>& inputs, const Filled& sizes,
                      const SymbolicCallOptions& options, int64_t unknown, std::source_location where) {
  struct Inferring {
    Inferring() { ++inferring; }
    ~Inferring() { --inferring; }
  } const marked;
  // Results are symbols of this trace; only their specs outlive it.
  Trace trace;
  int parameters = 0;
  const auto symbol = [&](const TensorSpec& spec) {
    return trace.parameter(parameters++, {spec.dtype, with_unknown_as({spec}, unknown).front()}, where);
  };
  TensorList symbols;
  for (size_t i = 0; i < inputs.size(); ++i) symbols.push_back(symbol({inputs[i].dtype, sizes[i]}));
  TensorList results = layer.base()->run(symbols,
                                         map_options<Tensor>(options,
                                                             [&](const KerasTensor& t) {
                                                               return symbol({t.dtype(), t.shape()});
                                                             }),
                                         where);
  layer.base()->forget_losses();
  return results;
}

bool differ_in_sizes_alone(const std::vector<TensorSpec>& some, const std::vector<TensorSpec>& others) {
  return std::equal(
      some.begin(), some.end(), others.begin(), others.end(),
      [](const TensorSpec& a, const TensorSpec& b) { return a.shape.rank() == b.shape.rank(); });
}

}  // namespace

bool infers_outputs() { return inferring > 0; }

std::vector<TensorSpec> infer_outputs(const Layer& layer, const std::vector<TensorSpec>& inputs,
                                      const SymbolicCallOptions& options, std::source_location where) {
  const auto specs = [&](const Filled& sizes, int64_t stand_in) {
    std::vector<TensorSpec> found;
    for (const Tensor& result : trace_call(layer, inputs, sizes, options, stand_in, where))
      found.push_back(result.spec());
    return found;
  };
  if (std::all_of(inputs.begin(), inputs.end(), [](const TensorSpec& input) { return known(input.shape); }))
    return specs(with_unknown_as(inputs, kUsual), kUsual);

  // A size that follows an unknown one shows by changing with it: two runs with different stand-ins. A small
  // one beside a large one shows what is cut off as well, x[:5] say. Where windows or tables refuse a small
  // one, both are large or both are small; what is split into equal parts wants numbers with many divisors,
  // windows of sounds are wide, and what is joined wants those alone that fit the other inputs.
  struct StandIns {
    Filled (*filled)(const std::vector<TensorSpec>&, int64_t);
    int64_t one, other;
  };
  std::exception_ptr usual;
  for (const StandIns& way :
       {StandIns{with_unknown_as, kUsual, 2}, StandIns{with_unknown_as, kUsual, 89},
        StandIns{with_unknown_as, 7, 5}, StandIns{with_unknown_as, 96, 84},
        StandIns{with_unknown_as, 5003, 4999}, StandIns{with_unknown_as_beside, kUsual, 89}}) {
    try {
      std::vector<TensorSpec> outputs = specs(way.filled(inputs, way.one), way.one);
      const std::vector<TensorSpec> others = specs(way.filled(inputs, way.other), way.other);
      require(differ_in_sizes_alone(outputs, others), ErrorCode::unsupported, where, "layer \"", layer.name(),
              "\": the number of results, or of their dimensions, depends on sizes that are not known yet");
      for (size_t i = 0; i < outputs.size(); ++i)
        for (int d = 0; d < outputs[i].shape.rank(); ++d)
          if (outputs[i].shape[d] != others[i].shape[d]) outputs[i].shape[d] = -1;
      return outputs;
    } catch (const Error&) {
      if (!usual) usual = std::current_exception();
    }
  }
  std::rethrow_exception(usual);
}

KerasTensorList call_symbolically(const Layer& layer, const KerasTensorList& inputs,
                                  const SymbolicCallOptions& options, std::source_location where) {
  require(layer.defined(), ErrorCode::failed_precondition, where,
          "this Layer was default-constructed: it names no layer");
  require(!inputs.empty(), ErrorCode::invalid_argument, where, "layer \"", layer.name(),
          "\" was called with no inputs");
  std::vector<TensorSpec> specs;
  std::vector<Shape> shapes;
  for (const KerasTensor& input : inputs) {
    require(input.defined(), ErrorCode::invalid_argument, where, "layer \"", layer.name(),
            "\": an input is an empty KerasTensor; make inputs with Input(shape)");
    const bool cast = layer.base()->autocast_inputs() && is_floating(input.dtype());
    specs.push_back({cast ? layer.base()->compute_dtype() : input.dtype(), input.shape()});
    shapes.push_back(input.shape());
  }
  layer.base()->ensure_built(shapes, where);
  auto call = std::make_shared<LayerCall>(
      LayerCall{layer, inputs, options, infer_outputs(layer, specs, options, where)});
  KerasTensorList results;
  for (const TensorSpec& spec : call->results) {
    const int output = static_cast<int>(results.size());
    results.emplace_back(std::make_shared<KerasTensor::Impl>(
        KerasTensor::Impl{spec.shape, spec.dtype, layer.name(), call, output}));
  }
  return results;
}

// --- inputs and arithmetic ---------------------------------------------------------------------------------

InputLayer::InputLayer(const Shape& shape, DType dtype, const std::string& name)
    : LayerBase(
          "InputLayer",
          {.name = name.empty() ? unique_name("input_layer") : name, .trainable = true, .dtype = "float32"}),
      shape_(shape),
      dtype_(dtype) {}

Json InputLayer::get_config() const {
  return Json::object({{"batch_shape", to_json(shape_)},
                       {"dtype", std::string(lockstep::name(dtype_))},
                       {"sparse", false},
                       {"ragged", false},
                       {"name", name()}});
}

TensorList InputLayer::call_all(const TensorList& inputs, const CallContext&) { return inputs; }

KerasTensor make_input(const Shape& shape_with_batch, DType dtype, const std::string& name) {
  const Layer layer = make_layer<InputLayer>(shape_with_batch, dtype, name);
  layer.base()->ensure_built({shape_with_batch}, std::source_location::current());
  return *input_of(layer);
}

std::optional<KerasTensor> input_of(const Layer& layer) {
  const auto* input = dynamic_cast<const InputLayer*>(layer.base().get());
  if (!input) return {};
  const TensorSpec spec = input->spec();
  return KerasTensor(std::make_shared<KerasTensor::Impl>(
      KerasTensor::Impl{spec.shape, spec.dtype, layer.name(),
                        std::make_shared<LayerCall>(LayerCall{layer, {}, {}, {spec}}), 0}));
}

Layer::Layer(const KerasTensor& input, std::source_location where) {
  const Layer& made_by = defined_value(input, where).call->layer;
  require(dynamic_cast<const InputLayer*>(made_by.base().get()) != nullptr, ErrorCode::invalid_argument,
          where,
          "of the values of a model only an Input can stand among layers; this one is made by layer \"",
          made_by.name(), "\"");
  base_ = made_by.base();
}

DType data_dtype(const DTypePolicy& policy) {
  return policy.compute_dtype() == DType::float64 ? DType::float64 : DType::float32;
}

KerasTensor Input(const Shape& shape, const InputOptions& options, std::source_location where) {
  Shape whole = shape;
  if (options.batch_shape) {
    require(shape.empty() && options.batch_size == -1, ErrorCode::invalid_argument, where,
            "Input: batch_shape is the whole shape; received shape ", shape, " and batch_size ",
            options.batch_size, " beside it");
    whole = *options.batch_shape;
  } else {
    whole.insert(0, options.batch_size);
  }
  for (const int64_t size : whole)
    require(size >= -1, ErrorCode::invalid_argument, where,
            "Input: sizes are positive, or -1 for any; received ", whole);
  const CallSite site(where);
  const DType dtype = options.dtype.value_or(data_dtype(mixed_precision::global_policy()));
  return make_input(whole, dtype, options.name);
}

namespace {

Json input(int64_t i) { return Json::object({{"input", i}}); }

KerasTensor combine(const char* operation, const KerasOperand& a, const KerasOperand& b) {
  const CallSite site(a.where());
  require(a.value().defined() || b.value().defined(), ErrorCode::invalid_argument, a.where(), operation,
          ": an empty KerasTensor is no value of a model; make inputs with Input(shape)");
  KerasTensorList values;
  Json::List arguments;
  for (const KerasOperand* operand : {&a, &b}) {
    if (operand->value().defined()) {
      arguments.push_back(input(static_cast<int64_t>(values.size())));
      values.push_back(operand->value());
    } else {
      arguments.emplace_back(operand->number());
    }
  }
  return call_operation(operation, Json::object(), arguments, values, a.where());
}

}  // namespace

KerasTensor operator+(const KerasOperand& a, const KerasOperand& b) { return combine("Add", a, b); }
KerasTensor operator-(const KerasOperand& a, const KerasOperand& b) { return combine("Subtract", a, b); }
KerasTensor operator*(const KerasOperand& a, const KerasOperand& b) { return combine("Multiply", a, b); }
KerasTensor operator/(const KerasOperand& a, const KerasOperand& b) { return combine("TrueDivide", a, b); }

// --- the graph between inputs and outputs ------------------------------------------------------------------

namespace {

using Call = std::shared_ptr<const LayerCall>;

class BackTracer {
 public:
  BackTracer(const KerasTensorList& inputs, std::source_location where) : inputs_(inputs), where_(where) {}

  void visit(const KerasTensor& value) {
    const Call& call = value.impl()->call;
    if (done_.contains(call.get())) return;
    const bool given = std::find(inputs_.begin(), inputs_.end(), value) != inputs_.end();
    // A model may start in the middle of another: what made its input is not part of it.
    if (given && !call->inputs.empty()) return;
    const LayerBase* layer = call->layer.base().get();
    first_visit_.emplace(layer, first_visit_.size());
    if (!given) {
      require(!call->inputs.empty(), ErrorCode::invalid_argument, where_, "Model: the outputs need input \"",
              value.name(), "\" of shape ", value.shape(), ", which is not among the model's inputs");
      for (const KerasTensor& input : operands(*call)) visit(input);
    }
    done_.insert(call.get());
    order_.push_back(call);
  }

  static KerasTensorList operands(const LayerCall& call) {
    KerasTensorList all = call.inputs;
    const KerasTensorList more = values_of(call.options);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  FunctionalGraph sorted() const {
    std::unordered_map<const LayerCall*, int> call_depth;
    std::unordered_map<const LayerBase*, int> layer_depth;
    for (auto call = order_.rbegin(); call != order_.rend(); ++call) {
      const LayerBase* layer = (*call)->layer.base().get();
      int& own = call_depth[call->get()];
      own = std::max(own, layer_depth[layer]);
      layer_depth[layer] = own;
      for (const KerasTensor& input : operands(**call)) {
        int& earlier = call_depth[input.impl()->call.get()];
        earlier = std::max(earlier, own + 1);
      }
    }
    FunctionalGraph graph;
    graph.calls = order_;
    std::stable_sort(graph.calls.begin(), graph.calls.end(),
                     [&](const Call& a, const Call& b) { return call_depth[a.get()] > call_depth[b.get()]; });
    for (const Call& call : order_)
      if (std::find(graph.layers.begin(), graph.layers.end(), call->layer) == graph.layers.end())
        graph.layers.push_back(call->layer);
    std::stable_sort(graph.layers.begin(), graph.layers.end(), [&](const Layer& a, const Layer& b) {
      const LayerBase *x = a.base().get(), *y = b.base().get();
      if (layer_depth[x] != layer_depth[y]) return layer_depth[x] > layer_depth[y];
      return first_visit_.at(x) < first_visit_.at(y);
    });
    return graph;
  }

 private:
  const KerasTensorList& inputs_;
  std::source_location where_;
  std::unordered_set<const LayerCall*> done_;
  std::unordered_map<const LayerBase*, size_t> first_visit_;
  std::vector<Call> order_;  // every call after those it needs
};

}  // namespace

FunctionalGraph trace_back(const KerasTensorList& inputs, const KerasTensorList& outputs,
                           std::source_location where) {
  for (const KerasTensor& value : inputs)
    require(value.defined(), ErrorCode::invalid_argument, where, "Model: an input is an empty KerasTensor");
  for (const KerasTensor& value : outputs)
    require(value.defined(), ErrorCode::invalid_argument, where, "Model: an output is an empty KerasTensor");
  BackTracer tracer(inputs, where);
  for (const KerasTensor& output : outputs) tracer.visit(output);
  // Inputs that no output needs are part of the model all the same.
  for (const KerasTensor& input : inputs) tracer.visit(input);
  FunctionalGraph graph = tracer.sorted();
  std::unordered_set<std::string> names;
  for (const Layer& layer : graph.layers)
    require(names.insert(layer.name()).second, ErrorCode::invalid_argument, where,
            "Model: there are two layers \"", layer.name(), "\"; layers of a model need names of their own");
  return graph;
}

}  // namespace lockstep::keras
