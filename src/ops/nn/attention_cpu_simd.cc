#include "ops/nn/attention_cpu_simd.h"

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::ScoreRules;

constexpr int64_t kTile = cpu::kAttentionTile;
static_assert(cpu::kAttentionLanes == kLanes);

// --- products ----------------------------------------------------------------------------------------------

// Rows and vectors of a product that are summed up together: as many as the registers hold.
template <class C>
constexpr int kRows = kNativeBytes == 64 ? 8 : 8 / Vec<C>::kParts;
static_assert(kLanes % kRows<float> == 0 && kLanes % kRows<double> == 0);
template <class C>
constexpr int kVectors = Vec<C>::kParts == 1 ? 2 : 1;

// c[Rows, 16 * Vectors] = a[Rows, depth] b[depth, 16 * Vectors], or added to what is there
template <bool Adds, int Rows, int Vectors, class C>
LOCKSTEP_INLINE void multiply_block(C* c, int64_t c_row, const C* a, int64_t a_row, int64_t a_column,
                                    const C* b, int64_t b_row, int64_t depth) {
  Vec<C> sum[Rows][Vectors];
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) {
    LOCKSTEP_UNROLL
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Adds ? load(c + r * c_row + v * kLanes) : splat(C(0));
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<C> row[Vectors];
    LOCKSTEP_UNROLL
    for (int v = 0; v < Vectors; ++v) row[v] = load(b + k * b_row + v * kLanes);
    LOCKSTEP_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const Vec<C> factor = splat(a[r * a_row + k * a_column]);
      LOCKSTEP_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[r][v] = mul_add(factor, row[v], sum[r][v]);
    }
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) {
    LOCKSTEP_UNROLL
    for (int v = 0; v < Vectors; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
  }
}

// The same for up to kRows rows, memory for all of which is there on both sides. Columns are a multiple
// of 16.
template <bool Adds, class C>
void multiply(C* c, int64_t c_row, const C* a, int64_t a_row, int64_t a_column, const C* b, int64_t b_row,
              int64_t columns, int64_t depth) {
  constexpr int kWide = kVectors<C> * kLanes;
  int64_t j = 0;
  for (; j + kWide <= columns; j += kWide)
    multiply_block<Adds, kRows<C>, kVectors<C>>(c + j, c_row, a, a_row, a_column, b + j, b_row, depth);
  for (; j < columns; j += kLanes)
    multiply_block<Adds, kRows<C>, 1>(c + j, c_row, a, a_row, a_column, b + j, b_row, depth);
}

template <class C>
LOCKSTEP_INLINE void clear(C* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, splat(C(0)));
}

// --- scores ------------------------------------------------------------------------------------------------

template <class C>
constexpr C kInfinity = static_cast<C>(__builtin_inf());

LOCKSTEP_INLINE F32 exponential(const F32& x) { return exp_not_positive(x); }
LOCKSTEP_INLINE F64 exponential(const F64& x) {
  F64 r;
  LOCKSTEP_EACH_PART(i, r)
  for (int l = 0; l < r.kWidth; ++l) r.part[i][l] = __builtin_exp(x.part[i][l]);
  return r;
}
LOCKSTEP_INLINE F32 logarithm(const F32& x) { return log(x); }
LOCKSTEP_INLINE F64 logarithm(const F64& x) {
  F64 r;
  LOCKSTEP_EACH_PART(i, r)
  for (int l = 0; l < r.kWidth; ++l) r.part[i][l] = __builtin_log(x.part[i][l]);
  return r;
}

template <class T>
LOCKSTEP_INLINE Compute<T> value(T x) {
  if constexpr (sizeof(T) == 2)
    return load_some(&x, 1, 0.0f).part[0][0];
  else
    return x;
}

// Keys of this tile that exist.
LOCKSTEP_INLINE int64_t keys_in_tile(const ScoreRules& rules, int64_t first_key) {
  return rules.keys - first_key < kTile ? rules.keys - first_key : kTile;
}

// Of the `count` keys of a tile those that a causal query does not have before it.
LOCKSTEP_INLINE int64_t keys_seen(const ScoreRules& rules, int64_t query, int64_t first_key, int64_t count) {
  if (!rules.causal || query + 1 - first_key >= count) return count;
  return query + 1 - first_key < 0 ? 0 : query + 1 - first_key;
}

LOCKSTEP_INLINE int64_t whole_vectors(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Adds the bias to one query's scores; minus infinity where a key is not seen. `count` keys exist, `columns`
// are wanted.
template <class T>
LOCKSTEP_INLINE void apply_rules(const ScoreRules& rules, int64_t query, int64_t first_key, int64_t count,
                                 int64_t columns, Compute<T>* scores) {
  using C = Compute<T>;
  count = keys_seen(rules, query, first_key, count);
  if (rules.bias.data) {
    const T* bias =
        static_cast<const T*>(rules.bias.data) + query * rules.bias.query + first_key * rules.bias.key;
    for (int64_t j = 0; j < count; j += kLanes) {
      const int64_t some = count - j < kLanes ? count - j : kLanes;
      const Vec<C> term = rules.bias.key == 0 ? splat(value(*bias))
                          : some == kLanes    ? load(bias + j)
                                              : load_some(bias + j, some, C(0));
      store(scores + j, load(scores + j) + term);
    }
  }
  if (rules.mask.data) {
    const uint8_t* mask =
        static_cast<const uint8_t*>(rules.mask.data) + query * rules.mask.query + first_key * rules.mask.key;
    for (int64_t j = 0; j < count; ++j) scores[j] = mask[j * rules.mask.key] ? scores[j] : -kInfinity<C>;
  }
  using Index = typename MaskOf<C>::type;
  for (int64_t j = count / kLanes * kLanes; j < columns; j += kLanes) {
    const Mask<C> is_seen = iota(static_cast<Index>(j)) < splat(static_cast<Index>(count));
    store(scores + j, select(is_seen, load(scores + j), splat(-kInfinity<C>)));
  }
}

// Scales what dropout keeps and clears what it drops.
template <class C>
LOCKSTEP_INLINE void drop(const ScoreRules& rules, int64_t query, int64_t first_key, int64_t count, C* row) {
  if (!rules.keep) return;
  const uint8_t* kept = rules.keep(rules.keep_context, query, first_key, count);
  const C scale = static_cast<C>(rules.keep_scale);
  for (int64_t j = 0; j < count; ++j) row[j] = kept[j] ? row[j] * scale : C(0);
}

// --- forward -----------------------------------------------------------------------------------------------

template <class T>
void forward(const cpu::AttentionForward& t) {
  using C = Compute<T>;
  const ScoreRules& rules = t.rules;
  auto* scores = static_cast<C*>(t.scratch);
  auto* sum = static_cast<C*>(t.sum);
  auto* largest = static_cast<C*>(t.log_sum_exp);  // until the end
  C total[kTile];
  const int64_t rows = rules.queries - t.first_query < kTile ? rules.queries - t.first_query : kTile;
  for (int64_t r = 0; r < kTile; ++r) largest[r] = -kInfinity<C>, total[r] = C(0);
  clear(sum, kTile * t.value_dim);
  for (int64_t first_key = 0; first_key < rules.keys; first_key += kTile) {
    if (rules.causal && first_key > t.first_query + rows - 1) break;
    const int64_t count = keys_in_tile(rules, first_key);
    for (int64_t first = 0; first < rows; first += kRows<C>) {
      const int64_t end = rows - first < kRows<C> ? rows : first + kRows<C>;
      const int64_t seen = keys_seen(rules, t.first_query + end - 1, first_key, count),
                    columns = whole_vectors(seen);
      multiply<false>(scores, kTile, static_cast<const C*>(t.query) + first * t.dim, t.dim, 1,
                      static_cast<const C*>(t.key) + first_key * t.dim, kTile, columns, t.dim);
      for (int64_t r = first; r < end; ++r) {
        C* row = scores + (r - first) * kTile;
        apply_rules<T>(rules, t.first_query + r, first_key, count, columns, row);
        Vec<C> best = splat(-kInfinity<C>);
        for (int64_t j = 0; j < columns; j += kLanes) best = MaxOfNumbers::apply(best, load(row + j));
        const C tile_max = fold<MaxOfNumbers>(best);
        const C before = largest[r], after = tile_max > before ? tile_max : before;
        // Of what is not seen the exponentials are 0, and of NaN, which is no largest score, they are NaN.
        const Vec<C> center = splat(after == -kInfinity<C> ? C(0) : after);
        Vec<C> added = splat(C(0));
        for (int64_t j = 0; j < columns; j += kLanes) {
          const Vec<C> e = exponential(load(row + j) - center);
          store(row + j, e);
          added = added + e;
        }
        drop(rules, t.first_query + r, first_key, seen, row);
        if (after != before && before != -kInfinity<C>) {
          C shrunk[kLanes];
          store(shrunk, exponential(splat(before - after)));
          total[r] *= shrunk[0];
          const Vec<C> factor = splat(shrunk[0]);
          for (int64_t j = 0; j < t.value_dim; j += kLanes)
            store(sum + r * t.value_dim + j, load(sum + r * t.value_dim + j) * factor);
        }
        largest[r] = after;
        total[r] += fold<Sum>(added);
      }
      multiply<true>(sum + first * t.value_dim, t.value_dim, scores, kTile, 1,
                     static_cast<const C*>(t.value) + first_key * t.value_dim, t.value_dim, t.value_dim,
                     seen);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const Vec<C> factor = splat(total[r] != C(0) ? C(1) / total[r] : C(0));
    for (int64_t j = 0; j < t.value_dim; j += kLanes)
      store(sum + r * t.value_dim + j, load(sum + r * t.value_dim + j) * factor);
  }
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec<C> some = load(total + r), level = load(largest + r) + logarithm(some);
    store(largest + r, select(some != splat(C(0)), level, splat(kInfinity<C>)));
  }
}

// --- backward ----------------------------------------------------------------------------------------------

// With P the probabilities, K what dropout keeps (scaled), D = rowsum(dO O) and dP = (dO V^T) K:
//   dV += (P K)^T dO,  dS = P (dP - D),  dQ += dS K,  dK += dS^T Q.
template <class T>
void backward(const cpu::AttentionBackward& t) {
  using C = Compute<T>;
  const ScoreRules& rules = t.rules;
  auto* p = static_cast<C*>(t.scratch);
  C* ds = p + kTile * kTile;
  const auto *query = static_cast<const C*>(t.query), *gradient = static_cast<const C*>(t.gradient);
  const auto *log_sum_exp = static_cast<const C*>(t.log_sum_exp), *dot = static_cast<const C*>(t.result_dot);
  const int64_t rows = rules.queries - t.first_query < kTile ? rules.queries - t.first_query : kTile;
  const int64_t count = keys_in_tile(rules, t.first_key);
  for (int64_t first = 0; first < rows; first += kRows<C>) {
    const int64_t end = rows - first < kRows<C> ? rows : first + kRows<C>;
    const int64_t seen = keys_seen(rules, t.first_query + end - 1, t.first_key, count),
                  columns = whole_vectors(seen);
    multiply<false>(p + first * kTile, kTile, query + first * t.dim, t.dim, 1,
                    static_cast<const C*>(t.key_transposed), kTile, columns, t.dim);
    multiply<false>(ds + first * kTile, kTile, gradient + first * t.value_dim, t.value_dim, 1,
                    static_cast<const C*>(t.value_transposed), kTile, columns, t.value_dim);
    for (int64_t r = first; r < end; ++r) {
      C *row = p + r * kTile, *ds_row = ds + r * kTile;
      apply_rules<T>(rules, t.first_query + r, t.first_key, count, columns, row);
      drop(rules, t.first_query + r, t.first_key, seen, ds_row);
      const Vec<C> level = splat(log_sum_exp[r]), offset = splat(dot[r]);
      for (int64_t j = 0; j < columns; j += kLanes) {
        const Vec<C> e = exponential(load(row + j) - level);
        store(row + j, e);
        store(ds_row + j, e * (load(ds_row + j) - offset));
      }
      drop(rules, t.first_query + r, t.first_key, seen, row);
    }
    multiply<true>(static_cast<C*>(t.dquery) + first * t.dim, t.dim, ds + first * kTile, kTile, 1,
                   static_cast<const C*>(t.key), t.dim, t.dim, seen);
  }
  for (int64_t key = 0; key < count; key += kRows<C>) {
    // The first query that sees one of these keys.
    const int64_t before = rules.causal ? t.first_key + key - t.first_query : 0,
                  first = before < 0 ? 0 : before;
    if (first >= rows) break;
    multiply<true>(static_cast<C*>(t.dvalue) + key * t.value_dim, t.value_dim, p + first * kTile + key, 1,
                   kTile, gradient + first * t.value_dim, t.value_dim, t.value_dim, rows - first);
    multiply<true>(static_cast<C*>(t.dkey) + key * t.dim, t.dim, ds + first * kTile + key, 1, kTile,
                   query + first * t.dim, t.dim, t.dim, rows - first);
  }
}

template <class C>
void row_dots(const void* a, const void* b, int64_t rows, int64_t columns, void* to) {
  for (int64_t r = 0; r < rows; ++r) {
    Vec<C> sum = splat(C(0));
    for (int64_t j = r * columns; j < (r + 1) * columns; j += kLanes)
      sum = sum + load(static_cast<const C*>(a) + j) * load(static_cast<const C*>(b) + j);
    static_cast<C*>(to)[r] = fold<Sum>(sum);
  }
}

// --- packing -----------------------------------------------------------------------------------------------

template <class T>
void pack_tile(const void* from, int64_t stride, int64_t rows, int64_t columns, double scale, void* to,
               int64_t padded) {
  using C = Compute<T>;
  const auto factor = splat(static_cast<C>(scale));
  for (int64_t r = 0; r < whole_vectors(rows); ++r) {
    const T* row = static_cast<const T*>(from) + r * stride;
    C* packed = static_cast<C*>(to) + r * padded;
    if (r >= rows) {
      clear(packed, padded);
      continue;
    }
    for (int64_t j = 0; j < padded; j += kLanes) {
      const int64_t some = columns - j;
      store(packed + j, (some >= kLanes ? load(row + j) : load_some(row + j, some, C(0))) * factor);
    }
  }
}

template <class T>
void pack_transposed(const void* from, int64_t stride, int64_t rows, int64_t columns, void* to,
                     int64_t padded) {
  using C = Compute<T>;
  auto* packed = static_cast<C*>(to);
  for (int64_t c = 0; c < padded; ++c) clear(packed + c * kTile, whole_vectors(rows));
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = static_cast<const T*>(from) + r * stride;
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t some = columns - j < kLanes ? columns - j : kLanes;
      C lanes[kLanes];
      store(lanes, some == kLanes ? load(row + j) : load_some(row + j, some, C(0)));
      for (int64_t l = 0; l < some; ++l) packed[(j + l) * kTile + r] = lanes[l];
    }
  }
}

template <class T>
void unpack_tile(const void* from, int64_t padded, int64_t rows, int64_t columns, double scale, void* to,
                 int64_t stride) {
  using C = Compute<T>;
  const auto factor = splat(static_cast<C>(scale));
  for (int64_t r = 0; r < rows; ++r) {
    const C* packed = static_cast<const C*>(from) + r * padded;
    T* row = static_cast<T*>(to) + r * stride;
    for (int64_t j = 0; j < columns; j += kLanes) {
      const Vec<C> v = load(packed + j) * factor;
      if (columns - j >= kLanes)
        store(row + j, v);
      else
        store_some(row + j, columns - j, v);
    }
  }
}

template <class T>
constexpr cpu::AttentionFunctions functions() {
  return {pack_tile<T>, pack_transposed<T>, unpack_tile<T>, row_dots<Compute<T>>, forward<T>, backward<T>};
}

}  // namespace

extern const cpu::AttentionTable kAttentionTable = {functions<float>(), functions<double>(),
                                                    functions<BFloat16>(), functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
