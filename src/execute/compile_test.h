// For tests of the compiler: devices, traced graphs, and what a graph computes when nothing rewrote it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/error_of_test.h"
#include "device/cpu_device.h"
#include "graph/eager.h"
#include "graph/emit.h"

namespace lockstep::testing {

using lockstep::error_of;

// Devices of one thread each, beside those of the process: what replicas need to be on several. Never
// destroyed, as all devices.
inline std::vector<Device*> one_thread_devices(int count) {
  static auto* all = new std::vector<std::unique_ptr<Device>>;
  while (static_cast<int>(all->size()) < count)
    all->push_back(
        std::make_unique<Device>(std::make_unique<CpuDevice>(100 + static_cast<int>(all->size()), 1)));
  std::vector<Device*> devices;
  for (int i = 0; i < count; ++i) devices.push_back((*all)[static_cast<size_t>(i)].get());
  return devices;
}
inline Device& two_thread_device() {
  static auto* device = new Device(std::make_unique<CpuDevice>(200, 2));
  return *device;
}

using Floats = std::vector<float>;

// first, first + 1, ... in these dimensions.
inline Tensor counting(const Shape& shape, float first = 0) {
  Floats values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Tensor::from(values, shape);
}
inline Floats read(const Tensor& tensor) { return tensor.to_vector<float>(); }
inline Floats read(const Variable& variable) { return variable.value().to_vector<float>(); }

using TracedBody = std::function<TensorList(const TensorList&)>;

inline Graph traced(const SpecList& parameters, const TracedBody& body, const ReplicaTrace& replica = {}) {
  Trace trace(replica);
  TensorList arguments;
  for (size_t i = 0; i < parameters.size(); ++i)
    arguments.push_back(trace.parameter(static_cast<int>(i), parameters[i], std::source_location::current()));
  for (const Tensor& result : body(arguments))
    trace.graph().outputs.push_back(trace.value_of(result, std::source_location::current()));
  return std::move(trace.graph());
}

// Every value of the graph, node by node, as one replica would compute it.
inline std::vector<TensorList> evaluate(const Graph& graph, const TensorList& arguments) {
  std::vector<TensorList> values;
  for (const Node& node : graph.nodes) {
    TensorList inputs;
    for (const Value v : node.inputs)
      inputs.push_back(values.at(static_cast<size_t>(v.node)).at(static_cast<size_t>(v.output)));
    if (node.op == &kParameter)
      values.push_back({arguments.at(static_cast<size_t>(node.attrs.as<ParameterAttrs>().index))});
    else if (node.op == &kCapturedInput)
      values.push_back({node.attrs.as<CapturedInputAttrs>().tensor});
    else if (node.op == &kVariable)
      values.push_back({node.attrs.as<VariableAttrs>().variable.value()});
    else if (node.op == &kConstant)
      values.push_back(
          {Tensor::full(node.outputs[0].dtype, node.outputs[0].shape, node.attrs.as<ConstantAttrs>().value)});
    else if (node.op == &kExampleOffset)
      values.push_back({Tensor::scalar(int64_t{0})});
    else if (node.op == &kAllReduceSum)
      values.push_back(inputs);
    else
      values.push_back(run_eager(*node.op, inputs, node.attrs, node.outputs, node.where));
  }
  return values;
}

// What the graph is run for: its outputs, then the new values of its variables.
inline TensorList results_of(const Graph& graph, const TensorList& arguments) {
  const std::vector<TensorList> values = evaluate(graph, arguments);
  TensorList results;
  for (const Value v : graph.results())
    results.push_back(values.at(static_cast<size_t>(v.node)).at(static_cast<size_t>(v.output)));
  return results;
}

inline int count_ops(const Graph& graph, const OpDef& op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.op == &op; }));
}

// Every node comes after what it reads.
inline bool is_sorted(const Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value v : graph.nodes[i].inputs)
      if (v.node < 0 || v.node >= static_cast<int>(i)) return false;
  return true;
}

}  // namespace lockstep::testing
