#include "ops/nn/attention_cudnn_cuda.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"

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
  kAccumulated,
  kFirstVirtual
};

bool repeats(std::span<const cudnnBackendNumericalNote_t> notes) {
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == notes.end();
}

// Puts the operations of a graph together. Values between two operations are virtual, and float32 unless
// another type is said: cuDNN recognises attention by its operations.
class Builder {
 public:
  // `part`: some examples, heads, queries and keys of `whole`, in whose tensors they lie.
  Builder(const AttentionProblem& part, const AttentionProblem& whole, DType dtype)
      : p_(part), whole_(whole), type_(cudnn_type(dtype)) {}

  struct Value {
    CudnnDescriptor tensor;
    Dims dims, strides;
  };

  Dims scores() const { return {p_.batch, p_.heads, p_.queries, p_.keys}; }
  static Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }

  // [batch, rows, heads, columns] in memory, as cuDNN names it.
  Value queries(Id id, int64_t columns) const { return rows_of(id, p_.queries, whole_.queries, columns); }
  Value keys(Id id, int64_t columns) const { return rows_of(id, p_.keys, whole_.keys, columns); }
  // The same with rows and columns exchanged.
  Value keys_transposed(Id id, int64_t columns) const {
    Value v = keys(id, columns);
    std::swap(v.dims[2], v.dims[3]);
    std::swap(v.strides[2], v.strides[3]);
    return made(id, v.dims, v.strides, type_);
  }
  // In memory of this part alone.
  Value partial_queries(Id id, int64_t columns) const {
    const int64_t row = p_.heads * columns;
    return made(id, {p_.batch, p_.heads, p_.queries, columns}, {p_.queries * row, columns, row, 1}, type_);
  }
  // The gradients of queries in float32, by heads.
  Value accumulated() const {
    const Dims d = {p_.batch, p_.heads, p_.queries, p_.dim};
    return made(kAccumulated, d, packed(d), CUDNN_DATA_FLOAT);
  }
  // [batch, heads, rows], float32.
  Value column(Id id) const { return column(id, whole_); }
  Value partial_column(Id id) const { return column(id, p_); }
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
  // `in_order`: gradients that are added up in another order every time are not wanted.
  std::unique_ptr<CudnnGraph> find(bool in_order = true) {
    if (in_order) return CudnnGraph::find_or_compile(operations_, repeats, "repeats");
    return CudnnGraph::find_or_compile(
        operations_, [](auto) { return true; }, "any");
  }

 private:
  static Value made(Id id, const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    return {make_tensor({.id = id, .type = type, .dims = dims, .strides = strides}), dims, strides};
  }
  void add(CudnnDescriptor op) {
    op.finalize();
    operations_.push_back(std::move(op));
  }
  void keep(CudnnDescriptor how) { kept_.push_back(std::move(how)); }

  Value rows_of(Id id, int64_t rows, int64_t all_rows, int64_t columns) const {
    const int64_t row = whole_.heads * columns;
    return made(id, {p_.batch, p_.heads, rows, columns}, {all_rows * row, columns, row, 1}, type_);
  }
  Value column(Id id, const AttentionProblem& in) const {
    return made(id, {p_.batch, p_.heads, p_.queries, 1}, {in.heads * in.queries, in.queries, 1, 1},
                CUDNN_DATA_FLOAT);
  }

  const AttentionProblem &p_, &whole_;
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

struct Named {
  Id id;
  void* pointer;
};
// A graph without a mask does not know the score of what is hidden. Null: what the graph has not.
void launch_graph(const CudnnGraph& graph, bool causal, std::initializer_list<Named> tensors, void* workspace,
                  cudaStream_t stream) {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const Named& named : tensors) {
    if ((named.id == kHidden && !causal) || named.pointer == nullptr) continue;
    ids.push_back(named.id), pointers.push_back(named.pointer);
  }
  graph.launch(ids, pointers, workspace, stream);
}

}  // namespace

std::unique_ptr<CudnnAttention> CudnnAttention::find(const AttentionProblem& p, DType dtype) {
  if (!fits(p)) return nullptr;
  Builder g(p, p, dtype);
  using Value = Builder::Value;
  const Value query = g.queries(kQuery, p.dim), key = g.keys_transposed(kKey, p.dim),
              value = g.keys(kValue, p.value_dim), result = g.queries(kResult, p.value_dim),
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
  found->causal_ = p.causal;
  found->graph_ = g.find();
  return found->graph_ ? std::move(found) : nullptr;
}

void CudnnAttention::launch(const void* query, const void* key, const void* value, void* result,
                            float* log_sum_exp, void* workspace, cudaStream_t stream) const {
  float scale = scale_, hidden = hidden_score();
  const auto in = [](const void* p) { return const_cast<void*>(p); };
  launch_graph(*graph_, causal_,
               {{kQuery, in(query)},
                {kKey, in(key)},
                {kValue, in(value)},
                {kResult, result},
                {kStatistics, log_sum_exp},
                {kScale, &scale},
                {kHidden, &hidden}},
               workspace, stream);
}

namespace {

// `partial`: gradients of queries lie by themselves; else as the queries do. Not `in_order`: blocks of keys
// add to them in float32 as they come, and no gradients of scores are held.
std::unique_ptr<CudnnGraph> find_gradients(const AttentionProblem& p, const AttentionProblem& whole,
                                           DType dtype, bool partial, bool in_order) {
  Builder g(p, whole, dtype);
  using Value = Builder::Value;
  const Value query = g.queries(kQuery, p.dim), key_transposed = g.keys_transposed(kKey, p.dim),
              value_transposed = g.keys_transposed(kValue, p.value_dim),
              result = g.queries(kResult, p.value_dim), gradient = g.queries(kGradient, p.value_dim),
              statistics = g.column(kStatistics),
              dquery = partial ? g.partial_queries(kDQuery, p.dim) : g.queries(kDQuery, p.dim),
              dkey = g.keys(kDKey, p.dim), dvalue = g.keys(kDValue, p.value_dim),
              sums = g.partial_column(kSums), scale = g.number(kScale), one = g.number(kOne),
              hidden = g.number(kHidden);

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
  if (in_order) {
    g.matmul(dscores, key, dquery);
  } else {
    const Value accumulated = g.accumulated();
    g.matmul(dscores, key, accumulated);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, accumulated, nullptr, nullptr, dquery);
  }
  return g.find(in_order);
}

// The gradients of queries as the chunks of keys have left them: of chunk k those from query k * chunk on,
// behind each other.
struct Partials {
  int64_t examples, queries, heads, dim, chunk;

  __host__ __device__ int64_t elements_before(int64_t k) const {
    return examples * heads * dim * (k * queries - chunk * (k * (k - 1) / 2));
  }
  int64_t elements() const { return elements_before(ceil_div(queries, chunk)); }
};

// dquery[n, q, h]: the sums of the partial ones, in the order of the chunks. `all_heads` lie between two
// queries.
constexpr int kUnit = 8;
template <class T>
__global__ void join_queries(Partials p, const T* partials, T* dquery, int64_t all_heads) {
  const int64_t units = p.heads * p.dim / kUnit, count = p.examples * p.queries * units;
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = i / units, column = i % units * kUnit, n = row / p.queries, q = row % p.queries;
    float sums[kUnit] = {};
    for (int64_t k = 0; k <= q / p.chunk; ++k) {
      const int64_t first = k * p.chunk;
      const T* const from =
          partials + p.elements_before(k) + (n * (p.queries - first) + q - first) * p.heads * p.dim + column;
      float part[kUnit];
      load_pack<T, kUnit>(from).get(part);
#pragma unroll
      for (int e = 0; e < kUnit; ++e) sums[e] += part[e];
    }
    Pack<T, kUnit> pack;
    pack.set(sums);
    store_pack(dquery + row * all_heads * p.dim + column, pack);
  }
}

size_t aligned(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }

}  // namespace

std::unique_ptr<CudnnAttentionGradients> CudnnAttentionGradients::find(const AttentionProblem& p, DType dtype,
                                                                       size_t most) {
  if (!fits(p)) return nullptr;
  auto found = std::unique_ptr<CudnnAttentionGradients>(new CudnnAttentionGradients(p, dtype));
  Cut cut{p.batch, p.heads, p.keys};
  if (!found->in_order_) {
    if (found->add_groups(cut) && found->graph_bytes_ <= most) return found;
    found.reset(new CudnnAttentionGradients(p, dtype));
    found->in_order_ = true;
  }
  if (!found->add_groups(cut)) return nullptr;
  if (found->graph_bytes_ <= most) return found;

  found.reset(new CudnnAttentionGradients(p, dtype));
  found->in_order_ = true;
  const auto fitting = [&] {  // pairs of an example and a head, by the gradients of their scores
    return static_cast<int64_t>(most) / (p.queries * cut.keys * static_cast<int64_t>(size_of(dtype)));
  };
  // Chunks of keys keep the machine busy better than groups of heads: 16,384 queries of 12 heads took 3.06 ms
  // on an H200 at once (6.4 GB), 3.50 in four chunks (1.6 GB) and 4.33 in four groups. Each is a graph that
  // cuDNN compiles.
  constexpr int64_t kMostChunks = 8, kWhole = 128;
  if (p.causal)
    for (int64_t chunks = 2; chunks <= kMostChunks && fitting() < p.batch * p.heads; chunks *= 2)
      cut.keys = std::min(p.keys, ceil_div(ceil_div(p.keys, chunks), kWhole) * kWhole);
  cut.examples = std::clamp<int64_t>(fitting() / p.heads, 1, p.batch);
  cut.heads = std::clamp<int64_t>(fitting(), 1, p.heads);
  return found->add_groups(cut) ? std::move(found) : nullptr;
}

bool CudnnAttentionGradients::add_groups(const Cut& cut) {
  const AttentionProblem& p = problem_;
  chunk_ = cut.keys;
  const bool partial = cut.keys < p.keys;
  // f(first, count) for groups that differ by one at most.
  const auto each = [](int64_t n, int64_t most, auto f) {
    const int64_t groups = ceil_div(n, most);
    for (int64_t i = 0; i < groups; ++i) f(i * n / groups, (i + 1) * n / groups - i * n / groups);
  };
  bool found = true;
  each(p.batch, cut.examples, [&](int64_t example, int64_t examples) {
    each(p.heads, cut.heads, [&](int64_t head, int64_t heads) {
      Group& group = groups_.emplace_back(Group{example, head, examples, heads, {}});
      AttentionProblem part = p;
      part.batch = examples, part.heads = part.key_heads = heads;
      for (int64_t first = 0; first < p.keys; first += cut.keys) {
        part.keys = std::min(cut.keys, p.keys - first);
        if (partial) part.queries = p.queries - first;  // those before see none of the keys
        group.graphs.push_back(graph_for(part, partial));
        found = found && group.graphs.back();
      }
      if (!partial) return;
      const Partials partials{examples, p.queries, heads, p.dim, chunk_};
      partial_bytes_ =
          std::max(partial_bytes_, aligned(static_cast<size_t>(partials.elements()) * size_of(dtype_)));
    });
  });
  return found;
}

const CudnnGraph* CudnnAttentionGradients::graph_for(const AttentionProblem& part, bool partial) {
  for (const Found& found : graphs_)
    if (found.examples == part.batch && found.heads == part.heads && found.queries == part.queries)
      return found.graph.get();
  auto graph = find_gradients(part, problem_, dtype_, partial, in_order_);
  if (!graph) return nullptr;
  if (!in_order_)
    partial_bytes_ =
        aligned(static_cast<size_t>(part.batch * part.heads * part.queries * part.dim) * sizeof(float));
  const size_t sums = static_cast<size_t>(part.batch * part.heads * part.queries) * sizeof(float);
  sums_bytes_ = std::max(sums_bytes_, aligned(sums));
  graph_bytes_ = std::max(graph_bytes_, graph->workspace_bytes());
  return graphs_.emplace_back(Found{part.batch, part.heads, part.queries, std::move(graph)}).graph.get();
}

void CudnnAttentionGradients::launch(const void* query, const void* key, const void* value,
                                     const void* result, const float* log_sum_exp, const void* gradient,
                                     void* dquery, void* dkey, void* dvalue, void* workspace,
                                     cudaStream_t stream) const {
  const AttentionProblem& p = problem_;
  float scale = p.scale, one = 1, hidden = hidden_score();
  char* const sums = reinterpret_cast<char*>(aligned(reinterpret_cast<uintptr_t>(workspace)));
  char* const partials = sums + sums_bytes_;
  // Before 9.6 cuDNN did not clear what it adds to.
  if (!in_order_ && cudnnGetVersion() < 90600)
    check(cudaMemsetAsync(partials, 0, partial_bytes_, stream), "cudaMemsetAsync");
  for (const Group& group : groups_) {
    const Partials places{group.examples, p.queries, group.heads, p.dim, chunk_};
    const bool partial = group.graphs.size() > 1;
    // Where row `first` of the group's is in a tensor of so many rows.
    const auto at = [&](const void* tensor, int64_t rows, int64_t columns, int64_t first) {
      const int64_t element = ((group.example * rows + first) * p.heads + group.head) * columns;
      return static_cast<void*>(static_cast<char*>(const_cast<void*>(tensor)) +
                                static_cast<size_t>(element) * size_of(dtype_));
    };
    for (size_t k = 0; k < group.graphs.size(); ++k) {
      const int64_t first = static_cast<int64_t>(k) * chunk_;
      const auto own = static_cast<size_t>(places.elements_before(static_cast<int64_t>(k))) * size_of(dtype_);
      const float* const statistics =
          log_sum_exp + (group.example * p.heads + group.head) * p.queries + first;
      launch_graph(*group.graphs[k], p.causal,
                   {{kQuery, at(query, p.queries, p.dim, first)},
                    {kKey, at(key, p.keys, p.dim, first)},
                    {kValue, at(value, p.keys, p.value_dim, first)},
                    {kResult, at(result, p.queries, p.value_dim, first)},
                    {kStatistics, const_cast<float*>(statistics)},
                    {kGradient, at(gradient, p.queries, p.value_dim, first)},
                    {kDQuery, partial ? partials + own : at(dquery, p.queries, p.dim, 0)},
                    {kDKey, at(dkey, p.keys, p.dim, first)},
                    {kDValue, at(dvalue, p.keys, p.value_dim, first)},
                    {kSums, sums},
                    {kScale, &scale},
                    {kOne, &one},
                    {kHidden, &hidden},
                    {kAccumulated, in_order_ ? nullptr : partials}},
                   partials + partial_bytes_, stream);
    }
    if (!partial) continue;
    const int64_t units = places.examples * places.queries * places.heads * places.dim / kUnit;
    const auto join = [&]<class T>() {
      join_queries<<<blocks_for(units), kThreads, 0, stream>>>(
          places, reinterpret_cast<const T*>(partials), static_cast<T*>(at(dquery, p.queries, p.dim, 0)),
          p.heads);
    };
    dtype_ == DType::bfloat16 ? join.template operator()<__nv_bfloat16>()
                              : join.template operator()<__half>();
    launched();
  }
}

}  // namespace lockstep::cuda
