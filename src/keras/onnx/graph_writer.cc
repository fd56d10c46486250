#include "keras/onnx/graph_writer.h"

#include "graph/tensor_bytes.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::onnx {
namespace {

// Numbers of fields and of types, as onnx.proto has them.
int64_t number_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 1;
    case DType::uint8: return 2;
    case DType::int32: return 6;
    case DType::int64: return 7;
    case DType::boolean: return 9;
    case DType::float16: return 10;
    case DType::float64: return 11;
    case DType::bfloat16: return 16;
  }
  return 0;
}

enum AttributeType : int64_t { kFloat = 1, kInt = 2, kString = 3, kInts = 7 };

protobuf::Writer written(const std::string& name, const Attribute& attribute) {
  protobuf::Writer writer;
  writer.bytes(1, name);
  if (const auto* number = std::get_if<int64_t>(&attribute))
    writer.integer(3, *number).integer(20, int64_t{kInt});
  if (const auto* real = std::get_if<double>(&attribute))
    writer.real(2, static_cast<float>(*real)).integer(20, int64_t{kFloat});
  if (const auto* text = std::get_if<std::string>(&attribute))
    writer.bytes(4, *text).integer(20, int64_t{kString});
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) {
    for (const int64_t item : *list) writer.integer(8, item);
    writer.integer(20, int64_t{kInts});
  }
  return writer;
}

constexpr int64_t kIrVersion = 8;  // the one that came with the opset
constexpr size_t kMaxBytes = (size_t{1} << 31) - 1;

}  // namespace

std::string GraphWriter::unique(const std::string& hint) {
  const int earlier = names_[hint]++;
  return earlier == 0 ? hint : unique(hint + "_" + std::to_string(earlier));
}

Value GraphWriter::node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes,
                        const std::string& hint) {
  const Value result = unique(hint.empty() ? op : hint);
  protobuf::Writer node;
  for (const Value& input : inputs) node.bytes(1, input);
  node.bytes(2, result).bytes(3, result).bytes(4, op);
  for (const auto& [name, attribute] : attributes) node.message(5, written(name, attribute));
  graph_.message(1, node);
  return result;
}

Value GraphWriter::constant(const Tensor& value, const std::string& hint) {
  const Value name = unique(hint);
  protobuf::Writer tensor;
  for (const int64_t size : value.shape()) tensor.integer(1, size);
  tensor.integer(2, number_of(value.dtype())).bytes(8, name).bytes(9, bytes_of(value));
  graph_.message(5, tensor);
  return name;
}

Value GraphWriter::integers(const std::vector<int64_t>& values) {
  return constant(Tensor::from(values, {static_cast<int64_t>(values.size())}), "sizes");
}
Value GraphWriter::number(double value) {
  return constant(Tensor::scalar(static_cast<float>(value)), "number");
}

protobuf::Writer GraphWriter::described(const std::string& name, const TensorSpec& spec) {
  protobuf::Writer shape, tensor, type, info;
  for (int d = 0; d < spec.shape.rank(); ++d) {
    protobuf::Writer dimension;
    if (spec.shape[d] >= 0)
      dimension.integer(1, spec.shape[d]);
    else
      dimension.bytes(2, d == 0 ? std::string("batch") : name + "_" + std::to_string(d));
    shape.message(1, dimension);
  }
  tensor.integer(1, number_of(spec.dtype)).message(2, shape);
  type.message(1, tensor);
  info.bytes(1, name).message(2, type);
  return info;
}

void GraphWriter::add_input(const std::string& name, const TensorSpec& spec) {
  graph_.message(11, described(name, spec));
}

void GraphWriter::add_output(const std::string& name, const Value& value, const TensorSpec& spec) {
  protobuf::Writer node;
  node.bytes(1, value).bytes(2, name).bytes(3, name).bytes(4, "Identity");
  graph_.message(1, node).message(12, described(name, spec));
}

std::string GraphWriter::finish(const std::string& name) const {
  protobuf::Writer graph = graph_, opset, model;
  graph.bytes(2, name);
  opset.bytes(1, "").integer(2, kOpset);
  model.integer(1, kIrVersion)
      .bytes(2, "Lockstep")
      .bytes(3, LOCKSTEP_VERSION)
      .message(7, graph)
      .message(8, opset);
  require(model.text().size() <= kMaxBytes, ErrorCode::unsupported, std::source_location::current(),
          "export_onnx: model \"", name, "\" takes ", model.text().size(),
          " bytes, more than the 2 GiB that an ONNX file may have");
  return model.text();
}

}  // namespace lockstep::keras::onnx
