// An ONNX graph while it is written: nodes, constants, names.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/protobuf.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::onnx {

// The opset of the operators that are written; ONNX Runtime has run it since 2021.
inline constexpr int64_t kOpset = 17;

using Value = std::string;  // values are known by name
using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

class GraphWriter {
 public:
  // An operator's first result, under a name made from `hint`.
  Value node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes = {},
             const std::string& hint = {});
  Value constant(const Tensor& value, const std::string& hint);
  Value integers(const std::vector<int64_t>& values);
  Value number(double value);  // float32

  // Names that no node gets.
  std::string reserve(const std::string& name) { return unique(name); }
  void add_input(const std::string& name, const TensorSpec& spec);
  // `value` under a reserved name.
  void add_output(const std::string& name, const Value& value, const TensorSpec& spec);

  // The file's bytes.
  std::string finish(const std::string& name) const;

 private:
  std::string unique(const std::string& hint);
  static protobuf::Writer described(const std::string& name, const TensorSpec& spec);

  protobuf::Writer graph_;
  std::map<std::string, int> names_;
};

}  // namespace lockstep::keras::onnx
