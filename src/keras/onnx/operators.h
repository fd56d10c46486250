// What ONNX' operators compute, in ops of Lockstep.
#pragma once

#include <functional>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "keras/onnx/graph_reader.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::onnx {

// A value of the graph while it is computed.
struct Operand {
  Tensor stored = {};
  // The elements lie as Lockstep's convolutions want them: the second dimension of the value is the last one
  // of `stored`.
  bool channels_last = false;
  // It follows from the file and from shapes alone, and its elements are there: sizes that others are made
  // of.
  bool known = false;

  bool defined() const { return stored.defined(); }
  // The shape and dtype of the value, whatever the order in which its elements are stored.
  Shape shape() const;
  DType dtype() const { return stored.dtype(); }
  int rank() const { return stored.rank(); }
  // As ONNX has it (in a trace a known number is a constant, which fuses with what uses it), and with the
  // second dimension last.
  Tensor value() const;
  Tensor with_channels_last() const;
};

// Elements of a known value: a file of a few bytes must not make a tensor of many.
inline constexpr int64_t kMostKnown = int64_t{1} << 26;

// One node that is to be computed.
class NodeCall {
 public:
  NodeCall(const Node& node, int64_t opset, std::vector<Operand> inputs)
      : node_(node), opset_(opset), inputs_(std::move(inputs)) {}

  const Node& node() const { return node_; }
  int64_t opset() const { return opset_; }
  size_t num_inputs() const { return inputs_.size(); }
  bool has(size_t input) const { return input < inputs_.size() && inputs_[input].defined(); }
  const Operand& operand(size_t input) const;
  Tensor x(size_t input = 0) const { return operand(input).value(); }

  const NodeAttribute* attribute(const char* name) const;
  int64_t integer(const char* name, int64_t otherwise) const;
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  std::vector<int64_t> integers(const char* name, const std::vector<int64_t>& otherwise = {}) const;
  // The elements of an input that is known; Error(unsupported) where it is not.
  std::vector<int64_t> known_integers(size_t input) const;
  double known_number(size_t input, double otherwise) const;
  // An attribute up to some version, an input after it.
  std::vector<int64_t> axes(size_t input) const;

  // "Conv \"conv1\": ..."
  template <class... Parts>
  void supports(bool holds, const Parts&... parts) const {
    if (!holds) refuse(detail::concat(parts...));
  }
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Node& node_;
  int64_t opset_;
  std::vector<Operand> inputs_;
};

using Operator = std::function<std::vector<Operand>(const NodeCall&)>;
// By name.
const std::map<std::string, Operator>& operators();

// Whether a constant that this input of such a node is may be a weight: not where it is a setting.
bool takes_weights(const Node& node, size_t input);
// Whether it is a statistic, which is not trained.
bool takes_statistics(const Node& node, size_t input);
// Whether it looks at its input's shape alone.
bool reads_shapes(const Node& node);

}  // namespace lockstep::keras::onnx
