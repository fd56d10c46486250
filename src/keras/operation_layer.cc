#include "keras/operation_layer.h"

#include <algorithm>

#include "keras/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

// What an operation is given: the tensors of the call, its arguments and its settings.
class Operands {
 public:
  Operands(const TensorList& tensors, const Json& arguments, const Json& config)
      : tensors_(tensors), arguments_(arguments), config_(config) {}

  const TensorList& tensors() const { return tensors_; }
  const Json& argument(size_t i) const { return arguments_.at(i); }
  // A tensor, or a number, which takes the dtype of what it meets.
  OperandArg operand(size_t i) const {
    const Json& given = arguments_.at(i);
    if (const Json* input = given.find("input")) return tensors_[static_cast<size_t>(input->as_int())];
    if (given.is_bool()) return given.as_bool() ? 1.0 : 0.0;
    return given.as_double();
  }
  Tensor tensor(size_t i) const { return operand(i).tensor(); }

  // A setting; null and none are the default.
  template <class T>
  T setting(const char* name, T value) const {
    if (const Json* found = config_.find(name); found && !found->is_null()) from_json(*found, value);
    return value;
  }
  ReduceOptions reduction() const {
    return {.axis = setting("axis", std::vector<int64_t>()), .keepdims = setting("keepdims", false)};
  }
  int axis() const { return static_cast<int>(setting("axis", int64_t{-1})); }

 private:
  const TensorList& tensors_;
  const Json& arguments_;
  const Json& config_;
};

// x[1:3, ..., 0]: slices and positions, as Python reads them.
Tensor get_item(const Operands& o) {
  const Tensor x = o.tensor(0);
  const Json key = o.argument(1).is_list() ? o.argument(1) : Json(Json::List{o.argument(1)});
  Dims begin, end, step, dropped;
  for (const Json& part : key.items()) {
    const int d = begin.rank();
    require(d < x.rank(), ErrorCode::invalid_argument, std::source_location::current(), "GetItem: ", key,
            " has more parts than the tensor of shape ", x.shape(), " dimensions");
    if (part.is_int()) {
      const int64_t at = part.as_int() < 0 ? part.as_int() + x.shape()[d] : part.as_int();
      begin.push_back(at), end.push_back(at + 1), step.push_back(1), dropped.push_back(d);
      continue;
    }
    const Json* config = part.find("config");
    require(config != nullptr, ErrorCode::unsupported, std::source_location::current(), "GetItem: ", part,
            " is neither a position nor a slice");
    const auto value = [&](const char* name, int64_t otherwise) {
      const Json* found = config->find(name);
      return found && !found->is_null() ? found->as_int() : otherwise;
    };
    begin.push_back(value("start", 0)), end.push_back(value("stop", x.shape()[d])),
        step.push_back(value("step", 1));
  }
  for (int d = begin.rank(); d < x.rank(); ++d)
    begin.push_back(0), end.push_back(x.shape()[d]), step.push_back(1);
  const Tensor cut = strided_slice(x, begin, end, step);
  return dropped.empty() ? cut : squeeze(cut, dropped);
}

// A size of -1 or none follows from the others.
Tensor reshape_to(const Operands& o) {
  Dims shape;
  from_json(o.setting("newshape", Json()), shape);
  return reshape(o.tensor(0), shape);
}

struct Operation {
  const char* class_name;
  const char* module;  // behind keras.src.ops.
  Tensor (*run)(const Operands&);
};

template <Tensor (*F)(const OperandArg&, const OperandArg&)>
Tensor binary(const Operands& o) {
  return F(o.operand(0), o.operand(1));
}
template <Tensor (*F)(const TensorArg&)>
Tensor unary(const Operands& o) {
  return F(o.tensor(0));
}
template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor reduction(const Operands& o) {
  return F(o.tensor(0), o.reduction());
}

constexpr Operation kOperations[] = {
    {"Add", "numpy", binary<add>},
    {"Subtract", "numpy", binary<subtract>},
    {"Multiply", "numpy", binary<multiply>},
    {"Divide", "numpy", binary<divide>},
    {"TrueDivide", "numpy", binary<divide>},
    {"Power", "numpy", binary<lockstep::pow>},
    {"Mod", "numpy", binary<floormod>},
    {"Maximum", "numpy", binary<maximum>},
    {"Minimum", "numpy", binary<minimum>},
    {"Equal", "numpy", binary<equal>},
    {"NotEqual", "numpy", binary<not_equal>},
    {"Less", "numpy", binary<less>},
    {"LessEqual", "numpy", binary<less_equal>},
    {"Greater", "numpy", binary<greater>},
    {"GreaterEqual", "numpy", binary<greater_equal>},
    {"Negative", "numpy", unary<negative>},
    {"Absolute", "numpy", unary<lockstep::abs>},
    {"Sign", "numpy", unary<sign>},
    {"Square", "numpy", unary<square>},
    {"Sqrt", "numpy", unary<lockstep::sqrt>},
    {"Exp", "numpy", unary<lockstep::exp>},
    {"Log", "numpy", unary<lockstep::log>},
    {"Log1p", "numpy", unary<lockstep::log1p>},
    {"Tanh", "numpy", unary<lockstep::tanh>},
    {"Sin", "numpy", unary<lockstep::sin>},
    {"Cos", "numpy", unary<lockstep::cos>},
    {"Sigmoid", "nn", unary<sigmoid>},
    {"Relu", "nn", [](const Operands& o) { return relu(o.tensor(0)); }},
    {"Gelu", "nn",
     [](const Operands& o) { return gelu(o.tensor(0), {.approximate = o.setting("approximate", true)}); }},
    {"Silu", "nn", unary<silu>},
    {"Softplus", "nn", unary<softplus>},
    {"Softmax", "nn", [](const Operands& o) { return softmax(o.tensor(0), o.axis()); }},
    {"LogSoftmax", "nn", [](const Operands& o) { return log_softmax(o.tensor(0), o.axis()); }},
    {"Matmul", "numpy", [](const Operands& o) { return matmul(o.tensor(0), o.tensor(1)); }},
    {"Sum", "numpy", reduction<reduce_sum>},
    {"Mean", "numpy", reduction<reduce_mean>},
    {"Max", "numpy", reduction<reduce_max>},
    {"Min", "numpy", reduction<reduce_min>},
    {"Prod", "numpy", reduction<reduce_prod>},
    {"Transpose", "numpy",
     [](const Operands& o) { return transpose(o.tensor(0), o.setting("axes", Dims())); }},
    {"Reshape", "numpy", reshape_to},
    {"Concatenate", "numpy", [](const Operands& o) { return concat(o.tensors(), o.axis()); }},
    {"Stack", "numpy",
     [](const Operands& o) { return stack(o.tensors(), static_cast<int>(o.setting("axis", int64_t{0}))); }},
    {"ExpandDims", "numpy", [](const Operands& o) { return expand_dims(o.tensor(0), o.axis()); }},
    {"Squeeze", "numpy", [](const Operands& o) { return squeeze(o.tensor(0), o.setting("axis", Dims())); }},
    {"GetItem", "numpy", get_item},
    {"Cast", "core", [](const Operands& o) { return cast(o.tensor(0), o.setting("dtype", DType::float32)); }},
};

const Operation* find(const std::string& class_name) {
  const auto* found =
      std::find_if(std::begin(kOperations), std::end(kOperations),
                   [&](const Operation& operation) { return class_name == operation.class_name; });
  return found == std::end(kOperations) ? nullptr : found;
}

Json fill_in(const Json& arguments, const Json::List& inputs) {
  if (const Json* input = arguments.find("input")) return inputs[static_cast<size_t>(input->as_int())];
  if (!arguments.is_list()) return arguments;
  Json list = Json::list();
  for (const Json& item : arguments.items()) list.push_back(fill_in(item, inputs));
  return list;
}

std::string name_in(const Json& config) {
  const Json* name = config.find("name");
  return name ? name->as_string() : "";
}

}  // namespace

OperationLayer::OperationLayer(const std::string& class_name, Json config, Json arguments)
    : LayerBase(class_name, {.name = name_in(config)}),
      config_(std::move(config)),
      arguments_(std::move(arguments)) {
  if (!find(class_name)) {
    std::string known;
    for (const Operation& operation : kOperations)
      known += (known.empty() ? "" : ", ") + std::string(operation.class_name);
    fail(ErrorCode::unsupported, std::source_location::current(), "the operation \"", class_name,
         "\" of keras.ops is not known between layers; there are ", known);
  }
  config_.set("name", name());
}

TensorList OperationLayer::call_all(const TensorList& inputs, const CallContext&) {
  return {find(class_name())->run(Operands(inputs, arguments_, config_))};
}

std::string OperationLayer::module() const {
  return std::string("keras.src.ops.") + find(class_name())->module;
}
Json OperationLayer::get_config() const { return config_; }
Json OperationLayer::arguments(const Json::List& inputs) const { return fill_in(arguments_, inputs); }

bool OperationLayer::is_operation(const Json& json) {
  const Json* module = json.find("module");
  return module && module->is_string() && module->as_string().starts_with("keras.src.ops");
}

}  // namespace lockstep::keras
