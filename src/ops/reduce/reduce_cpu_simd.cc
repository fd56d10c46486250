#include "ops/reduce/reduce_cpu_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::kReduceChunk;

// --- rows --------------------------------------------------------------------------------------------------

// `Count` rows of one length at a time: their chains of additions overlap.
template <class Op, int Count, class T>
LOCKSTEP_INLINE void reduce_rows(const T* const* x, Compute<T>* out, int64_t n) {
  using C = Compute<T>;
  Vec<C> acc[Count];
  LOCKSTEP_UNROLL
  for (int r = 0; r < Count; ++r) acc[r] = splat(Op::template neutral<C>());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < Count; ++r) acc[r] = Op::apply(acc[r], load(x[r] + i));
  }
  if (i < n) {
    LOCKSTEP_UNROLL
    for (int r = 0; r < Count; ++r)
      acc[r] = Op::apply(acc[r], load_some(x[r] + i, n - i, Op::template neutral<C>()));
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < Count; ++r) out[r] = fold<Op>(acc[r]);
}

template <class Op, class T>
void rows(const void* in, void* out, int64_t n, int64_t begin, int64_t end) {
  constexpr int kTogether = 4;
  const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
  const auto* x = static_cast<const T*>(in);
  auto* y = static_cast<Compute<T>*>(out);
  const auto start = [&](int64_t item) { return item / chunks * n + item % chunks * kReduceChunk; };
  const auto length = [&](int64_t item) {
    const int64_t rest = n - item % chunks * kReduceChunk;
    return rest < kReduceChunk ? rest : kReduceChunk;
  };
  int64_t item = begin;
  while (item < end) {
    const int64_t size = length(item);
    bool together = item + kTogether <= end;
    for (int r = 1; together && r < kTogether; ++r) together = length(item + r) == size;
    const T* from[kTogether] = {x + start(item)};
    if (together) {
      for (int r = 1; r < kTogether; ++r) from[r] = x + start(item + r);
      reduce_rows<Op, kTogether>(from, y + item, size);
      item += kTogether;
    } else {
      reduce_rows<Op, 1>(from, y + item, size);
      ++item;
    }
  }
}

// --- columns -----------------------------------------------------------------------------------------------

// acc[k] takes x[k], x[k + stride], ..., Groups of them; `fresh`: acc starts as the neutral element.
template <class Op, int Groups, class T>
__attribute__((noinline)) void accumulate_groups(Compute<T>* acc, const T* x, int64_t stride, int64_t size,
                                                 bool fresh) {
  using C = Compute<T>;
  const Vec<C> neutral = splat(Op::template neutral<C>());
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    Vec<C> v = fresh ? neutral : load(acc + k);
    for (int g = 0; g < Groups; ++g) v = Op::apply(v, load(x + g * stride + k));
    store(acc + k, v);
  }
  if (k == size) return;
  Vec<C> v = fresh ? neutral : load_some(acc + k, size - k, Op::template neutral<C>());
  for (int g = 0; g < Groups; ++g)
    v = Op::apply(v, load_some(x + g * stride + k, size - k, Op::template neutral<C>()));
  store_some(acc + k, size - k, v);
}

template <class Op, class T>
void columns(const void* in, void* out, int64_t n, int64_t inner, int64_t begin, int64_t end) {
  using C = Compute<T>;
  constexpr int64_t kBlock = cpu::kReduceColumnBytes / static_cast<int64_t>(sizeof(C));
  alignas(64) C acc[kLanes * kBlock];
  const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
  const int64_t blocks = (inner + kBlock - 1) / kBlock;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t first_column = item % blocks * kBlock;
    const int64_t chunk = item / blocks % chunks;
    const int64_t outer = item / blocks / chunks;
    const int64_t width = inner - first_column < kBlock ? inner - first_column : kBlock;
    const int64_t first_row = chunk * kReduceChunk;
    const int64_t count = n - first_row < kReduceChunk ? n - first_row : kReduceChunk;
    const T* x = static_cast<const T*>(in) + (outer * n + first_row) * inner + first_column;
    C* y = static_cast<C*>(out) + (outer * chunks + chunk) * inner + first_column;

    // Sixteen whole rows are one run of memory, where the block spans the rows; then no run has a tail.
    const bool dense = width == inner;
    const int64_t run = dense ? kLanes * width : width;
    const int64_t stride = kLanes * inner;
    const auto each_run = [&](int64_t row, int64_t lanes, auto&& f) {
      if (dense) return f(acc, x + row * inner, lanes * width);
      for (int64_t l = 0; l < lanes; ++l) f(acc + l * run, x + (row + l) * inner, run);
    };
    const int64_t groups = count / kLanes;
    int64_t g = 0;
    for (; g + 4 <= groups; g += 4)
      each_run(g * kLanes, kLanes, [&](C* a, const T* from, int64_t size) {
        accumulate_groups<Op, 4>(a, from, stride, size, g == 0);
      });
    for (; g < groups; ++g)
      each_run(g * kLanes, kLanes, [&](C* a, const T* from, int64_t size) {
        accumulate_groups<Op, 1>(a, from, stride, size, g == 0);
      });
    if (const int64_t rest = count % kLanes; rest > 0)
      each_run(g * kLanes, rest, [&](C* a, const T* from, int64_t size) {
        accumulate_groups<Op, 1>(a, from, stride, size, g == 0);
      });

    // A lane without elements would bring the neutral element: it is left out.
    const int64_t lanes = groups > 0 ? kLanes : count;
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half && l + half < lanes; ++l)
        accumulate_groups<Op, 1>(acc + l * width, acc + (l + half) * width, 0, width, false);
    __builtin_memcpy(y, acc, static_cast<size_t>(width) * sizeof(C));
  }
}

// --- argmax ------------------------------------------------------------------------------------------------

// The first NaN is the largest of all, as in NumPy.
template <class C>
LOCKSTEP_INLINE void take_larger(Vec<C>& best, Mask<C>& where, const Vec<C>& x, const Mask<C>& position) {
  const Mask<C> better = (x > best) | ((x != x) & (best == best));
  best = select(better, x, best);
  where = select(better, position, where);
}

// The largest element first, then the first element like it.
template <class T>
void argmax_rows(const void* in, int64_t* out, int64_t n, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(in) + row * n;
    const T* from[1] = {x};
    C largest;
    reduce_rows<Max, 1>(from, &largest, n);
    const bool nan = largest != largest;
    const auto hits = [&](const Vec<C>& v) __attribute__((always_inline)) {
      return lane_bits(nan ? v != v : v == splat(largest));
    };
    int64_t i = 0;
    uint32_t found = 0;
    for (; i + kLanes <= n && (found = hits(load(x + i))) == 0;) i += kLanes;
    // Lanes behind the row come last: they are never the first hit.
    if (found == 0) found = hits(load_some(x + i, n - i, largest));
    out[row] = i + __builtin_ctz(found);
  }
}

template <class T>
void argmax_columns(const void* in, int64_t* out, int64_t n, int64_t inner, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using Position = typename MaskOf<C>::type;
  const int64_t blocks = (inner + kLanes - 1) / kLanes;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t column = item % blocks * kLanes;
    const int64_t outer = item / blocks;
    const int64_t width = inner - column < kLanes ? inner - column : kLanes;
    const T* x = static_cast<const T*>(in) + outer * n * inner + column;
    const auto row = [&](int64_t i) __attribute__((always_inline)) {
      return width == kLanes ? load(x + i * inner) : load_some(x + i * inner, width, C(0));
    };
    Vec<C> best = row(0);
    Mask<C> where = splat(Position(0));
    for (int64_t i = 1; i < n; ++i) take_larger(best, where, row(i), splat(static_cast<Position>(i)));
    Position positions[kLanes];
    store(positions, where);
    for (int64_t l = 0; l < width; ++l) out[outer * inner + column + l] = positions[l];
  }
}

template <class Op, class T>
constexpr cpu::ReduceFunctions functions() {
  return {rows<Op, T>, columns<Op, T>};
}
template <class T>
constexpr cpu::ArgmaxFunctions argmax_functions() {
  return {argmax_rows<T>, argmax_columns<T>};
}

}  // namespace

// Sums and products of integers wrap around: they are made of unsigned ones, which have the same bits.
extern const cpu::ReduceTable kReduceTable = {
    {{functions<Sum, float>(), functions<Sum, double>(), functions<Sum, BFloat16>(),
      functions<Sum, Float16>(), functions<Sum, uint32_t>(), functions<Sum, uint64_t>(),
      functions<Sum, uint8_t>()},
     {functions<Prod, float>(), functions<Prod, double>(), functions<Prod, BFloat16>(),
      functions<Prod, Float16>(), functions<Prod, uint32_t>(), functions<Prod, uint64_t>(),
      functions<Prod, uint8_t>()},
     {functions<Max, float>(), functions<Max, double>(), functions<Max, BFloat16>(),
      functions<Max, Float16>(), functions<Max, int32_t>(), functions<Max, int64_t>(),
      functions<Max, uint8_t>()},
     {functions<Min, float>(), functions<Min, double>(), functions<Min, BFloat16>(),
      functions<Min, Float16>(), functions<Min, int32_t>(), functions<Min, int64_t>(),
      functions<Min, uint8_t>()}},
    {argmax_functions<float>(), argmax_functions<double>(), argmax_functions<BFloat16>(),
     argmax_functions<Float16>(), argmax_functions<int32_t>(), argmax_functions<int64_t>(),
     argmax_functions<uint8_t>()}};

}  // namespace lockstep::LOCKSTEP_SIMD
