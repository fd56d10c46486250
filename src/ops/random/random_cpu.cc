// Random numbers on the CPU. float64, integers, and what a truncated distribution rejects, is made number by
// number.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/random/random.h"
#include "ops/random/random_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::RandomRows;

const cpu::RandomTable& table() {
  return cpu::pick_simd(simd_v2::kRandomTable, simd_v3::kRandomTable, simd_v4::kRandomTable);
}

// --- number by number --------------------------------------------------------------------------------------

double unit53(uint32_t low, uint32_t high) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

// f(row, column, words) for blocks of `per_block` elements.
template <class F>
void each_block(const RandomRows& rows, int64_t per_block, int64_t begin, int64_t end, F&& f) {
  const int64_t blocks_per_row = (rows.width + per_block - 1) / per_block;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i / blocks_per_row;
    const int64_t block = i % blocks_per_row;
    f(row * rows.width, block * per_block,
      Philox::block(rows.key, rows.first_row + static_cast<uint64_t>(row), static_cast<uint64_t>(block)));
  }
}

// Two doubles per block: make(u0, u1) of two uniform numbers.
template <class Make>
void pairs(const RandomRows& rows, void* out, int64_t begin, int64_t end, Make&& make) {
  auto* y = static_cast<double*>(out);
  each_block(rows, 2, begin, end, [&](int64_t start, int64_t column, const std::array<uint32_t, 4>& w) {
    const auto [first, second] = make(unit53(w[0], w[1]), unit53(w[2], w[3]));
    y[start + column] = first;
    if (column + 1 < rows.width) y[start + column + 1] = second;
  });
}

void uniform64(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  pairs(rows, out, begin, end, [](double a, double b) { return std::pair(a, b); });
}

void normal64(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  pairs(rows, out, begin, end, [](double a, double b) {
    const double radius = std::sqrt(-2 * std::log(a + 0x1p-53));
    const double angle = 2 * std::numbers::pi * b;
    return std::pair(radius * std::cos(angle), radius * std::sin(angle));
  });
}

// An element that fell outside of [-2, 2] is drawn again, from blocks that no first draw uses: the attempt
// stands in the upper bits of the counter's low half.
double normal_within_two(const RandomRows& rows, int64_t row, int64_t column) {
  for (uint64_t attempt = 1;; ++attempt) {
    const auto w = Philox::block(rows.key, rows.first_row + static_cast<uint64_t>(row),
                                 attempt << 48 | static_cast<uint64_t>(column));
    const double z = std::sqrt(-2 * std::log(unit53(w[0], w[1]) + 0x1p-53)) *
                     std::cos(2 * std::numbers::pi * unit53(w[2], w[3]));
    if (std::abs(z) <= 2) return z;
  }
}

template <class T>
void truncated_normal(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  const int64_t per_block = std::is_same_v<T, double> ? 2 : 4;
  const cpu::RandomTable& t = table();
  if constexpr (std::is_same_v<T, double>)
    normal64(rows, out, begin, end);
  else
    (std::is_same_v<T, float>      ? t.normal32
     : std::is_same_v<T, BFloat16> ? t.normal_bfloat16
                                   : t.normal_float16)(rows, out, begin, end);
  const int64_t blocks_per_row = (rows.width + per_block - 1) / per_block;
  for (int64_t block = begin; block < end;) {
    const int64_t row = block / blocks_per_row;
    const int64_t last = std::min(end, (row + 1) * blocks_per_row);
    const int64_t first_column = (block - row * blocks_per_row) * per_block;
    const int64_t last_column = std::min(rows.width, (last - row * blocks_per_row) * per_block);
    T* y = static_cast<T*>(out) + row * rows.width;
    for (int64_t i = first_column; i < last_column; ++i) {
      using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
      if (std::abs(static_cast<C>(y[i])) > 2)
        y[i] = static_cast<T>(static_cast<C>(normal_within_two(rows, row, i)));
    }
    block = last;
  }
}

// Two 64-bit integers per block.
template <class T>
void integers(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  __extension__ using Wide = unsigned __int128;
  auto* y = static_cast<T*>(out);
  const auto number = [&](uint32_t low, uint32_t high) {
    const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
    const uint64_t scaled = rows.range == 0 ? bits : static_cast<uint64_t>(Wide{bits} * rows.range >> 64);
    return static_cast<T>(static_cast<uint64_t>(rows.low) + scaled);
  };
  each_block(rows, 2, begin, end, [&](int64_t start, int64_t column, const std::array<uint32_t, 4>& w) {
    y[start + column] = number(w[0], w[1]);
    if (column + 1 < rows.width) y[start + column + 1] = number(w[2], w[3]);
  });
}

// --- kernels -----------------------------------------------------------------------------------------------

cpu::RandomFunction function_of(const KernelRequest& request) {
  const DType dtype = request.attrs<RandomAttrs>().dtype;
  const auto by_type = [&](cpu::RandomFunction f32, cpu::RandomFunction f64, cpu::RandomFunction bf16,
                           cpu::RandomFunction f16) {
    return dtype == DType::float64    ? f64
           : dtype == DType::bfloat16 ? bf16
           : dtype == DType::float16  ? f16
                                      : f32;
  };
  const cpu::RandomTable& t = table();
  if (&request.op == &kRandomThreshold) return t.threshold;
  if (&request.op == &kRandomInteger) return dtype == DType::int64 ? integers<int64_t> : integers<int32_t>;
  if (&request.op == &kRandomUniform)
    return by_type(t.uniform32, uniform64, t.uniform_bfloat16, t.uniform_float16);
  if (&request.op == &kRandomNormal)
    return by_type(t.normal32, normal64, t.normal_bfloat16, t.normal_float16);
  return by_type(truncated_normal<float>, truncated_normal<double>, truncated_normal<BFloat16>,
                 truncated_normal<Float16>);
}

class RandomKernel final : public Kernel {
 public:
  explicit RandomKernel(const KernelRequest& request)
      : attrs_(request.attrs<RandomAttrs>()),
        function_(function_of(request)),
        rows_(attrs_.rows_per_example > 0 ? attrs_.shape[0] : 1),
        width_(rows_ > 0 ? attrs_.shape.size() / rows_ : 0),
        per_block_(attrs_.dtype == DType::float64 || is_integer(attrs_.dtype) ? 2 : 4),
        threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    const int64_t state = *static_cast<const int64_t*>(args.inputs[0]);
    const int64_t example = *static_cast<const int64_t*>(args.inputs[1]);
    const RandomRows rows{.key = random_key(state, attrs_.instance),
                          .first_row = static_cast<uint64_t>(example * attrs_.rows_per_example),
                          .width = width_,
                          .threshold = static_cast<uint32_t>(std::ceil(attrs_.threshold * 0x1p24)),
                          .low = attrs_.low,
                          .range = attrs_.range};
    constexpr int64_t kBlocksPerThread = 4096;
    const int64_t blocks = rows_ * ((width_ + per_block_ - 1) / per_block_);
    const int threads = static_cast<int>(std::clamp<int64_t>(blocks / kBlocksPerThread, 1, threads_));
    parallel_for(blocks, 16, threads,
                 [&](int64_t begin, int64_t end) { function_(rows, args.outputs[0], begin, end); });
  }

 private:
  RandomAttrs attrs_;
  cpu::RandomFunction function_;
  int64_t rows_, width_, per_block_;
  int threads_;
};

class PermutationKernel final : public Kernel {
 public:
  explicit PermutationKernel(const KernelRequest& request)
      : count_(request.attrs<RandomAttrs>().shape[0]),
        instance_(request.attrs<RandomAttrs>().instance),
        threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    if (count_ == 0) return;
    constexpr int64_t kPerThread = 16384;
    const TabledPermutation order =
        random_permutation(*static_cast<const int64_t*>(args.inputs[0]), count_, instance_);
    auto* out = static_cast<int64_t*>(args.outputs[0]);
    parallel_for(count_, kPerThread, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = order(i);
    });
  }

 private:
  int64_t count_, instance_;
  int threads_;
};

class FoldInKernel final : public Kernel {
 public:
  void launch(const LaunchArgs& args) const override {
    const auto number = [](const void* data) {
      return static_cast<uint64_t>(*static_cast<const int64_t*>(data));
    };
    // No instance of an op, and no seed, has this high half of the counter.
    const auto block = Philox::block(number(args.inputs[0]), ~uint64_t{1}, number(args.inputs[1]));
    *static_cast<int64_t*>(args.outputs[0]) =
        static_cast<int64_t>(static_cast<uint64_t>(block[1]) << 32 | block[0]);
  }
};

std::unique_ptr<Kernel> prepare_fold_in(const KernelRequest&) { return std::make_unique<FoldInKernel>(); }

std::unique_ptr<Kernel> prepare_permutation(const KernelRequest& request) {
  return std::make_unique<PermutationKernel>(request);
}

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<RandomKernel>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kRandomUniform, {.prepare = prepare}},
    {DeviceKind::cpu, kRandomNormal, {.prepare = prepare}},
    {DeviceKind::cpu, kRandomTruncatedNormal, {.prepare = prepare}},
    {DeviceKind::cpu, kRandomThreshold, {.prepare = prepare}},
    {DeviceKind::cpu, kRandomInteger, {.prepare = prepare}},
    {DeviceKind::cpu, kRandomPermutation, {.prepare = prepare_permutation, .thread_invariant = true}},
    {DeviceKind::cpu, kRandomFoldIn, {.prepare = prepare_fold_in, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
