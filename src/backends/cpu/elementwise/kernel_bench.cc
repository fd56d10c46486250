// Elementwise kernels against what bounds them: a copy of the memory for cheap programs, a loop
// written by hand for dear ones. Prints medians of pairs taken in turn, so that a machine that
// speeds up or slows down meanwhile moves both alike.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "backends/cpu/elementwise/jit.h"
#include "backends/cpu/elementwise/kernel_testing.h"
#include "base/parallel.h"

namespace {

using namespace lockstep;       // NOLINT
using namespace lockstep::cpu;  // NOLINT
using cpu::testing::Implementation;
using cpu::testing::Opcode;
using cpu::testing::ScalarProgram;
using cpu::testing::Streaming;
using cpu::testing::Writer;

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float[], Free>;

Floats allocate(int64_t size, float value) {
  Floats result(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>((size + 15) / 16 * 64))));
  if (!result) throw std::bad_alloc();
  for (int64_t i = 0; i < size; ++i)
    result[static_cast<size_t>(i)] = value + 1e-3f * static_cast<float>(i % 1000);
  return result;
}

double seconds(const std::function<void()>& f, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Prints both times and the median of their ratios.
void compare(const std::string& what, const std::function<void()>& ours, const std::function<void()>& bound,
             int pairs = 31) {
  ours();
  bound();
  const int repeats = std::max(1, static_cast<int>(1e-3 / std::max(seconds(bound, 1), 1e-9)));
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    a.push_back(seconds(ours, repeats));
    b.push_back(seconds(bound, repeats));
    ratios.push_back(a.back() / b.back());
  }
  std::printf("%-52s %12.3f %12.3f %8.3f\n", what.c_str(), median(a) * 1e6, median(b) * 1e6, median(ratios));
}

// x, eight times added to, multiplied or cut off.
ScalarProgram chain() {
  Writer w;
  int16_t x = w.input(DType::float32);
  for (int i = 0; i < 8; ++i) {
    const int16_t c = w.constant(DType::float32, 0.5 + 0.1 * i);
    const Opcode ops[] = {Opcode::add, Opcode::mul, Opcode::maximum};
    x = w.op(ops[i % 3], {x, c});
  }
  w.output(x);
  return w.program;
}

// Three inputs, one output, eight operations.
ScalarProgram chain_of_three() {
  Writer w;
  const int16_t a = w.input(DType::float32);
  const int16_t b = w.input(DType::float32);
  const int16_t c = w.input(DType::float32);
  int16_t x = w.op(Opcode::add, {a, b});
  x = w.op(Opcode::mul, {x, c});
  x = w.op(Opcode::maximum, {x, a});
  x = w.op(Opcode::add, {x, c});
  x = w.op(Opcode::mul, {x, b});
  x = w.op(Opcode::maximum, {x, b});
  x = w.op(Opcode::add, {x, a});
  x = w.op(Opcode::mul, {x, c});
  w.output(x);
  return w.program;
}

struct AdamFactors {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float rate = 1e-3f;
  float epsilon = 1e-7f;
};

// w, m, v, g and the factors as scalar operands; w, m and v are written in place.
ScalarProgram adam() {
  Writer p;
  const int16_t w = p.input(DType::float32);
  const int16_t m = p.input(DType::float32);
  const int16_t v = p.input(DType::float32);
  const int16_t g = p.input(DType::float32);
  const int16_t beta1 = p.input(DType::float32);
  const int16_t beta2 = p.input(DType::float32);
  const int16_t rate = p.input(DType::float32);
  const int16_t epsilon = p.input(DType::float32);
  const int16_t one = p.constant(DType::float32, 1);
  const int16_t rest1 = p.op(Opcode::sub, {one, beta1});
  const int16_t rest2 = p.op(Opcode::sub, {one, beta2});
  const int16_t new_m = p.op(Opcode::add, {p.op(Opcode::mul, {m, beta1}), p.op(Opcode::mul, {g, rest1})});
  const int16_t square = p.op(Opcode::mul, {g, g});
  const int16_t new_v =
      p.op(Opcode::add, {p.op(Opcode::mul, {v, beta2}), p.op(Opcode::mul, {square, rest2})});
  const int16_t root = p.op(Opcode::add, {p.op(Opcode::sqrt, {new_v}), epsilon});
  const int16_t step = p.op(Opcode::div, {p.op(Opcode::mul, {new_m, rate}), root});
  p.output(p.op(Opcode::sub, {w, step}));
  p.output(new_m);
  p.output(new_v);
  return p.program;
}

__attribute__((target("avx512f"), optimize("O3"))) void adam_by_hand(float* w, float* m, float* v,
                                                                     const float* g, int64_t size,
                                                                     const AdamFactors& f) {
  const __m512 beta1 = _mm512_set1_ps(f.beta1);
  const __m512 beta2 = _mm512_set1_ps(f.beta2);
  const __m512 rest1 = _mm512_set1_ps(1 - f.beta1);
  const __m512 rest2 = _mm512_set1_ps(1 - f.beta2);
  const __m512 rate = _mm512_set1_ps(f.rate);
  const __m512 epsilon = _mm512_set1_ps(f.epsilon);
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 gradient = _mm512_loadu_ps(g + i);
    const __m512 new_m =
        _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(m + i), beta1), _mm512_mul_ps(gradient, rest1));
    const __m512 square = _mm512_mul_ps(gradient, gradient);
    const __m512 new_v =
        _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(v + i), beta2), _mm512_mul_ps(square, rest2));
    const __m512 root = _mm512_add_ps(_mm512_maskz_sqrt_ps(0xffff, new_v), epsilon);
    const __m512 step = _mm512_div_ps(_mm512_mul_ps(new_m, rate), root);
    _mm512_storeu_ps(w + i, _mm512_sub_ps(_mm512_loadu_ps(w + i), step));
    _mm512_storeu_ps(m + i, new_m);
    _mm512_storeu_ps(v + i, new_v);
  }
}

void bench_memory_bound(int threads) {
  constexpr int64_t kSize = int64_t{64} << 18;  // 64 MiB of floats
  const Floats a = allocate(kSize, 1);
  const Floats b = allocate(kSize, 2);
  const Floats c = allocate(kSize, 3);
  const Floats result = allocate(kSize, 0);
  const auto copy = [&](const float* from) {
    parallel_for(kSize, 4096, threads, [&](int64_t begin, int64_t end) {
      std::memcpy(result.get() + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(float));
    });
  };
  const std::vector<Strides> strides(3, Strides{1});
  const std::string suffix = ", " + std::to_string(threads) + " thread" + (threads > 1 ? "s" : "");
  for (const Streaming streaming : {Streaming::automatic, Streaming::never}) {
    const std::string stores = streaming == Streaming::never ? ", plain stores" : "";
    const auto kernel = prepare_elementwise(chain(), Shape{kSize}, {strides.data(), 1}, {strides.data(), 1},
                                            threads, {.streaming = streaming});
    void* operands[] = {a.get(), result.get()};
    compare(
        "8 ops, 64 MiB in, 64 MiB out / copy" + suffix + stores, [&] { kernel->run(operands); },
        [&] { copy(a.get()); });
  }
  const auto kernel =
      prepare_elementwise(chain_of_three(), Shape{kSize}, strides, {strides.data(), 1}, threads);
  void* operands[] = {a.get(), b.get(), c.get(), result.get()};
  compare(
      "8 ops, 192 MiB in, 64 MiB out / two copies" + suffix, [&] { kernel->run(operands); },
      [&] {
        copy(a.get());
        copy(b.get());
      });
}

void bench_adam() {
  constexpr int64_t kSize = 100'000 / 16 * 16;
  Floats arrays[4];
  for (int i = 0; i < 4; ++i) arrays[i] = allocate(kSize, 0.1f * static_cast<float>(i + 1));
  AdamFactors factors;
  std::vector<Strides> in(4, Strides{1});
  in.resize(8, Strides{0});
  const std::vector<Strides> out(3, Strides{1});
  const auto kernel = prepare_elementwise(adam(), Shape{kSize}, in, out, 1);
  void* operands[] = {arrays[0].get(), arrays[1].get(), arrays[2].get(), arrays[3].get(),
                      &factors.beta1,  &factors.beta2,  &factors.rate,   &factors.epsilon,
                      arrays[0].get(), arrays[1].get(), arrays[2].get()};
  compare(
      "Adam over 100k / AVX-512 intrinsics", [&] { kernel->run(operands); },
      [&] {
        adam_by_hand(arrays[0].get(), arrays[1].get(), arrays[2].get(), arrays[3].get(), kSize, factors);
      },
      101);
}

void bench_functions() {
  constexpr int64_t kSize = 8192;
  const Floats x = allocate(kSize, 0.3f);
  const Floats y = allocate(kSize, 1.7f);
  const Floats result = allocate(kSize, 0);
  const std::vector<Strides> strides(2, Strides{1});
  for (const Opcode op :
       {Opcode::add, Opcode::div, Opcode::sqrt, Opcode::exp, Opcode::log, Opcode::expm1, Opcode::log1p,
        Opcode::tanh, Opcode::erf, Opcode::sin, Opcode::cos, Opcode::pow, Opcode::mod}) {
    const ScalarProgram program = cpu::testing::one_op(op, DType::float32);
    const size_t inputs = program.inputs.size();
    const auto prepare = [&](Implementation implementation) {
      return prepare_elementwise(program, Shape{kSize}, {strides.data(), inputs}, {strides.data(), 1}, 1,
                                 {.implementation = implementation});
    };
    const auto compiled = prepare(Implementation::automatic);
    const auto interpreted = prepare(Implementation::interpreter);
    std::vector<void*> operands{x.get(), y.get()};
    operands.resize(inputs);
    operands.push_back(result.get());
    compare(
        std::string(name(op)) + " over 8192 / interpreter", [&] { compiled->run(operands.data()); },
        [&] { interpreted->run(operands.data()); }, 15);
  }
}

void bench_small() {
  const Floats x = allocate(320, 1);
  const Floats bias = allocate(10, 1);
  const Floats result = allocate(320, 0);
  const ScalarProgram program = cpu::testing::one_op(Opcode::add, DType::float32);
  const std::vector<Strides> in = {Strides{10, 1}, Strides{0, 1}};
  const std::vector<Strides> out = {Strides{10, 1}};
  void* operands[] = {x.get(), bias.get(), result.get()};
  const auto kernel = prepare_elementwise(program, Shape{32, 10}, in, out, 2);
  compare(
      "add a bias to 32 x 10 / plain loop", [&] { kernel->run(operands); },
      [&] {
        for (size_t r = 0; r < 32; ++r)
          for (size_t c = 0; c < 10; ++c) result[r * 10 + c] = x[r * 10 + c] + bias[c];
        asm volatile("" : : "r"(result.get()) : "memory");
      });
  compare(
      "prepare and run that / run",
      [&] {
        prepare_elementwise(program, Shape{32, 10}, in, out, 2)->run(operands);
      },
      [&] { kernel->run(operands); });
}

// Where a second thread begins to pay.
void bench_threads() {
  for (const int64_t size : {4096, 16384, 32768, 65536, 131072, 262144, 1048576}) {
    const Floats x = allocate(size, 1);
    const Floats result = allocate(size, 0);
    const std::vector<Strides> strides(1, Strides{1});
    void* operands[] = {x.get(), result.get()};
    const auto one = prepare_elementwise(chain(), Shape{size}, strides, strides, 1);
    const auto two = prepare_elementwise(chain(), Shape{size}, strides, strides, 2);
    compare(
        "8 ops over " + std::to_string(size) + ", up to 2 threads (" + std::to_string(two->threads()) +
            ") / 1",
        [&] { two->run(operands); }, [&] { one->run(operands); });
  }
}

}  // namespace

int main() {
  const auto best = jit::best_isa();
  std::printf("code: %s\n\n%-52s %12s %12s %8s\n",
              !best                       ? "interpreter"
              : *best == jit::Isa::avx512 ? "AVX-512"
                                          : "AVX2",
              "kernel / bound", "kernel us", "bound us", "ratio");
  bench_memory_bound(1);
  bench_memory_bound(2);
  if (jit::is_supported(jit::Isa::avx512)) bench_adam();
  bench_functions();
  bench_small();
  bench_threads();
}
