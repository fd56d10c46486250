#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/as_error.h"
#include "graph/emit.h"
#include "keras/functional_graph.h"
#include "keras/onnx/import.h"
#include "keras/onnx/operators.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/onnx.h"

namespace lockstep::keras::onnx {
namespace {

// What a file's graph computes, as one layer: its floating-point constants are the weights. Nodes become ops
// whenever the layer is called, so that sizes are numbers, and what follows from sizes alone is computed
// there and then.
class GraphLayer final : public LayerBase {
 public:
  explicit GraphLayer(GraphFile file) : LayerBase("OnnxGraph"), file_(std::move(file)) {
    std::set<std::string> weights, statistics;
    for (const Node& node : file_.nodes)
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (takes_weights(node, i)) weights.insert(node.inputs[i]);
        if (takes_statistics(node, i)) statistics.insert(node.inputs[i]);
      }
    for (const auto& [name, value] : file_.constants) {
      const bool is_weight = weights.contains(name) && is_floating(value.dtype()) && value.rank() > 0;
      kinds_.push_back(!is_weight                  ? Kind::constant
                       : statistics.contains(name) ? Kind::statistic
                                                   : Kind::weight);
    }
  }

  void build_all(const std::vector<Shape>&) override {
    variables_.resize(file_.constants.size());
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == Kind::constant) continue;
      auto& [name, value] = file_.constants[i];
      variables_[i] = add_weight(
          name, value.shape(),
          {.initializer = "zeros", .trainable = kinds_[i] == Kind::weight, .dtype = value.dtype()});
      const TracePause outside;
      variables_[i].assign(value);
      value = {};
    }
  }

  TensorList call_all(const TensorList& inputs, const CallContext&) override {
    std::map<std::string, Operand> values;
    for (size_t i = 0; i < inputs.size(); ++i) values[file_.inputs[i].name] = {.stored = inputs[i]};
    for (size_t i = 0; i < kinds_.size(); ++i)
      values[file_.constants[i].first] = kinds_[i] == Kind::constant
                                             ? Operand{.stored = file_.constants[i].second, .known = true}
                                             : Operand{.stored = variables_[i].value()};
    for (const Node& node : file_.nodes) compute(node, values);
    TensorList outputs;
    for (const std::string& name : file_.outputs)
      outputs.push_back(value_of(values, name, "the graph").value());
    return outputs;
  }

  Json get_config() const override {
    fail(ErrorCode::unsupported, where(), "model \"", file_.name,
         "\" was read from an ONNX file and cannot be written as layers of Keras; keep that file, and the "
         "weights with "
         "save_weights()");
  }

 private:
  enum class Kind : uint8_t { constant, weight, statistic };

  const Operand& value_of(const std::map<std::string, Operand>& values, const std::string& name,
                          const std::string& whose) const {
    const auto found = values.find(name);
    require(found != values.end(), ErrorCode::io, where(), whose, " needs \"", name,
            "\", which nothing before it computes");
    return found->second;
  }

  void compute(const Node& node, std::map<std::string, Operand>& values) const {
    std::vector<Operand> inputs;
    for (const std::string& name : node.inputs)
      inputs.push_back(name.empty() ? Operand{} : value_of(values, name, node.op));
    const bool known = reads_shapes(node) ||
                       std::all_of(inputs.begin(), inputs.end(),
                                   [](const Operand& input) { return !input.defined() || input.known; });
    const Operator& op = operators().at(node.op);
    std::optional<TracePause> now;
    if (known) now.emplace();
    std::vector<Operand> results = op(NodeCall(node, file_.opset, std::move(inputs)));
    for (Operand& result : results) {
      result.known = known;
      require(!known || result.shape().size() <= kMostKnown, ErrorCode::unsupported, where(), node.op, " \"",
              node.name, "\" makes a constant of shape ", result.shape(), ", which is too large");
    }
    now.reset();
    require(node.outputs.size() <= results.size() ||
                std::all_of(node.outputs.begin() + static_cast<std::ptrdiff_t>(results.size()),
                            node.outputs.end(), [](const std::string& name) { return name.empty(); }),
            ErrorCode::unsupported, where(), node.op, " \"", node.name, "\" has ", node.outputs.size(),
            " results, of which ", results.size(), " are known here");
    for (size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i)
      if (!node.outputs[i].empty()) values[node.outputs[i]] = std::move(results[i]);
  }

  GraphFile file_;                   // values of weights are let go when these are made
  std::vector<Kind> kinds_;          // of the constants
  std::vector<Variable> variables_;  // the same
};

// All of them, so that nobody has to try again and again.
void require_known_operators(const GraphFile& file) {
  std::map<std::string, int> unknown;
  for (const Node& node : file.nodes)
    if (!operators().contains(node.op)) ++unknown[node.op];
  std::string text;
  for (const auto& [op, count] : unknown)
    text += detail::concat(text.empty() ? "" : ", ", op, " (", count, ")");
  require(unknown.empty(), ErrorCode::unsupported, std::source_location::current(),
          "there are operators that are not known here: ", text, "; docs/formats.md lists those that are");
}

}  // namespace

Model model_of(GraphFile file) {
  require_known_operators(file);
  KerasTensorList inputs;
  for (const GraphValue& input : file.inputs) {
    const Shape& shape = input.spec.shape;
    require(shape.rank() > 0, ErrorCode::unsupported, std::source_location::current(), "input \"", input.name,
            "\" has no dimension of examples");
    inputs.push_back(make_input(shape, input.spec.dtype, input.name));
  }
  require(!inputs.empty(), ErrorCode::unsupported, std::source_location::current(),
          "the graph has no inputs");
  const std::vector<std::string> names = file.outputs;
  const KerasTensorList outputs = make_layer<GraphLayer>(std::move(file)).apply(inputs);
  if (outputs.size() == 1) return {inputs, outputs};
  KerasTensors::Named named;
  for (size_t i = 0; i < outputs.size(); ++i) named.emplace(names[i], outputs[i]);
  return {inputs, named};
}

}  // namespace lockstep::keras::onnx

namespace lockstep::keras::models {

Model import_onnx(const std::string& path, std::source_location where) {
  return as_error("import_onnx", where, [&] {
    try {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      return onnx::model_of(onnx::read_graph(read_file(path, where), folder, where));
    } catch (Error& error) {
      error.note(detail::concat("while reading \"", path, "\""));
      throw;
    }
  });
}

}  // namespace lockstep::keras::models
