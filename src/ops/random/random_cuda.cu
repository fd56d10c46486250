// Random numbers on GPUs: the same as on the CPU. float32 numbers agree to the bit, because all of their
// arithmetic is written out here, rounding by rounding.
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/random/random_cuda.h"

namespace lockstep::cuda {
namespace {

using Words = std::array<uint32_t, 4>;

// A float whose operations are never fused.
struct Single {
  float value;
  __device__ Single(float v) : value(v) {}
  friend __device__ Single operator*(Single a, Single b) { return __fmul_rn(a.value, b.value); }
  friend __device__ Single operator+(Single a, Single b) { return __fadd_rn(a.value, b.value); }
  friend __device__ Single operator-(Single a, Single b) { return __fsub_rn(a.value, b.value); }
};
__device__ Single fused(Single a, Single b, Single c) { return __fmaf_rn(a.value, b.value, c.value); }

// The upper `bits` bits of a word as a number in [0, 1).
__device__ float unit(uint32_t word, int bits) {
  return __fmul_rn(static_cast<float>(word >> (32 - bits)), 1.0f / static_cast<float>(1 << bits));
}
__device__ double unit53(uint32_t low, uint32_t high) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

// Of a number in [2^-24, 1]: the polynomial of backends/cpu/simd_math.h.
__device__ Single logarithm(float x) {
  const int bits = __float_as_int(x) - 0x3f3504f3;
  const Single e = static_cast<float>(bits >> 23);
  const Single m = __int_as_float((bits & 0x007fffff) + 0x3f3504f3);
  const Single f = m - 1.0f;
  const Single f2 = f * f;
  const Single a = fused(f, -0.250008089993f, 0.333333167298f);
  const Single b = fused(f, -0.166245962324f, 0.200022859724f);
  const Single c = fused(f, -0.131284036545f, 0.141812140795f);
  const Single d = fused(f, -0.0786020762206f, 0.128814039434f);
  const Single q = fused(f2 * f2, fused(f2, d, c), fused(f2, b, a));
  const Single tail = fused(f2 * f, q, e * 1.42860682030942e-6f);
  return fused(e, 0x1.62e4p-1f, fused(f2, -0.5f, tail) + f);
}

// Box-Muller, as random_cpu_simd.cc does it.
__device__ void box_muller(uint32_t a, uint32_t b, float& x, float& y) {
  const float u = __fadd_rn(unit(a, 24), 0x1p-24f);  // in (0, 1]
  const float radius = __fsqrt_rn((Single(-2.0f) * logarithm(u)).value);
  // A turn is four quarters q and a rest f in [-1/2, 1/2] of a quarter; all of this is exact.
  const Single turn = Single(unit(b, 24)) * 4.0f;
  const Single magic = 0x1.8p23f;
  const Single shifted = turn + magic;
  const Single f = turn - (shifted - magic);
  const int q = __float_as_int(shifted.value);
  const Single f2 = f * f;
  const Single s =
      f * (Single(1.57079632197f) + f2 * (Single(-0.645963478642f) +
                                          f2 * (Single(0.0796802280644f) + f2 * Single(-0.00460217698871f))));
  const Single c =
      Single(1.0f) + f2 * (Single(-1.23370054351f) +
                           f2 * (Single(0.253669247229f) +
                                 f2 * (Single(-0.0208603085029f) + f2 * Single(0.000904060569983f))));
  const bool odd = (q & 1) != 0;
  const int sine_sign = (q & 2) << 30, cosine_sign = ((q + 1) & 2) << 30;
  const float sine = odd ? c.value : s.value, cosine = odd ? s.value : c.value;
  x = __fmul_rn(radius, __int_as_float(__float_as_int(cosine) ^ cosine_sign));
  y = __fmul_rn(radius, __int_as_float(__float_as_int(sine) ^ sine_sign));
}

__device__ void box_muller(double a, double b, double& x, double& y) {
  const double radius = sqrt(-2 * log(a + 0x1p-53));
  x = radius * cospi(2 * b);
  y = radius * sinpi(2 * b);
}

// An element that fell outside of [-2, 2] is drawn again, from blocks that no first draw uses.
__device__ double normal_within_two(uint64_t key, uint64_t row, int64_t column) {
  for (uint64_t attempt = 1;; ++attempt) {
    const Words w = Philox::block(key, row, attempt << 48 | static_cast<uint64_t>(column));
    double z, other;
    box_muller(unit53(w[0], w[1]), unit53(w[2], w[3]), z, other);
    if (fabs(z) <= 2) return z;
  }
}

enum class Kind { uniform, normal, truncated_normal };

template <class T>
struct Floats {
  static constexpr int kCount = std::is_same_v<T, double> ? 2 : 4;
  Kind kind;

  __device__ void make(const Words& w, uint64_t key, uint64_t row, int64_t column, T (&out)[kCount]) const {
    using C = Real<T>;
    C v[kCount];
    if constexpr (std::is_same_v<T, double>) {
      v[0] = unit53(w[0], w[1]), v[1] = unit53(w[2], w[3]);
      if (kind != Kind::uniform) box_muller(v[0], v[1], v[0], v[1]);
    } else if (kind == Kind::uniform) {
      constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, __nv_bfloat16> ? 8 : 11;
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = unit(w[k], kBits);
    } else {
      box_muller(w[0], w[1], v[0], v[1]);
      box_muller(w[2], w[3], v[2], v[3]);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      out[k] = static_cast<T>(v[k]);
      const C rounded = static_cast<C>(out[k]);
      if (kind == Kind::truncated_normal && (rounded > 2 || rounded < -2))
        out[k] = static_cast<T>(static_cast<C>(normal_within_two(key, row, column + k)));
    }
  }
};

struct Thresholds {
  static constexpr int kCount = 4;
  uint32_t threshold;
  __device__ void make(const Words& w, uint64_t, uint64_t, int64_t, bool (&out)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = w[k] >> 8 >= threshold;
  }
};

template <class T>
struct Integers {
  static constexpr int kCount = 2;
  int64_t low;
  uint64_t range;
  __device__ void make(const Words& w, uint64_t, uint64_t, int64_t, T (&out)[2]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint64_t bits = static_cast<uint64_t>(w[2 * k + 1]) << 32 | w[2 * k];
      out[k] = static_cast<T>(static_cast<uint64_t>(low) + (range == 0 ? bits : __umul64hi(bits, range)));
    }
  }
};

template <class Maker, class T>
__global__ void draw(RandomRows source, Maker maker, T* out, int64_t width, int64_t blocks, Divider per_row) {
  constexpr int kCount = Maker::kCount;
  const uint64_t key = source.key(), first_row = source.first_row();
  for (int64_t i = first_index(); i < blocks; i += index_step()) {
    const int64_t row = per_row.quotient(i), block = i - row * per_row.divisor();
    const uint64_t number = first_row + static_cast<uint64_t>(row);
    T elements[kCount];
    maker.make(Philox::block(key, number, static_cast<uint64_t>(block)), key, number, block * kCount,
               elements);
    T* to = out + row * width + block * kCount;
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (block * kCount + k < width) to[k] = elements[k];
  }
}

__global__ void fold_in(const uint64_t* state, const uint64_t* number, uint64_t* out) {
  const Words w = Philox::block(*state, ~uint64_t{1}, *number);
  *out = static_cast<uint64_t>(w[1]) << 32 | w[0];
}

__global__ void permute(const int64_t* state, int64_t instance, Permutation order, int64_t* out,
                        int64_t count) {
  const Permutation keyed = order.with_key(random_key(*state, instance));
  for (int64_t i = first_index(); i < count; i += index_step()) out[i] = keyed(i);
}

class RandomKernel final : public Kernel {
 public:
  explicit RandomKernel(const KernelRequest& request)
      : op_(request.op),
        attrs_(request.attrs<RandomAttrs>()),
        rows_(attrs_.rows_per_example > 0 ? attrs_.shape[0] : 1),
        width_(rows_ > 0 ? attrs_.shape.size() / rows_ : 0) {}

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    if (&op_ == &kRandomThreshold)
      run<bool>(args, Thresholds{threshold_bits(attrs_.threshold)});
    else if (&op_ == &kRandomInteger && attrs_.dtype == DType::int64)
      run<int64_t>(args, Integers<int64_t>{attrs_.low, attrs_.range});
    else if (&op_ == &kRandomInteger)
      run<int32_t>(args, Integers<int32_t>{attrs_.low, attrs_.range});
    else
      dispatch_floats(attrs_.dtype, [&]<class T>() {
        run<T>(args, Floats<T>{&op_ == &kRandomUniform  ? Kind::uniform
                               : &op_ == &kRandomNormal ? Kind::normal
                                                        : Kind::truncated_normal});
      });
    launched();
  }

 private:
  template <class T, class Maker>
  void run(const LaunchArgs& args, const Maker& maker) const {
    const int64_t per_row = ceil_div(width_, Maker::kCount), blocks = rows_ * per_row;
    // Few blocks of threads: the key costs each thread as much as four numbers.
    draw<<<std::min(blocks_for(blocks), 2048u), kThreads, 0, stream_of(args)>>>(
        RandomRows{static_cast<const int64_t*>(args.inputs[0]), static_cast<const int64_t*>(args.inputs[1]),
                   attrs_.instance, attrs_.rows_per_example},
        maker, static_cast<T*>(args.outputs[0]), width_, blocks, Divider(per_row));
  }

  const OpDef& op_;
  RandomAttrs attrs_;
  int64_t rows_, width_;
};

class PermutationKernel final : public Kernel {
 public:
  explicit PermutationKernel(const KernelRequest& request)
      : count_(request.attrs<RandomAttrs>().shape[0]), instance_(request.attrs<RandomAttrs>().instance) {}
  void launch(const LaunchArgs& args) const override {
    if (count_ == 0) return;
    permute<<<std::min(blocks_for(count_), 2048u), kThreads, 0, stream_of(args)>>>(
        static_cast<const int64_t*>(args.inputs[0]), instance_, Permutation(0, count_),
        static_cast<int64_t*>(args.outputs[0]), count_);
    launched();
  }

 private:
  int64_t count_, instance_;
};

class FoldInKernel final : public Kernel {
 public:
  explicit FoldInKernel(const KernelRequest&) {}
  void launch(const LaunchArgs& args) const override {
    fold_in<<<1, 1, 0, stream_of(args)>>>(static_cast<const uint64_t*>(args.inputs[0]),
                                          static_cast<const uint64_t*>(args.inputs[1]),
                                          static_cast<uint64_t*>(args.outputs[0]));
    launched();
  }
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kRandomUniform, {.prepare = prepare<RandomKernel>}},
    {DeviceKind::gpu, kRandomNormal, {.prepare = prepare<RandomKernel>}},
    {DeviceKind::gpu, kRandomTruncatedNormal, {.prepare = prepare<RandomKernel>}},
    {DeviceKind::gpu, kRandomThreshold, {.prepare = prepare<RandomKernel>}},
    {DeviceKind::gpu, kRandomInteger, {.prepare = prepare<RandomKernel>}},
    {DeviceKind::gpu, kRandomPermutation, {.prepare = prepare<PermutationKernel>}},
    {DeviceKind::gpu, kRandomFoldIn, {.prepare = prepare<FoldInKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
