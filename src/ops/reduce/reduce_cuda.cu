// Reductions on GPUs: a short chain of stages, each [outer, n, inner] -> [outer, chunks, inner]. A stage has
// more than one chunk only where there are too few results to fill the machine; it is then followed by one
// that joins the chunks. Chunks depend on the shape alone, and so does the order of sums.
#include <vector>

#include "backends/cuda/columns.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/rows.h"
#include "ops/reduce/reduce.h"

namespace lockstep::cuda {
namespace {

template <class C>
__device__ bool is_nan(C x) {
  return x != x;
}

struct Adding {
  template <class C>
  static __device__ C neutral() {
    return 0;
  }
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Multiplying {
  template <class C>
  static __device__ C neutral() {
    return 1;
  }
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};
// NaN stays.
template <bool larger>
struct Choosing {
  template <class C>
  static __device__ C neutral() {
    if constexpr (std::is_floating_point_v<C>)
      return larger ? -INFINITY : INFINITY;
    else if constexpr (std::is_signed_v<C>)
      return static_cast<C>(larger ? C(1) << (8 * sizeof(C) - 1) : ~(C(1) << (8 * sizeof(C) - 1)));
    else
      return larger ? C(0) : ~C(0);
  }
  template <class C>
  __device__ C operator()(C a, C b) const {
    return (larger ? a > b : a < b) || is_nan(a) ? a : b;
  }
};

// What is computed in.
template <class T>
using Computed = std::conditional_t<kIs16Bit<T>, float, std::conditional_t<sizeof(T) == 1, uint32_t, T>>;

// Results are stored as C or, narrower, as elements.
struct Output {
  void* data;
  DType dtype;
  template <class C>
  __device__ void store(int64_t i, C value) const {
    if constexpr (std::is_same_v<C, float>) {
      if (dtype == DType::bfloat16) {
        static_cast<__nv_bfloat16*>(data)[i] = static_cast<__nv_bfloat16>(value);
        return;
      }
      if (dtype == DType::float16) {
        static_cast<__half*>(data)[i] = static_cast<__half>(value);
        return;
      }
    } else if constexpr (sizeof(C) == 4) {
      if (dtype == DType::uint8) {
        static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
        return;
      }
    }
    static_cast<C*>(data)[i] = value;
  }
};

// Items are (outer, chunk) pairs.
template <class Op, bool warps, class T>
__global__ void reduce_rows(const T* x, Output y, int64_t items, int64_t n, int64_t chunks, int64_t chunk) {
  using C = Computed<T>;
  const RowTeam<warps> team;
  const C neutral = Op::template neutral<C>();
  for (int64_t item = team.first_row(); item < items; item += team.row_step()) {
    const int64_t begin = item % chunks * chunk;
    C value = neutral;
    each_in_row(team, x + item / chunks * n + begin, min(chunk, n - begin),
                [&](int64_t, C v) { value = Op()(value, v); });
    value = team.fold(value, neutral, Op());
    if (team.rank() == 0) y.store(item, value);
  }
}

// Items are (outer, chunk, block of columns) triples; a thread has `unit` neighbouring columns.
constexpr int kColumnThreads = 512, kColumnBlocksEach = 2;  // that run at once on a multiprocessor
template <class Op, int unit, class T>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocksEach)
    reduce_columns(const T* x, Output y, int64_t n, int64_t inner, int64_t across, int64_t chunks,
                   int64_t chunk) {
  using C = Computed<T>;
  __shared__ C shared[kColumnThreads * unit];
  const int64_t item = blockIdx.x, outer = item / across / chunks, part = item / across % chunks;
  const int64_t column = (item % across * blockDim.x + threadIdx.x) * unit;
  const int64_t first = part * chunk, last = min(n, first + chunk);
  C value[unit];
#pragma unroll
  for (int k = 0; k < unit; ++k) value[k] = Op::template neutral<C>();
  if (column < inner)
    each_row<unit == 1 ? 8 : 4>(first, last, [&]<int rows>(int64_t i) {
      Pack<T, unit> packs[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r)
        packs[r] = load_pack<T, unit>(x + (outer * n + i + r * blockDim.y) * inner + column);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        C v[unit];
        if constexpr (unit == 1)
          v[0] = static_cast<C>(packs[r].element[0]);
        else
          packs[r].get(v);
#pragma unroll
        for (int k = 0; k < unit; ++k) value[k] = Op()(value[k], v[k]);
      }
    });
  fold_columns<kColumnThreads>(value, shared, Op());
  each_column<unit>(item % across, inner, [&](int own, int64_t i) {
    y.store((outer * chunks + part) * inner + i, folded_column<kColumnThreads, unit>(shared, own, Op()));
  });
}

__global__ void fill(Output y, int64_t count, float value) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    switch (y.dtype) {
      case DType::float64: static_cast<double*>(y.data)[i] = value; break;
      case DType::int32: static_cast<int32_t*>(y.data)[i] = static_cast<int32_t>(value); break;
      case DType::int64: static_cast<int64_t*>(y.data)[i] = static_cast<int64_t>(value); break;
      case DType::uint8: static_cast<uint8_t*>(y.data)[i] = static_cast<uint8_t>(value); break;
      default: y.store(i, value);
    }
}

// 16-bit elements are best read in units of 16 bytes.
constexpr int unit_of(DType dtype, int64_t inner) {
  const bool narrow = dtype == DType::bfloat16 || dtype == DType::float16;
  return narrow && inner % 8 == 0 ? 8 : 1;
}

struct Stage {
  int64_t outer, n, inner;
  int unit = 1;    // neighbouring columns of a thread, where memory is aligned
  int lanes = 32;  // threads of a block side by side
  int64_t chunks = 1, chunk = 1;

  // `joins`: the rows are what the chunks of a stage before have left.
  Stage(DType dtype, int64_t outer, int64_t n, int64_t inner, bool joins)
      : outer(outer), n(n), inner(inner), unit(unit_of(dtype, inner)) {
    if (joins && inner > 1 && n <= 1024) {  // few rows: more threads to a column, and no further stage
      lanes = 8;
      chunk = n;
      return;
    }
    // Fill the machine: columns with blocks that all run at once on a large one (132 multiprocessors).
    const int64_t most = inner == 1 ? 1024 : 132 * kColumnBlocksEach;
    int64_t blocks, least;
    if (inner == 1) {
      blocks = outer, least = 4096;
    } else {
      while (lanes > 1 && lanes / 2 * unit >= inner) lanes /= 2;
      blocks = outer * across(unit), least = kColumnThreads / lanes * 8;
    }
    chunks = std::clamp<int64_t>(most / std::max<int64_t>(blocks, 1), 1, std::max<int64_t>(1, n / least));
    chunk = ceil_div(n, chunks);
    if (inner == 1) chunk = ceil_div(chunk, 16) * 16;  // whole units of 16 bytes
    chunks = ceil_div(n, chunk);
  }
  int64_t across(int units) const { return ceil_div(inner, lanes * units); }
  int64_t results() const { return outer * chunks * inner; }
};

// Reduced dimensions that stand side by side form one group; groups are reduced innermost first.
std::vector<Stage> plan(DType dtype, const Shape& shape, const Dims& axes) {
  std::vector<Stage> stages;
  const auto reduced = [&](int i) { return std::count(axes.begin(), axes.end(), i) > 0; };
  int64_t inner = 1;
  for (int i = shape.rank() - 1; i >= 0;) {
    if (!reduced(i)) {
      inner *= shape[i--];
      continue;
    }
    int64_t n = 1, outer = 1;
    while (i >= 0 && reduced(i)) n *= shape[i--];
    for (int k = 0; k <= i; ++k) outer *= shape[k];
    bool joins = false;
    do {
      stages.emplace_back(stages.empty() ? dtype : DType::float32, outer, n, inner, joins);
      n = stages.back().chunks;
      joins = true;
    } while (n > 1);
  }
  if (stages.empty()) stages.emplace_back(dtype, 1, 1, shape.size(), false);
  return stages;
}

DType computed(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
    case DType::float16: return DType::float32;
    case DType::uint8: return DType::int32;
    default: return dtype;
  }
}

template <class Op>
class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const KernelRequest& request)
      : dtype_(request.dtype(0)),
        outputs_(request.outputs[0].spec.shape.size()),
        empty_(request.shape(0).size() == 0) {
    if (empty_) return;
    stages_ = plan(dtype_, request.shape(0), request.attrs<ReduceAttrs>().axes);
    for (size_t i = 0; i + 1 < stages_.size(); ++i)
      halves_[i % 2] = std::max(
          halves_[i % 2],
          ceil_div(static_cast<size_t>(stages_[i].results()) * size_of(computed(dtype_)), size_t{256}) * 256);
  }

  size_t workspace_bytes() const override { return halves_[0] + halves_[1]; }

  void launch(const LaunchArgs& args) const override {
    if (outputs_ == 0) return;
    if (empty_) {
      // Sums and products of nothing; extrema of nothing are refused by the shape rule.
      fill<<<blocks_for(outputs_), kThreads, 0, stream_of(args)>>>(
          {args.outputs[0], dtype_}, outputs_, std::is_same_v<Op, Multiplying> ? 1.0f : 0.0f);
      launched();
      return;
    }
    const void* from = args.inputs[0];
    for (size_t i = 0; i < stages_.size(); ++i) {
      const bool last = i + 1 == stages_.size();
      void* to = last ? args.outputs[0] : static_cast<char*>(args.workspace) + (i % 2 ? halves_[0] : 0);
      run(stages_[i], i == 0 ? dtype_ : computed(dtype_), from, {to, last ? dtype_ : computed(dtype_)},
          stream_of(args));
      from = to;
    }
    launched();
  }

 private:
  static void run(const Stage& s, DType dtype, const void* from, Output to, cudaStream_t stream) {
    constexpr bool kWraps = std::is_same_v<Op, Adding> || std::is_same_v<Op, Multiplying>;
    switch (dtype) {
      case DType::float64: return run_as<double>(s, from, to, stream);
      case DType::bfloat16: return run_as<__nv_bfloat16>(s, from, to, stream);
      case DType::float16: return run_as<__half>(s, from, to, stream);
      case DType::int32: return run_as<std::conditional_t<kWraps, uint32_t, int32_t>>(s, from, to, stream);
      case DType::int64: return run_as<std::conditional_t<kWraps, uint64_t, int64_t>>(s, from, to, stream);
      case DType::uint8: return run_as<uint8_t>(s, from, to, stream);
      default: return run_as<float>(s, from, to, stream);
    }
  }

  template <class T>
  static void run_as(const Stage& s, const void* from, Output to, cudaStream_t stream) {
    const auto* x = static_cast<const T*>(from);
    if (s.inner == 1) {
      const RowGrid grid(s.outer * s.chunks, s.chunk);
      const auto kernel = grid.warps ? reduce_rows<Op, true, T> : reduce_rows<Op, false, T>;
      kernel<<<grid.blocks, grid.threads, 0, stream>>>(x, to, s.outer * s.chunks, s.n, s.chunks, s.chunk);
    } else {
      const dim3 threads(static_cast<unsigned>(s.lanes), static_cast<unsigned>(kColumnThreads / s.lanes));
      constexpr int kUnit = kIs16Bit<T> ? 8 : 1;
      const bool units = kUnit > 1 && s.unit == kUnit && reinterpret_cast<uintptr_t>(from) % 16 == 0;
      const int64_t across = s.across(units ? kUnit : 1);
      const auto kernel = units ? reduce_columns<Op, kUnit, T> : reduce_columns<Op, 1, T>;
      kernel<<<static_cast<unsigned>(s.outer * s.chunks * across), threads, 0, stream>>>(
          x, to, s.n, s.inner, across, s.chunks, s.chunk);
    }
  }

  std::vector<Stage> stages_;
  DType dtype_;
  int64_t outputs_;
  bool empty_;
  size_t halves_[2] = {0, 0};  // stages write the two halves of the workspace in turn
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kReduceSum, {.prepare = prepare<ReduceKernel<Adding>>}},
    {DeviceKind::gpu, kReduceProd, {.prepare = prepare<ReduceKernel<Multiplying>>}},
    {DeviceKind::gpu, kReduceMax, {.prepare = prepare<ReduceKernel<Choosing<true>>>}},
    {DeviceKind::gpu, kReduceMin, {.prepare = prepare<ReduceKernel<Choosing<false>>>}}};

}  // namespace
}  // namespace lockstep::cuda
