// An ONNX file as it is read: the graph's nodes, its constants, inputs and outputs.
#pragma once

#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::onnx {

// An attribute of a node: the member that belongs to the attribute's type in the file holds its value.
struct NodeAttribute {
  double real = 0;
  int64_t integer = 0;
  std::string text = {};
  Tensor tensor = {};
  std::vector<double> reals = {};
  std::vector<int64_t> integers = {};
};

struct Node {
  std::string op;    // with its domain in front, "com.microsoft.Gelu", where that is not ONNX' own
  std::string name;  // may be empty
  std::vector<std::string> inputs, outputs;  // an empty name: left out
  std::map<std::string, NodeAttribute> attributes;
};

struct GraphValue {
  std::string name;
  TensorSpec spec;  // -1: a size that is known only when the model runs
};

struct GraphFile {
  std::string name;
  int64_t opset = 0;
  std::vector<Node> nodes;  // each behind those that it needs
  std::vector<std::pair<std::string, Tensor>> constants;
  std::vector<GraphValue> inputs;  // but for those that are constants
  std::vector<std::string> outputs;
};

// A type of elements by onnx.proto's number; nullopt: there is no such type here.
std::optional<DType> dtype_of(int64_t number);

// Throws Error(io) for bytes that are no ONNX file, and Error(unsupported) that names what is not read.
// `beside`: the folder in which data that the file keeps outside of itself is looked for; nullopt: there is
// no such folder.
GraphFile read_graph(std::string_view bytes, const std::optional<std::string>& beside,
                     std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::onnx
