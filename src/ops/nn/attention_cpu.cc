// Attention on the CPU: tiles of scores that stay in the caches, packed operands, no matrix of all scores.
//
// Forward, a task is one tile of queries of one head. Backward, a task is a range of keys of one key head: it
// alone adds to the gradients of its keys and values, and has its own sum of the queries' gradients; these
// sums are then added in order. How many ranges there are depends on the shapes alone, so results do not
// depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "backends/cpu/product_threads.h"
#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/nn/attention.h"
#include "ops/nn/attention_cpu_simd.h"
#include "ops/random/random.h"
#include "ops/random/random_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::kAttentionTile;
using cpu::ScoreRules;
using cpu::ScoreTerm;

const cpu::AttentionFunctions& functions(DType dtype) {
  const auto& table =
      cpu::pick_simd(simd_v2::kAttentionTable, simd_v3::kAttentionTable, simd_v4::kAttentionTable);
  return dtype == DType::float64    ? table.float64
         : dtype == DType::bfloat16 ? table.bfloat16
         : dtype == DType::float16  ? table.float16
                                    : table.float32;
}

int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Sizes {
  Sizes(const Shape& query, const Shape& key, const Shape& value)
      : batch(query[0]),
        heads(query[2]),
        key_heads(key[2]),
        group(key_heads > 0 ? heads / key_heads : 0),
        queries(query[1]),
        keys(key[1]),
        dim(query[3]),
        value_dim(value[3]),
        padded_dim(up_to(dim, cpu::kAttentionLanes)),
        padded_value_dim(up_to(value_dim, cpu::kAttentionLanes)),
        query_tiles((queries + kAttentionTile - 1) / kAttentionTile),
        key_tiles((keys + kAttentionTile - 1) / kAttentionTile) {}

  int64_t batch, heads, key_heads, group, queries, keys, dim, value_dim;
  int64_t padded_dim, padded_value_dim;
  int64_t query_tiles, key_tiles;
};

// The parts of a workspace, each on lines of its own.
class Parts {
 public:
  // Room for `elements`; returns its place in bytes.
  size_t add(int64_t elements, size_t size) {
    const size_t place = bytes_;
    bytes_ += (static_cast<size_t>(elements) * size + 63) / 64 * 64;
    return place;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

class AttentionBase : public Kernel {
 public:
  AttentionBase(const KernelRequest& request, int first_optional)
      : attrs_(request.attrs<AttentionAttrs>()),
        functions_(functions(request.dtype(0))),
        sizes_(request.shape(0), request.shape(1), request.shape(2)),
        element_(size_of(request.dtype(0))),
        wide_(request.dtype(0) == DType::float64 ? sizeof(double) : sizeof(float)),
        threads_(cpu::threads_for_products(
            sizes_.batch * sizes_.heads * sizes_.queries * sizes_.keys * (sizes_.dim + sizes_.value_dim),
            request.threads)),
        mask_input_(attrs_.mask_input(first_optional)),
        bias_input_(attrs_.bias_input(first_optional)),
        state_input_(attrs_.state_input(first_optional)) {
    const Shape scores{sizes_.batch, sizes_.heads, sizes_.queries, sizes_.keys};
    const auto strides = [&](int input) {
      if (input < 0) return Strides();
      const OperandLayout& layout = request.inputs[static_cast<size_t>(input)];
      return broadcast_strides(layout.spec.shape, contiguous_strides(layout.spec.shape), scores);
    };
    mask_strides_ = strides(mask_input_), bias_strides_ = strides(bias_input_);
    if (state_input_ >= 0) kept_ = parts_.add(threads_ * sizes_.keys, 1);
  }

  size_t workspace_bytes() const override { return parts_.bytes(); }

 protected:
  struct KeepContext {
    cpu::RandomRows rows;
    cpu::RandomFunction threshold;
    uint8_t* row;  // one byte a key
  };

  static const char* bytes(const void* p) { return static_cast<const char*>(p); }
  static char* bytes(void* p) { return static_cast<char*>(p); }

  // Element `index` of the type that is computed in.
  const void* wide_at(const void* base, int64_t index) const {
    return bytes(base) + static_cast<size_t>(index) * wide_;
  }
  void* wide_at(void* base, int64_t index) const { return bytes(base) + static_cast<size_t>(index) * wide_; }
  void* part(const LaunchArgs& args, size_t place) const { return bytes(args.workspace) + place; }

  // Row `row` of head `head` of a tensor [batch, rows, heads, columns].
  template <class Pointer>
  auto row_at(Pointer base, int64_t n, int64_t rows, int64_t row, int64_t heads, int64_t head,
              int64_t columns) const {
    return bytes(base) + static_cast<size_t>(((n * rows + row) * heads + head) * columns) * element_;
  }

  ScoreTerm term(const LaunchArgs& args, int input, const Strides& strides, size_t element, int64_t n,
                 int64_t head) const {
    if (input < 0) return {};
    const int64_t offset = n * strides[0] + head * strides[1];
    return {.data = bytes(args.inputs[input]) + static_cast<size_t>(offset) * element,
            .query = strides[2],
            .key = strides[3]};
  }

  // `context` is filled where there is dropout, and must live as long as the rules.
  ScoreRules rules(const LaunchArgs& args, int64_t n, int64_t head, int thread, KeepContext& context) const {
    ScoreRules rules{.queries = sizes_.queries,
                     .keys = sizes_.keys,
                     .causal = attrs_.causal,
                     .mask = term(args, mask_input_, mask_strides_, 1, n, head),
                     .bias = term(args, bias_input_, bias_strides_, element_, n, head)};
    if (state_input_ < 0) return rules;
    const int64_t state = *static_cast<const int64_t*>(args.inputs[state_input_]);
    const int64_t example = *static_cast<const int64_t*>(args.inputs[state_input_ + 1]);
    const int64_t first_row = example * attrs_.rows_per_example + (n * sizes_.heads + head) * sizes_.queries;
    context = {
        .rows = {.key = random_key(state, attrs_.instance),
                 .first_row = static_cast<uint64_t>(first_row),
                 .width = sizes_.keys,
                 .threshold = static_cast<uint32_t>(std::ceil(attrs_.dropout * 0x1p24))},
        .threshold =
            cpu::pick_simd(simd_v2::kRandomTable, simd_v3::kRandomTable, simd_v4::kRandomTable).threshold,
        .row = static_cast<uint8_t*>(part(args, kept_)) + thread * sizes_.keys};
    rules.keep = keep;
    rules.keep_context = &context;
    rules.keep_scale = 1 / (1 - attrs_.dropout);
    return rules;
  }

  // f(task, thread) for each task, dealt out in turn: with a causal mask tasks differ in length.
  template <class F>
  void each_task(int64_t tasks, F f) const {
    const int threads = static_cast<int>(std::clamp<int64_t>(tasks, 1, threads_));
    parallel(threads, [&](int index) {
      for (int64_t task = index; task < tasks; task += threads) f(task, index);
    });
  }

  AttentionAttrs attrs_;
  const cpu::AttentionFunctions& functions_;
  Sizes sizes_;
  size_t element_, wide_;
  int threads_;
  Parts parts_;

 private:
  // A row of the random tensor is made of blocks of four; tiles begin at whole ones.
  static const uint8_t* keep(const void* context, int64_t query, int64_t first_key, int64_t count) {
    static_assert(kAttentionTile % 4 == 0);
    const auto& c = *static_cast<const KeepContext*>(context);
    cpu::RandomRows rows = c.rows;
    rows.first_row += static_cast<uint64_t>(query);
    c.threshold(rows, c.row, first_key / 4, (first_key + count + 3) / 4);
    return c.row + first_key;
  }

  int mask_input_, bias_input_, state_input_;
  Strides mask_strides_, bias_strides_;
  size_t kept_ = 0;
};

class AttentionKernel final : public AttentionBase {
 public:
  explicit AttentionKernel(const KernelRequest& request) : AttentionBase(request, kAttentionOptional) {
    const Sizes& s = sizes_;
    const int64_t rows = s.batch * s.key_heads * s.key_tiles * kAttentionTile;
    keys_ = parts_.add(rows * s.padded_dim, wide_);
    values_ = parts_.add(rows * s.padded_value_dim, wide_);
    own_elements_ = kAttentionTile * (s.padded_dim + s.padded_value_dim + 1) + cpu::kForwardScratch;
    own_ = parts_.add(threads_ * own_elements_, wide_);
  }

  void launch(const LaunchArgs& args) const override {
    const Sizes& s = sizes_;
    void *keys = part(args, keys_), *values = part(args, values_);
    each_task(s.batch * s.key_heads * s.key_tiles, [&](int64_t task, int) {
      const int64_t tile = task % s.key_tiles, head = task / s.key_tiles % s.key_heads,
                    n = task / s.key_tiles / s.key_heads;
      const int64_t first = tile * kAttentionTile, rows = std::min(kAttentionTile, s.keys - first);
      functions_.pack_transposed(row_at(args.inputs[1], n, s.keys, first, s.key_heads, head, s.dim),
                                 s.key_heads * s.dim, rows, s.dim,
                                 wide_at(keys, task * kAttentionTile * s.padded_dim), s.padded_dim);
      functions_.pack_tile(row_at(args.inputs[2], n, s.keys, first, s.key_heads, head, s.value_dim),
                           s.key_heads * s.value_dim, rows, s.value_dim, 1,
                           wide_at(values, task * kAttentionTile * s.padded_value_dim), s.padded_value_dim);
    });
    each_task(s.batch * s.heads * s.query_tiles, [&](int64_t task, int thread) {
      const int64_t tile = task % s.query_tiles, head = task / s.query_tiles % s.heads,
                    n = task / s.query_tiles / s.heads;
      const int64_t first = tile * kAttentionTile, rows = std::min(kAttentionTile, s.queries - first);
      const int64_t key_row = (n * s.key_heads + head / s.group) * s.key_tiles * kAttentionTile;
      void* query = wide_at(part(args, own_), thread * own_elements_);
      void* sum = wide_at(query, kAttentionTile * s.padded_dim);
      void* log_sum_exp = wide_at(sum, kAttentionTile * s.padded_value_dim);
      functions_.pack_tile(row_at(args.inputs[0], n, s.queries, first, s.heads, head, s.dim), s.heads * s.dim,
                           rows, s.dim, attrs_.scale, query, s.padded_dim);
      KeepContext context;
      functions_.forward({.rules = rules(args, n, head, thread, context),
                          .first_query = first,
                          .query = query,
                          .key = wide_at(keys, key_row * s.padded_dim),
                          .value = wide_at(values, key_row * s.padded_value_dim),
                          .dim = s.padded_dim,
                          .value_dim = s.padded_value_dim,
                          .scratch = wide_at(log_sum_exp, kAttentionTile),
                          .sum = sum,
                          .log_sum_exp = log_sum_exp});
      functions_.unpack_tile(sum, s.padded_value_dim, rows, s.value_dim, 1,
                             row_at(args.outputs[0], n, s.queries, first, s.heads, head, s.value_dim),
                             s.heads * s.value_dim);
      std::copy_n(bytes(log_sum_exp), static_cast<size_t>(rows) * wide_,
                  bytes(wide_at(args.outputs[1], (n * s.heads + head) * s.queries + first)));
    });
  }

 private:
  size_t keys_, values_, own_;
  int64_t own_elements_;
};

class AttentionGradKernel final : public AttentionBase {
 public:
  explicit AttentionGradKernel(const KernelRequest& request)
      : AttentionBase(request, kAttentionGradOptional) {
    const Sizes& s = sizes_;
    constexpr int64_t kTasks = 16;
    ranges_ = std::clamp<int64_t>(kTasks / std::max<int64_t>(s.batch * s.key_heads, 1), 1,
                                  std::max<int64_t>(s.key_tiles, 1));
    const int64_t query_rows = s.batch * s.heads * s.query_tiles * kAttentionTile;
    const int64_t key_rows = s.batch * s.key_heads * s.key_tiles * kAttentionTile;
    queries_ = parts_.add(query_rows * s.padded_dim, wide_);
    gradients_ = parts_.add(query_rows * s.padded_value_dim, wide_);
    dots_ = parts_.add(query_rows, wide_);
    keys_ = parts_.add(key_rows * s.padded_dim, wide_);
    keys_transposed_ = parts_.add(key_rows * s.padded_dim, wide_);
    values_transposed_ = parts_.add(key_rows * s.padded_value_dim, wide_);
    range_elements_ = query_rows * s.padded_dim;
    dqueries_ = parts_.add(ranges_ * range_elements_, wide_);
    own_elements_ = kAttentionTile * (s.padded_dim + s.padded_value_dim) + cpu::kBackwardScratch;
    own_ = parts_.add(threads_ * own_elements_, wide_);
  }

  void launch(const LaunchArgs& args) const override {
    wide_ == sizeof(double) ? run<double>(args) : run<float>(args);
  }

 private:
  template <class C>
  void run(const LaunchArgs& args) const {
    pack(args);
    each_task(sizes_.batch * sizes_.key_heads * ranges_,
              [&](int64_t task, int thread) { run_range<C>(args, task, thread); });
    finish<C>(args);
  }

  void pack(const LaunchArgs& args) const {
    const Sizes& s = sizes_;
    each_task(s.batch * s.key_heads * s.key_tiles, [&](int64_t task, int) {
      const int64_t tile = task % s.key_tiles, head = task / s.key_tiles % s.key_heads,
                    n = task / s.key_tiles / s.key_heads;
      const int64_t first = tile * kAttentionTile, rows = std::min(kAttentionTile, s.keys - first);
      const auto* key = row_at(args.inputs[1], n, s.keys, first, s.key_heads, head, s.dim);
      const auto* value = row_at(args.inputs[2], n, s.keys, first, s.key_heads, head, s.value_dim);
      const int64_t place = task * kAttentionTile;
      functions_.pack_tile(key, s.key_heads * s.dim, rows, s.dim, 1,
                           wide_at(part(args, keys_), place * s.padded_dim), s.padded_dim);
      functions_.pack_transposed(key, s.key_heads * s.dim, rows, s.dim,
                                 wide_at(part(args, keys_transposed_), place * s.padded_dim), s.padded_dim);
      functions_.pack_transposed(value, s.key_heads * s.value_dim, rows, s.value_dim,
                                 wide_at(part(args, values_transposed_), place * s.padded_value_dim),
                                 s.padded_value_dim);
    });
    each_task(s.batch * s.heads * s.query_tiles, [&](int64_t task, int thread) {
      const int64_t tile = task % s.query_tiles, head = task / s.query_tiles % s.heads,
                    n = task / s.query_tiles / s.heads;
      const int64_t first = tile * kAttentionTile, rows = std::min(kAttentionTile, s.queries - first);
      const int64_t place = task * kAttentionTile;
      void* gradient = wide_at(part(args, gradients_), place * s.padded_value_dim);
      functions_.pack_tile(row_at(args.inputs[0], n, s.queries, first, s.heads, head, s.dim), s.heads * s.dim,
                           rows, s.dim, attrs_.scale, wide_at(part(args, queries_), place * s.padded_dim),
                           s.padded_dim);
      const auto pack_like_result = [&](const void* tensor, void* to) {
        functions_.pack_tile(row_at(tensor, n, s.queries, first, s.heads, head, s.value_dim),
                             s.heads * s.value_dim, rows, s.value_dim, 1, to, s.padded_value_dim);
      };
      void* result = wide_at(part(args, own_), thread * own_elements_);
      pack_like_result(args.inputs[5], gradient);
      pack_like_result(args.inputs[3], result);
      functions_.row_dots(gradient, result, rows, s.padded_value_dim, wide_at(part(args, dots_), place));
    });
  }

  template <class C>
  void run_range(const LaunchArgs& args, int64_t task, int thread) const {
    const Sizes& s = sizes_;
    const int64_t range = task % ranges_, key_head = task / ranges_ % s.key_heads,
                  n = task / ranges_ / s.key_heads;
    C* dkey = static_cast<C*>(part(args, own_)) + thread * own_elements_;
    C* dvalue = dkey + kAttentionTile * s.padded_dim;
    C* scratch = dvalue + kAttentionTile * s.padded_value_dim;
    C* dqueries = static_cast<C*>(part(args, dqueries_)) + range * range_elements_;
    const int64_t head_rows = s.query_tiles * kAttentionTile;
    const int64_t first_row = (n * s.heads + key_head * s.group) * head_rows;
    std::fill_n(dqueries + first_row * s.padded_dim, s.group * head_rows * s.padded_dim, C(0));
    for (int64_t tile = s.key_tiles * range / ranges_; tile < s.key_tiles * (range + 1) / ranges_; ++tile) {
      const int64_t first_key = tile * kAttentionTile, rows = std::min(kAttentionTile, s.keys - first_key);
      const int64_t key_place = ((n * s.key_heads + key_head) * s.key_tiles + tile) * kAttentionTile;
      std::fill_n(dkey, kAttentionTile * (s.padded_dim + s.padded_value_dim), C(0));
      for (int64_t g = 0; g < s.group; ++g) {
        const int64_t head = key_head * s.group + g;
        KeepContext context;
        const ScoreRules score_rules = rules(args, n, head, thread, context);
        for (int64_t query_tile = 0; query_tile < s.query_tiles; ++query_tile) {
          const int64_t first = query_tile * kAttentionTile;
          if (attrs_.causal && std::min(first + kAttentionTile, s.queries) <= first_key) continue;
          const int64_t place = first_row + g * head_rows + first;
          functions_.backward(
              {.rules = score_rules,
               .first_query = first,
               .first_key = first_key,
               .query = wide_at(part(args, queries_), place * s.padded_dim),
               .gradient = wide_at(part(args, gradients_), place * s.padded_value_dim),
               .log_sum_exp = wide_at(args.inputs[4], (n * s.heads + head) * s.queries + first),
               .result_dot = wide_at(part(args, dots_), place),
               .key = wide_at(part(args, keys_), key_place * s.padded_dim),
               .key_transposed = wide_at(part(args, keys_transposed_), key_place * s.padded_dim),
               .value_transposed = wide_at(part(args, values_transposed_), key_place * s.padded_value_dim),
               .dim = s.padded_dim,
               .value_dim = s.padded_value_dim,
               .scratch = scratch,
               .dquery = dqueries + place * s.padded_dim,
               .dkey = dkey,
               .dvalue = dvalue});
        }
      }
      functions_.unpack_tile(dkey, s.padded_dim, rows, s.dim, 1,
                             row_at(args.outputs[1], n, s.keys, first_key, s.key_heads, key_head, s.dim),
                             s.key_heads * s.dim);
      functions_.unpack_tile(
          dvalue, s.padded_value_dim, rows, s.value_dim, 1,
          row_at(args.outputs[2], n, s.keys, first_key, s.key_heads, key_head, s.value_dim),
          s.key_heads * s.value_dim);
    }
  }

  template <class C>
  void finish(const LaunchArgs& args) const {
    const Sizes& s = sizes_;
    each_task(s.batch * s.heads * s.query_tiles, [&](int64_t task, int) {
      const int64_t tile = task % s.query_tiles, head = task / s.query_tiles % s.heads,
                    n = task / s.query_tiles / s.heads;
      const int64_t first = tile * kAttentionTile, rows = std::min(kAttentionTile, s.queries - first);
      C* sum = static_cast<C*>(part(args, dqueries_)) + task * kAttentionTile * s.padded_dim;
      for (int64_t range = 1; range < ranges_; ++range)
        for (int64_t i = 0; i < rows * s.padded_dim; ++i) sum[i] += sum[range * range_elements_ + i];
      functions_.unpack_tile(sum, s.padded_dim, rows, s.dim, attrs_.scale,
                             row_at(args.outputs[0], n, s.queries, first, s.heads, head, s.dim),
                             s.heads * s.dim);
    });
  }

  int64_t ranges_;
  size_t queries_, gradients_, dots_, keys_, keys_transposed_, values_transposed_, dqueries_, own_;
  int64_t range_elements_, own_elements_;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kAttention, {.prepare = prepare<AttentionKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kAttentionGrad, {.prepare = prepare<AttentionGradKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
