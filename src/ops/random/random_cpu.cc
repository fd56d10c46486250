// Random numbers on the CPU. float64 and the truncated normal distribution are made number by number.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/random/random.h"
#include "ops/random/random_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::RandomRows;

// --- number by number ------------------------------------------------------------------------------------------

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

// Two doubles a block: make(u0, u1) of two uniform numbers.
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

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// The x in [-2, 2] with normal_cdf(x) = p: Newton's steps from a start that is close already.
double inverse_normal_cdf(double p) {
  double x = 2.5 * (p - 0.5) * (1 + 2.2 * (p - 0.5) * (p - 0.5));
  for (int step = 0; step < 6; ++step) {
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    x = std::clamp(x - (normal_cdf(x) - p) / density, -2.0, 2.0);
  }
  return x;
}

double truncated(double u) {
  static const double low = normal_cdf(-2), high = normal_cdf(2);
  return inverse_normal_cdf(low + u * (high - low));
}

void truncated64(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  pairs(rows, out, begin, end, [](double a, double b) { return std::pair(truncated(a), truncated(b)); });
}

template <class T>
void truncated32(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  each_block(rows, 4, begin, end, [&](int64_t start, int64_t column, const std::array<uint32_t, 4>& w) {
    for (int64_t k = 0; k < 4 && column + k < rows.width; ++k) {
      // The middle of the interval that the upper 24 bits stand for.
      const double u = (static_cast<double>(w[static_cast<size_t>(k)] >> 8) + 0.5) * 0x1p-24;
      static_cast<T*>(out)[start + column + k] = T(static_cast<float>(truncated(u)));
    }
  });
}

// --- kernels ---------------------------------------------------------------------------------------------------

const cpu::RandomTable& table() {
  return cpu::pick_simd(simd_v2::kRandomTable, simd_v3::kRandomTable, simd_v4::kRandomTable);
}

cpu::RandomFunction function_of(const KernelRequest& request) {
  const DType dtype = request.attrs<RandomAttrs>().dtype;
  const auto by_type = [&](cpu::RandomFunction f32, cpu::RandomFunction f64, cpu::RandomFunction bf16, cpu::RandomFunction f16) {
    return dtype == DType::float64 ? f64 : dtype == DType::bfloat16 ? bf16 : dtype == DType::float16 ? f16 : f32;
  };
  const cpu::RandomTable& t = table();
  if (&request.op == &kRandomThreshold) return t.threshold;
  if (&request.op == &kRandomUniform) return by_type(t.uniform32, uniform64, t.uniform_bfloat16, t.uniform_float16);
  if (&request.op == &kRandomNormal) return by_type(t.normal32, normal64, t.normal_bfloat16, t.normal_float16);
  return by_type(truncated32<float>, truncated64, truncated32<bfloat16>, truncated32<float16>);
}

class RandomKernel final : public Kernel {
 public:
  explicit RandomKernel(const KernelRequest& request)
      : attrs_(request.attrs<RandomAttrs>()),
        function_(function_of(request)),
        rows_(attrs_.rows_per_example > 0 ? attrs_.shape[0] : 1),
        width_(rows_ > 0 ? attrs_.shape.size() / rows_ : 0),
        per_block_(attrs_.dtype == DType::float64 ? 2 : 4),
        threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    const int64_t state = *static_cast<const int64_t*>(args.inputs[0]);
    const int64_t example = *static_cast<const int64_t*>(args.inputs[1]);
    const RandomRows rows{.key = random_key(state, attrs_.instance),
                          .first_row = static_cast<uint64_t>(example * attrs_.rows_per_example),
                          .width = width_,
                          .threshold = static_cast<uint32_t>(std::ceil(attrs_.threshold * 0x1p24))};
    constexpr int64_t kBlocksPerThread = 4096;
    const int64_t blocks = rows_ * ((width_ + per_block_ - 1) / per_block_);
    const int threads = static_cast<int>(std::clamp<int64_t>(blocks / kBlocksPerThread, 1, threads_));
    parallel_for(blocks, 16, threads, [&](int64_t begin, int64_t end) { function_(rows, args.outputs[0], begin, end); });
  }

 private:
  RandomAttrs attrs_;
  cpu::RandomFunction function_;
  int64_t rows_, width_, per_block_;
  int threads_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) { return std::make_unique<RandomKernel>(request); }

const RegisterKernel registered[] = {{DeviceKind::cpu, kRandomUniform, {.prepare = prepare}},
                                     {DeviceKind::cpu, kRandomNormal, {.prepare = prepare}},
                                     {DeviceKind::cpu, kRandomTruncatedNormal, {.prepare = prepare}},
                                     {DeviceKind::cpu, kRandomThreshold, {.prepare = prepare}}};

}  // namespace
}  // namespace lockstep
