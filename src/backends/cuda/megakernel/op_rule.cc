#include "backends/cuda/megakernel/op_rule.h"

#include <algorithm>
#include <bit>
#include <map>

namespace lockstep::cuda::megakernel {
namespace {

std::map<const OpDef*, OpRule>& table() {
  static auto* rules = new std::map<const OpDef*, OpRule>;
  return *rules;
}

}  // namespace

RegisterOpRule::RegisterOpRule(const OpDef& op, const OpRule& rule) { table()[&op] = rule; }

const OpRule* find_rule(const OpDef& op) {
  const auto it = table().find(&op);
  return it == table().end() ? nullptr : &it->second;
}

std::vector<const OpDef*> ops_with_rules() {
  std::vector<const OpDef*> ops;
  for (const auto& [op, rule] : table()) ops.push_back(op);
  return ops;
}

int OpCode::lanes() const {
  int lanes = 1;
  while (lanes < 32 && lanes < length()) lanes *= 2;
  return lanes;
}

std::string OpCode::over_line() const {
  return detail::concat("for (int c = lane; c < ", length(), "; c += ", lanes(), ") ");
}

std::string activated(Epilogue epilogue, const std::string& x) {
  switch (epilogue) {
    case Epilogue::relu: return "relu(" + x + ")";
    case Epilogue::tanh: return "tanhf(" + x + ")";
    case Epilogue::sigmoid: return "sigmoid(" + x + ")";
    case Epilogue::gelu_erf: return "gelu_erf(" + x + ")";
    case Epilogue::gelu_tanh: return "gelu_tanh(" + x + ")";
    default: return x;
  }
}

std::string literal(double value) {
  return detail::concat("__uint_as_float(", std::bit_cast<uint32_t>(static_cast<float>(value)), "u)");
}

Access give_to_sum(OpGraph& graph, int64_t size) {
  const Shape shape{graph.examples, size};
  graph.buffers.push_back({-1, static_cast<int64_t>(sizeof(float)) * shape.size()});
  return {static_cast<int>(graph.buffers.size()) - 1, 0, DType::float32, shape, contiguous_strides(shape)};
}

void add_sum(OpGraph& graph, const Access& parts, int64_t length, int64_t inner, const Access& sum) {
  static const OpRule rule{.kind = Kind::fold, .fold = "Sum"};
  Op op;
  op.kind = Kind::fold;
  op.call = graph.ops.back().call;
  op.rule = &rule;
  const Shape shape{length, inner};
  op.inputs = {{parts.buffer, parts.offset, DType::float32, shape, contiguous_strides(shape)}};
  op.outputs = {sum};
  op.length = length, op.inner = inner;
  graph.ops.push_back(std::move(op));
}

bool read_lines(Op& op, const Dims& axes) {
  const Access& x = op.inputs[0];
  if (!is_float(x)) return false;
  for (const Access& input : op.inputs)
    if (!input.contiguous()) return false;
  bool inside = false, behind = false;
  for (int d = 0; d < x.shape.rank(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (x.shape[d] == 1) continue;
    if (reduced && behind) return false;  // the reduced dimensions stand side by side
    if (reduced)
      op.length *= x.shape[d], inside = true;
    else if (inside)
      op.inner *= x.shape[d], behind = true;
    else
      op.outer *= x.shape[d];
  }
  return true;
}

bool read_rows(Op& op) {
  for (const Access& input : op.inputs)
    if (!is_float(input) && input.dtype != DType::int32 && input.dtype != DType::int64) return false;
  return read_lines(op, {op.inputs[0].shape.rank() - 1});
}

}  // namespace lockstep::cuda::megakernel
