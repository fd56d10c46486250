#include "ops/nn/attention_cudnn_cuda.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/check.h"

namespace lockstep::cuda {
namespace {

using Dims = std::vector<int64_t>;

enum Id : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kResult,
  kStatistics,
  kGradient,
  kDQuery,
  kDKey,
  kDValue,
  kSums,
  kScale,
  kOne,
  kHidden,
  kFirstVirtual
};

bool repeats(std::span<const cudnnBackendNumericalNote_t> notes) {
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes.end();
}

// Puts the operations of a graph together. Values between two operations are virtual, and float32 unless another type is
// said: cuDNN recognises attention by its operations.
class Builder {
 public:
  Builder(const AttentionProblem& p, DType dtype) : p_(p), type_(cudnn_type(dtype)) {}

  struct Value {
    CudnnDescriptor tensor;
    Dims dims, strides;
  };

  Dims scores() const { return {p_.batch, p_.heads, p_.queries, p_.keys}; }
  static Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

  // [batch, rows, heads, columns] in memory, as cuDNN names it.
  Value operand(Id id, int64_t heads, int64_t rows, int64_t columns) const {
    return made(id, {p_.batch, heads, rows, columns}, {rows * heads * columns, columns, heads * columns, 1},
                type_);
  }
  // The same with rows and columns exchanged.
  Value transposed(Id id, int64_t heads, int64_t rows, int64_t columns) const {
    return made(id, {p_.batch, heads, columns, rows}, {rows * heads * columns, columns, 1, heads * columns},
                type_);
  }
  // [batch, heads, rows], float32.
  Value column(Id id) const {
    return made(id, {p_.batch, p_.heads, p_.queries, 1}, {p_.heads * p_.queries, p_.queries, 1, 1},
                CUDNN_DATA_FLOAT);
  }
  Value number(Id id) const {
    return {make_tensor({.id = id, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .is_by_value = true}),
            {1, 1, 1, 1},
            {1, 1, 1, 1}};
  }
  Value between(const Dims& dims, const Dims& strides, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return {make_tensor({.id = next_++, .type = type, .dims = dims, .strides = strides, .is_virtual = true}),
            dims, strides};
  }
  Value between(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(dims, packed(dims), type);
  }

  void matmul(const Value& a, const Value& b, const Value& c) {
    CudnnDescriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.tensor);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.tensor);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.tensor);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(std::move(op));
    keep(std::move(how));
  }

  // y = mode(x), mode(x, b), or for a selection x where t, else b.
  void pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value* b, const Value* t, const Value& y,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT, int64_t axis = -1) {
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    how.finalize();
    CudnnDescriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.tensor);
    if (b) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->tensor);
    if (t) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->tensor);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.tensor);
    add(std::move(op));
    keep(std::move(how));
  }

  Value& binary(cudnnPointwiseMode_t mode, const Value& x, const Value& b) {
    Value& y = value(between(x.dims, x.strides));
    pointwise(mode, x, &b, nullptr, y);
    return y;
  }
  Value& unary(cudnnPointwiseMode_t mode, const Value& x) {
    Value& y = value(between(x.dims, x.strides));
    pointwise(mode, x, nullptr, nullptr, y);
    return y;
  }

  // Over the last dimension.
  void reduce(cudnnReduceTensorOp_t with, const Value& x, const Value& y) {
    CudnnDescriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, with);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.tensor);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.tensor);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(std::move(op));
    keep(std::move(how));
  }

  void reshape(const Value& x, const Value& y) {
    CudnnDescriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.tensor);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.tensor);
    add(std::move(op));
  }
  // Scores with queries and keys exchanged, in the operands' type.
  Value& exchanged(const Value& x) {
    const int64_t q = p_.queries, k = p_.keys;
    Value& y = value(between({p_.batch, p_.heads, k, q}, {p_.heads * q * k, q * k, 1, k}, type_));
    reshape(x, y);
    return y;
  }

  // Scores that a causal mask hides become `hidden`.
  Value& masked(const Value& s, const Value& hidden) {
    if (!p_.causal) return value({{}, s.dims, s.strides});
    const auto index = [&](int64_t axis) -> Value& {
      Value& y = value(between(s.dims, s.strides, CUDNN_DATA_INT32));
      pointwise(CUDNN_POINTWISE_GEN_INDEX, s, nullptr, nullptr, y, CUDNN_DATA_INT32, axis);
      return y;
    };
    Value &row = index(2), &column = index(3);
    Value& seen = value(between(s.dims, s.strides, CUDNN_DATA_BOOLEAN));
    pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, nullptr, seen, CUDNN_DATA_BOOLEAN);
    Value& y = value(between(s.dims, s.strides));
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, &hidden, &seen, y);
    return y;
  }

  Value& value(Value made) { return *values_.emplace_back(std::make_unique<Value>(std::move(made))); }
  cudnnDataType_t type() const { return type_; }
  // Gradients that are added up in another order every time are not wanted.
  std::unique_ptr<CudnnGraph> find() { return CudnnGraph::find_or_compile(operations_, repeats, "repeats"); }

 private:
  static Value made(Id id, const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    return {make_tensor({.id = id, .type = type, .dims = dims, .strides = strides}), dims, strides};
  }
  void add(CudnnDescriptor op) {
    op.finalize();
    operations_.push_back(std::move(op));
  }
  void keep(CudnnDescriptor how) { kept_.push_back(std::move(how)); }

  const AttentionProblem& p_;
  cudnnDataType_t type_;
  int64_t next_ = kFirstVirtual;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<CudnnDescriptor> operations_, kept_;
};

// cuDNN's kernels take heads of a multiple of 8 dimensions, and as many heads of keys as of queries here.
bool fits(const AttentionProblem& p) {
  return p.heads == p.key_heads && p.dim % 8 == 0 && p.value_dim % 8 == 0 && p.dim <= 128 &&
         p.value_dim <= 128 && p.queries > 0 && p.keys > 0 && p.batch > 0 && p.scale > 0 && !p.drops() &&
         (!p.causal || p.queries == p.keys);
}

float hidden_score() { return std::numeric_limits<float>::lowest(); }

}  // namespace

std::unique_ptr<CudnnAttention> CudnnAttention::find(const AttentionProblem& p, DType dtype) {
  if (!fits(p)) return nullptr;
  Builder g(p, dtype);
  using Value = Builder::Value;
  const Value query = g.operand(kQuery, p.heads, p.queries, p.dim),
              key = g.transposed(kKey, p.key_heads, p.keys, p.dim),
              value = g.operand(kValue, p.key_heads, p.keys, p.value_dim),
              result = g.operand(kResult, p.heads, p.queries, p.value_dim),
              statistics = g.column(kStatistics), scale = g.number(kScale), hidden = g.number(kHidden);
  const Dims column = {p.batch, p.heads, p.queries, 1};
  const Value products = g.between(g.scores());
  g.matmul(query, key, products);
  const Value& scaled = g.binary(CUDNN_POINTWISE_MUL, products, scale);
  const Value& s = p.causal ? g.masked(scaled, hidden) : scaled;
  const Value most = g.between(column);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, s, most);
  const Value& powers = g.unary(CUDNN_POINTWISE_EXP, g.binary(CUDNN_POINTWISE_SUB, s, most));
  const Value total = g.between(column);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, total);
  g.pointwise(CUDNN_POINTWISE_ADD, g.unary(CUDNN_POINTWISE_LOG, total), &most, nullptr, statistics);
  const Value probabilities = g.between(g.scores(), g.type());
  g.pointwise(CUDNN_POINTWISE_DIV, powers, &total, nullptr, probabilities);
  g.matmul(probabilities, value, result);
  auto found = std::make_unique<CudnnAttention>();
  found->scale_ = p.scale;
  found->graph_ = g.find();
  return found->graph_ ? std::move(found) : nullptr;
}

void CudnnAttention::launch(const void* query, const void* key, const void* value, void* result,
                            float* log_sum_exp, void* workspace, cudaStream_t stream) const {
  constexpr int64_t kIds[] = {kQuery, kKey, kValue, kResult, kStatistics, kScale, kHidden};
  float scale = scale_, hidden = hidden_score();
  void* const pointers[] = {const_cast<void*>(query),
                            const_cast<void*>(key),
                            const_cast<void*>(value),
                            result,
                            log_sum_exp,
                            &scale,
                            &hidden};
  graph_->launch(kIds, pointers, workspace, stream);
}

std::unique_ptr<CudnnAttentionGradients> CudnnAttentionGradients::find(const AttentionProblem& p,
                                                                       DType dtype) {
  if (!fits(p)) return nullptr;
  Builder g(p, dtype);
  using Value = Builder::Value;
  const Value query = g.operand(kQuery, p.heads, p.queries, p.dim),
              key_transposed = g.transposed(kKey, p.key_heads, p.keys, p.dim),
              value_transposed = g.transposed(kValue, p.key_heads, p.keys, p.value_dim),
              result = g.operand(kResult, p.heads, p.queries, p.value_dim),
              gradient = g.operand(kGradient, p.heads, p.queries, p.value_dim),
              statistics = g.column(kStatistics), dquery = g.operand(kDQuery, p.heads, p.queries, p.dim),
              dkey = g.operand(kDKey, p.key_heads, p.keys, p.dim),
              dvalue = g.operand(kDValue, p.key_heads, p.keys, p.value_dim), sums = g.column(kSums),
              scale = g.number(kScale), one = g.number(kOne), hidden = g.number(kHidden);

  // The dots of the result's rows with their gradients.
  const Value products = g.between(result.dims);
  g.pointwise(CUDNN_POINTWISE_MUL, gradient, &result, nullptr, products);
  const Value dots = g.between({p.batch, p.heads, p.queries, 1});
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, dots);
  g.pointwise(CUDNN_POINTWISE_MUL, dots, &one, nullptr, sums);

  // Probabilities once more, and what arrives at them.
  const Value scores = g.between(g.scores());
  g.matmul(query, key_transposed, scores);
  const Value& distances =
      g.binary(CUDNN_POINTWISE_SUB, g.binary(CUDNN_POINTWISE_MUL, scores, scale), statistics);
  const Value& probabilities =
      g.unary(CUDNN_POINTWISE_EXP, p.causal ? g.masked(distances, hidden) : distances);
  g.matmul(g.exchanged(probabilities), gradient, dvalue);
  const Value arriving = g.between(g.scores());
  g.matmul(gradient, value_transposed, arriving);
  const Value& dscores = g.binary(
      CUDNN_POINTWISE_MUL,
      g.binary(CUDNN_POINTWISE_MUL, g.binary(CUDNN_POINTWISE_SUB, arriving, sums), probabilities), scale);
  g.matmul(g.exchanged(dscores), query, dkey);
  const Dims& turned = key_transposed.dims;
  const Dims& steps = key_transposed.strides;
  const Value key = g.between({turned[0], turned[1], turned[3], turned[2]},
                              {steps[0], steps[1], steps[3], steps[2]}, g.type());
  g.reshape(key_transposed, key);
  g.matmul(dscores, key, dquery);
  auto found = std::make_unique<CudnnAttentionGradients>();
  found->scale_ = p.scale;
  found->sums_bytes_ = static_cast<size_t>(p.batch * p.heads * p.queries) * sizeof(float);
  found->sums_bytes_ = (found->sums_bytes_ + 255) / 256 * 256;
  found->graph_ = g.find();
  return found->graph_ ? std::move(found) : nullptr;
}

size_t CudnnAttentionGradients::workspace_bytes() const {
  return sums_bytes_ + graph_->workspace_bytes() + 256;
}

void CudnnAttentionGradients::launch(const void* query, const void* key, const void* value,
                                     const void* result, const float* log_sum_exp, const void* gradient,
                                     void* dquery, void* dkey, void* dvalue, void* workspace,
                                     cudaStream_t stream) const {
  constexpr int64_t kIds[] = {kQuery, kKey,    kValue, kResult, kStatistics, kGradient, kDQuery,
                              kDKey,  kDValue, kSums,  kScale,  kOne,        kHidden};
  float scale = scale_, one = 1, hidden = hidden_score();
  const auto address = (reinterpret_cast<uintptr_t>(workspace) + 255) / 256 * 256;
  void* const sums = reinterpret_cast<void*>(address);
  const auto in = [](const void* p) { return const_cast<void*>(p); };
  void* const pointers[] = {in(query),    in(key), in(value), in(result), in(log_sum_exp),
                            in(gradient), dquery,  dkey,      dvalue,     sums,
                            &scale,       &one,    &hidden};
  graph_->launch(kIds, pointers, reinterpret_cast<void*>(address + sums_bytes_), stream);
}

}  // namespace lockstep::cuda
