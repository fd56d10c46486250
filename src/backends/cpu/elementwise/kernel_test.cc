#include "backends/cpu/elementwise/kernel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu::testing {
namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 129, 300};

// A mix of dtypes, masks, a division and transcendental functions.
ScalarProgram mixed_program() {
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t h = w.cast(w.input(DType::bfloat16), DType::float32);
  const int16_t m = w.input(DType::boolean);
  const int16_t n = w.cast(w.input(DType::int32), DType::float32);
  const int16_t d = w.cast(w.input(DType::float64), DType::float32);
  const int16_t u = w.cast(w.input(DType::uint8), DType::float32);
  const int16_t g = w.cast(w.input(DType::float16), DType::float32);
  const int16_t e = w.op(Opcode::exp, {w.op(Opcode::mul, {x, w.constant(DType::float32, 0.25)})});
  const int16_t t = w.op(Opcode::tanh, {w.op(Opcode::add, {h, n})});
  const int16_t s = w.op(Opcode::sin, {w.op(Opcode::sub, {d, u})});
  const int16_t q = w.op(Opcode::div, {t, w.op(Opcode::add, {e, w.constant(DType::float32, 1)})});
  const int16_t chosen = w.op(Opcode::select, {m, q, s});
  w.output(w.op(Opcode::maximum, {chosen, g}));
  w.output(w.cast(chosen, DType::bfloat16));
  w.output(w.op(Opcode::less, {chosen, x}));
  w.output(w.cast(w.op(Opcode::add, {chosen, g}), DType::float64));
  w.output(w.cast(u, DType::uint8));
  return w.program;
}

TEST(ElementwiseKernel, AnElementsResultDoesNotDependOnItsPosition) {
  const ScalarProgram program = mixed_program();
  constexpr int64_t kMost = 300;
  const std::vector<Array> inputs = interesting_inputs(program, kMost, 7);
  for (const Implementation implementation : everything()) {
    const std::vector<Array> whole = run(program, inputs, kMost, implementation);
    for (const int64_t size : kSizes) {
      // The same elements, pushed to other places by leaving some out in front.
      const int64_t skip = kMost - size;
      std::vector<Array> part;
      for (const Array& a : inputs) {
        part.emplace_back(a.dtype(), size);
        std::memcpy(part.back().data(),
                    static_cast<const std::byte*>(const_cast<Array&>(a).data()) +
                        static_cast<size_t>(skip) * size_of(a.dtype()),
                    static_cast<size_t>(size) * size_of(a.dtype()));
      }
      const std::vector<Array> got = run(program, part, size, implementation);
      for (size_t o = 0; o < got.size(); ++o)
        for (int64_t i = 0; i < size; ++i)
          ASSERT_TRUE(got[o].same(i, whole[o], skip + i))
              << name(implementation) << " output " << o << " size " << size;
    }
  }
}

TEST(ElementwiseKernel, NeverWritesBeyondAnOutput) {
  const ScalarProgram program = mixed_program();
  for (const Implementation implementation : everything()) {
    for (const int64_t size : kSizes) {
      std::vector<Array> inputs = interesting_inputs(program, size, 17);
      std::vector<Array> outputs;
      std::vector<void*> operands;
      for (Array& a : inputs) operands.push_back(a.data());
      for (const int16_t output : program.outputs) {
        const DType dtype = program.instructions[static_cast<size_t>(output)].dtype;
        outputs.emplace_back(dtype, size + 64);
        std::memset(outputs.back().data(), 0x5a, static_cast<size_t>(size + 64) * size_of(dtype));
      }
      for (Array& a : outputs) operands.push_back(a.data());
      const std::vector<Strides> in(inputs.size(), Strides{1});
      const std::vector<Strides> out(outputs.size(), Strides{1});
      prepare_elementwise(program, Shape{size}, in, out, 1, {.implementation = implementation})
          ->run(operands.data());
      for (Array& a : outputs) {
        const auto* bytes = static_cast<const uint8_t*>(a.data());
        for (size_t i = static_cast<size_t>(size) * size_of(a.dtype()); i < static_cast<size_t>(size + 64);
             ++i)
          ASSERT_EQ(bytes[i], 0x5a) << name(implementation) << " size " << size << ' ' << a.dtype();
      }
    }
  }
}

// A page between two that may not be touched.
class GuardedPage {
 public:
  GuardedPage() {
    data_ = static_cast<std::byte*>(mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
    EXPECT_EQ(mprotect(data_ + kPage, kPage, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedPage() { munmap(data_, 3 * kPage); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;

  std::byte* begin() { return data_ + kPage; }
  std::byte* end() { return data_ + 2 * kPage; }

 private:
  static constexpr size_t kPage = 4096;
  std::byte* data_;
};

TEST(ElementwiseKernel, NeverTouchesMemoryBesideItsOperands) {
  const ScalarProgram program = mixed_program();
  const size_t inputs = program.inputs.size();
  std::vector<size_t> sizes;
  for (const DType dtype : program.inputs) sizes.push_back(size_of(dtype));
  for (const int16_t output : program.outputs)
    sizes.push_back(size_of(program.instructions[static_cast<size_t>(output)].dtype));
  std::vector<GuardedPage> pages(sizes.size());
  for (const Implementation implementation : everything()) {
    for (const int64_t stride : {1, 3, -1, -2}) {
      for (const int64_t size : kSizes) {
        const auto span = static_cast<size_t>((size - 1) * std::abs(stride) + 1);
        if (span * 8 > 4096) continue;
        // Once with the operands against the guard after them, once against the one before.
        for (const bool at_end : {false, true}) {
          std::vector<void*> operands;
          for (size_t i = 0; i < sizes.size(); ++i) {
            std::byte* lowest = at_end ? pages[i].end() - span * sizes[i] : pages[i].begin();
            operands.push_back(stride > 0 ? lowest : lowest + (span - 1) * sizes[i]);
          }
          // One operand forwards at least, so that the loop is not simply turned around.
          const std::vector<Strides> in(inputs, Strides{stride});
          std::vector<Strides> out(sizes.size() - inputs, Strides{stride});
          if (stride == -1) {
            out[0] = Strides{1};
            operands[inputs] = at_end ? pages[inputs].end() - span * sizes[inputs] : pages[inputs].begin();
          }
          prepare_elementwise(program, Shape{size}, in, out, 1, {.implementation = implementation})
              ->run(operands.data());
        }
      }
    }
  }
}

// Runs a program over operands with any strides and checks each element against the same program
// run over the gathered elements.
void expect_strided(const ScalarProgram& program, const Shape& shape, const std::vector<Strides>& in,
                    const std::vector<Strides>& out, const ElementwiseOptions& options, int threads = 1) {
  const int64_t count = shape.size();
  // Room on both sides of the first element, so that negative strides stay inside.
  const auto reach = [&](const Strides& strides) {
    int64_t low = 0;
    int64_t high = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t distance = strides[d] * (shape[d] - 1);
      (distance < 0 ? low : high) += distance;
    }
    return std::pair{-low, high + 1};
  };
  const auto offset = [&](const Strides& strides, int64_t element) {
    int64_t result = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      result += element % shape[d] * strides[d];
      element /= shape[d];
    }
    return result;
  };

  std::vector<Array> memory;
  std::vector<Array> gathered;
  std::vector<void*> operands;
  for (size_t i = 0; i < in.size(); ++i) {
    const auto [before, after] = reach(in[i]);
    memory.push_back(interesting(program.inputs[i], before + after, static_cast<uint32_t>(i) + 40));
    gathered.emplace_back(program.inputs[i], count);
    for (int64_t e = 0; e < count; ++e) {
      const size_t size = size_of(program.inputs[i]);
      std::memcpy(
          static_cast<std::byte*>(gathered[i].data()) + static_cast<size_t>(e) * size,
          static_cast<std::byte*>(memory[i].data()) + static_cast<size_t>(before + offset(in[i], e)) * size,
          size);
    }
  }
  for (size_t o = 0; o < out.size(); ++o) {
    const auto [before, after] = reach(out[o]);
    memory.emplace_back(program.instructions[static_cast<size_t>(program.outputs[o])].dtype, before + after);
  }
  std::vector<int64_t> before;
  for (size_t i = 0; i < memory.size(); ++i) {
    const Strides& strides = i < in.size() ? in[i] : out[i - in.size()];
    before.push_back(reach(strides).first);
    operands.push_back(static_cast<std::byte*>(memory[i].data()) +
                       static_cast<size_t>(before.back()) * size_of(memory[i].dtype()));
  }
  prepare_elementwise(program, shape, in, out, threads, options)->run(operands.data());

  const std::vector<Array> expected = run(program, gathered, count, options.implementation);
  for (size_t o = 0; o < out.size(); ++o)
    for (int64_t e = 0; e < count; ++e)
      ASSERT_TRUE(memory[in.size() + o].same(before[in.size() + o] + offset(out[o], e), expected[o], e))
          << name(options.implementation) << " output " << o << " element " << e << " of " << shape;
}

TEST(ElementwiseKernel, FollowsStridesOfEveryKind) {
  const ScalarProgram program = mixed_program();
  const size_t inputs = program.inputs.size();
  const size_t outputs = program.outputs.size();
  std::mt19937 random(5);
  struct Case {
    Shape shape;
    std::vector<Strides> choices;
  };
  const Case cases[] = {
      {{37}, {{1}, {0}, {3}, {-1}, {-2}}},
      {{5, 19}, {{19, 1}, {0, 1}, {1, 0}, {0, 0}, {1, 5}, {-19, 1}, {40, 2}, {-19, -1}}},
      {{3, 4, 17}, {{68, 17, 1}, {0, 17, 1}, {17, 0, 1}, {1, 3, 12}, {68, -17, 1}, {0, 1, 0}, {1, 0, 0}}},
      {{2, 3, 1, 2, 1, 3, 2, 5},
       {{360, 120, 60, 30, 30, 10, 5, 1}, {0, 1, 0, 0, 0, 3, 0, 1}, {1, 2, 0, 6, 0, 12, 36, 72}}},
  };
  for (const Implementation implementation : everything()) {
    for (const Case& c : cases) {
      for (int trial = 0; trial < 12; ++trial) {
        std::vector<Strides> in;
        std::vector<Strides> out;
        for (size_t i = 0; i < inputs; ++i) in.push_back(c.choices[random() % c.choices.size()]);
        while (out.size() < outputs) {
          const Strides& strides = c.choices[random() % c.choices.size()];
          bool repeats = false;
          for (int d = 0; d < c.shape.rank(); ++d) repeats |= strides[d] == 0 && c.shape[d] > 1;
          if (!repeats) out.push_back(strides);
        }
        expect_strided(program, c.shape, in, out, {.implementation = implementation});
      }
    }
  }
}

TEST(ElementwiseKernel, AddsABiasToRows) {
  const ScalarProgram program = one_op(Opcode::add, DType::float32);
  for (const Implementation implementation : everything())
    for (const int64_t columns : {1, 3, 10, 16, 40})
      expect_strided(program, Shape{32, columns}, {{columns, 1}, {0, 1}}, {{columns, 1}},
                     {.implementation = implementation});
}

TEST(ElementwiseKernel, WalksTransposedOperandsInTiles) {
  const ScalarProgram program = one_op(Opcode::sub, DType::float32);
  for (const Implementation implementation : everything()) {
    expect_strided(program, Shape{40, 53}, {{53, 1}, {1, 40}}, {{53, 1}}, {.implementation = implementation});
    expect_strided(program, Shape{3, 40, 53}, {{0, 53, 1}, {1, 3, 120}}, {{2120, 53, 1}},
                   {.implementation = implementation});
    expect_strided(program, Shape{2, 400, 330}, {{132000, 330, 1}, {132000, 1, 400}}, {{132000, 330, 1}},
                   {.implementation = implementation}, 3);
  }
}

TEST(ElementwiseKernel, ScalarsAndEmptyShapesWork) {
  const ScalarProgram program = one_op(Opcode::sub, DType::float32);
  float a = 5;
  float b = 3;
  float result = 0;
  void* operands[] = {&a, &b, &result};
  for (const Implementation implementation : everything()) {
    result = 0;
    const std::vector<Strides> none(2, Strides{});
    prepare_elementwise(program, Shape{}, none, {none.data(), 1}, 1, {.implementation = implementation})
        ->run(operands);
    EXPECT_EQ(result, 2);
    result = 0;
    const std::vector<Strides> ones(2, Strides{1, 1, 1});
    prepare_elementwise(program, Shape{1, 1, 1}, ones, {ones.data(), 1}, 1,
                        {.implementation = implementation})
        ->run(operands);
    EXPECT_EQ(result, 2);
    result = 7;
    const std::vector<Strides> empty(2, Strides{3, 1});
    prepare_elementwise(program, Shape{0, 3}, empty, {empty.data(), 1}, 2, {.implementation = implementation})
        ->run(operands);
    EXPECT_EQ(result, 7);
  }
}

TEST(ElementwiseKernel, RunsInPlace) {
  // Two outputs onto two inputs crosswise, with a third reading of the first operand at the end.
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t y = w.input(DType::float32);
  w.output(w.op(Opcode::sub, {x, y}));
  w.output(w.op(Opcode::mul, {w.again(0), w.again(1)}));
  for (const Implementation implementation : everything()) {
    for (const int64_t size : kSizes) {
      std::vector<Array> arrays = interesting_inputs(w.program, size, 23);
      const std::vector<Array> expected = run(w.program, arrays, size, implementation);
      void* operands[] = {arrays[0].data(), arrays[1].data(), arrays[1].data(), arrays[0].data()};
      const std::vector<Strides> strides(2, Strides{1});
      prepare_elementwise(w.program, Shape{size}, strides, strides, 1, {.implementation = implementation})
          ->run(operands);
      EXPECT_TRUE(arrays[1] == expected[0]) << name(implementation) << ' ' << size;
      EXPECT_TRUE(arrays[0] == expected[1]) << name(implementation) << ' ' << size;
    }
  }
}

TEST(ElementwiseKernel, RunsInPlaceWhenOneArrayIsSeveralInputs) {
  const ScalarProgram program = one_op(Opcode::add, DType::float32);
  for (const Implementation implementation : everything()) {
    Array array = interesting(DType::float32, 300, 3);
    const std::vector<Array> expected = run(program, {array, array}, 300, implementation);
    void* operands[] = {array.data(), array.data(), array.data()};
    const std::vector<Strides> strides(2, Strides{1});
    prepare_elementwise(program, Shape{300}, strides, {strides.data(), 1}, 1,
                        {.implementation = implementation})
        ->run(operands);
    EXPECT_TRUE(array == expected[0]) << name(implementation);
  }
}

TEST(ElementwiseKernel, TwoThreadsGiveTheBitsOfOne) {
  const ScalarProgram program = mixed_program();
  const int64_t size = 100003;
  const std::vector<Array> inputs = interesting_inputs(program, size, 31);
  for (const Implementation implementation : everything()) {
    const std::vector<Array> one = run(program, inputs, size, implementation, 1);
    const std::vector<Array> two = run(program, inputs, size, implementation, 2);
    for (size_t o = 0; o < one.size(); ++o) EXPECT_TRUE(one[o] == two[o]) << name(implementation);
  }
}

TEST(ElementwiseKernel, SharesLinesAndColumnsBetweenThreads) {
  const ScalarProgram program = one_op(Opcode::mul, DType::float32);
  for (const Implementation implementation : everything()) {
    expect_strided(program, Shape{700, 300}, {{300, 1}, {0, 1}}, {{300, 1}},
                   {.implementation = implementation}, 3);
    expect_strided(program, Shape{3, 70001}, {{70001, 1}, {1, 0}}, {{70001, 1}},
                   {.implementation = implementation}, 3);
    expect_strided(program, Shape{40, 5, 1000}, {{5000, 1000, 1}, {0, 1000, 1}}, {{1000, 40000, 1}},
                   {.implementation = implementation}, 3);
  }
}

TEST(ElementwiseKernel, KeepsSmallWorkOnOneThread) {
  const ScalarProgram program = one_op(Opcode::add, DType::float32);
  const std::vector<Strides> strides(2, Strides{1});
  const auto threads = [&](int64_t size) {
    return prepare_elementwise(program, Shape{size}, strides, {strides.data(), 1}, 4)->threads();
  };
  EXPECT_EQ(threads(1000), 1);
  EXPECT_EQ(threads(10'000'000), 4);
}

TEST(ElementwiseKernel, StreamingStoresGiveTheSameBits) {
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t y = w.input(DType::float32);
  const int16_t sum = w.op(Opcode::add, {x, y});
  w.output(sum);
  w.output(w.cast(sum, DType::bfloat16));
  w.output(w.cast(sum, DType::float16));
  w.output(w.op(Opcode::less, {x, y}));
  w.output(w.cast(sum, DType::uint8));
  w.output(w.cast(sum, DType::float64));
  const std::vector<Strides> in(2, Strides{1});
  const std::vector<Strides> out(6, Strides{1});
  constexpr int64_t kSize = 1000;
  const std::vector<Array> inputs = interesting_inputs(w.program, kSize, 37);
  for (const Implementation implementation : compiled()) {
    const std::vector<Array> expected = run(w.program, inputs, kSize, implementation);
    // All outputs aligned, all off by the same number of elements, and off by different ones.
    for (const int64_t shift : {0, 5, -1}) {
      std::vector<Array> arrays = inputs;
      std::vector<std::vector<std::byte>> memory;
      std::vector<void*> operands{arrays[0].data(), arrays[1].data()};
      for (size_t o = 0; o < expected.size(); ++o) {
        const size_t element = size_of(expected[o].dtype());
        memory.emplace_back(kSize * element + 1024);
        const auto address = reinterpret_cast<uintptr_t>(memory.back().data());
        const size_t aligned = (64 - address % 64) % 64;
        operands.push_back(memory.back().data() + aligned +
                           (shift < 0 ? o : static_cast<size_t>(shift)) * element);
      }
      prepare_elementwise(w.program, Shape{kSize}, in, out, 1,
                          {.implementation = implementation, .streaming = Streaming::always})
          ->run(operands.data());
      for (size_t o = 0; o < expected.size(); ++o) {
        Array got(expected[o].dtype(), kSize);
        std::memcpy(got.data(), operands[2 + o], kSize * size_of(got.dtype()));
        EXPECT_TRUE(got == expected[o]) << name(implementation) << " output " << o << " shift " << shift;
      }
    }
    const ScalarProgram add = one_op(Opcode::add, DType::float32);
    for (size_t shift = 0; shift < 16; ++shift) {
      std::vector<Array> arrays = inputs;
      alignas(64) float memory[kSize + 32];
      std::fill(std::begin(memory), std::end(memory), 77.0f);
      void* operands[] = {arrays[0].data(), arrays[1].data(), memory + shift};
      prepare_elementwise(add, Shape{kSize}, in, {out.data(), 1}, 1,
                          {.implementation = implementation, .streaming = Streaming::always})
          ->run(operands);
      Array got(DType::float32, kSize);
      std::memcpy(got.data(), memory + shift, kSize * sizeof(float));
      EXPECT_TRUE(got == expected[0]) << name(implementation) << " shift " << shift;
      for (size_t i = 0; i < kSize + 32; ++i) {
        if (i >= shift && i < shift + kSize) continue;
        EXPECT_EQ(memory[i], 77.0f) << i;
      }
    }
    expect_strided(w.program, Shape{9, 64}, {{64, 1}, {0, 1}}, std::vector<Strides>(6, Strides{64, 1}),
                   {.implementation = implementation, .streaming = Streaming::always});
  }
}

TEST(ElementwiseKernel, SpillsWhatDoesNotFitIntoRegisters) {
  // Everything is computed first and used last, in both kinds of registers.
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t y = w.input(DType::float32);
  std::vector<int16_t> values;
  std::vector<int16_t> masks;
  for (int i = 0; i < 60; ++i) {
    values.push_back(w.op(
        Opcode::add, {i % 2 ? values.back() : x, w.op(Opcode::mul, {y, w.constant(DType::float32, i)})}));
    masks.push_back(w.op(Opcode::less, {values.back(), x}));
  }
  int16_t sum = w.constant(DType::float32, 0);
  for (size_t i = values.size(); i-- > 0;) {
    const int16_t chosen = w.op(Opcode::select, {masks[i], values[i], w.op(Opcode::neg, {values[59 - i]})});
    sum = w.op(Opcode::add, {sum, chosen});
  }
  w.output(sum);
  w.output(masks[3]);
  const std::vector<Array> inputs = interesting_inputs(w.program, 333, 41);
  const std::vector<Array> expected = run(w.program, inputs, 333, Implementation::interpreter);
  for (const Implementation implementation : compiled()) {
    const std::vector<Array> got = run(w.program, inputs, 333, implementation);
    for (size_t o = 0; o < 2; ++o) EXPECT_TRUE(got[o] == expected[o]) << name(implementation) << ' ' << o;
  }
}

TEST(ElementwiseKernel, ValuesThatARowSharesAreComputedOncePerRow) {
  // More of them than registers, from operands that are scalars along the columns.
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t s = w.input(DType::float32);
  const int16_t h = w.cast(w.input(DType::float16), DType::float32);
  const int16_t b = w.input(DType::boolean);
  const int16_t d = w.cast(w.input(DType::float64), DType::float32);
  int16_t sum = x;
  std::vector<int16_t> shared;
  for (int i = 0; i < 40; ++i) {
    const int16_t f =
        w.op(i % 3 ? Opcode::tanh : Opcode::cos, {w.op(Opcode::add, {s, w.constant(DType::float32, i)})});
    shared.push_back(w.op(Opcode::select, {b, w.op(Opcode::mul, {f, h}), w.op(Opcode::sub, {f, d})}));
  }
  const int16_t row_mask = w.op(Opcode::less, {s, h});
  for (const int16_t value : shared) sum = w.op(Opcode::add, {w.op(Opcode::mul, {sum, x}), value});
  w.output(sum);
  w.output(w.op(Opcode::logical_and, {row_mask, w.op(Opcode::less, {x, s})}));
  for (const Implementation implementation : everything()) {
    expect_strided(w.program, Shape{7, 50}, {{50, 1}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}, {{50, 1}, {50, 1}},
                   {.implementation = implementation});
    expect_strided(w.program, Shape{7, 50}, {{50, 1}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}, {{50, 1}, {50, 1}},
                   {.implementation = implementation});
  }
}

TEST(ElementwiseKernel, ManyOperandsWork) {
  Writer w;
  int16_t sum = -1;
  std::vector<int16_t> inputs;
  for (int i = 0; i < 100; ++i) inputs.push_back(w.input(i % 3 ? DType::float32 : DType::bfloat16));
  for (const int16_t input : inputs) {
    const int16_t value = w.cast(input, DType::float32);
    sum = sum < 0 ? value : w.op(Opcode::add, {sum, value});
    if (w.program.outputs.size() < 28) w.output(sum);
  }
  w.output(sum);
  w.program.outputs.resize(28);
  ASSERT_EQ(w.program.inputs.size() + w.program.outputs.size(), 128u);
  const std::vector<Array> arrays = interesting_inputs(w.program, 77, 43);
  const std::vector<Array> expected = run(w.program, arrays, 77, Implementation::interpreter);
  for (const Implementation implementation : compiled()) {
    const std::vector<Array> got = run(w.program, arrays, 77, implementation);
    for (size_t o = 0; o < got.size(); ++o)
      EXPECT_TRUE(got[o] == expected[o]) << name(implementation) << ' ' << o;
  }
  const std::vector<Strides> in(100, Strides{3, 1});
  std::vector<Strides> mixed;
  for (size_t i = 0; i < 100; ++i)
    mixed.push_back(i % 4 ? Strides{20, 1} : i % 8 ? Strides{1, 0} : Strides{1, 5});
  for (const Implementation implementation : everything())
    expect_strided(w.program, Shape{5, 20}, mixed, std::vector<Strides>(28, Strides{20, 1}),
                   {.implementation = implementation});
}

TEST(ElementwiseKernel, ReportsWhatItWasGivenWhenItRefuses) {
  const ScalarProgram program = one_op(Opcode::add, DType::float32);
  const std::vector<Strides> good(2, Strides{1});
  const std::vector<Strides> short_rank(2, Strides{});
  const std::vector<Strides> repeated(1, Strides{0});
  EXPECT_THROW(prepare_elementwise(program, Shape{4}, {good.data(), 1}, {good.data(), 1}, 1), Error);
  EXPECT_THROW(prepare_elementwise(program, Shape{4}, short_rank, {good.data(), 1}, 1), Error);
  EXPECT_THROW(prepare_elementwise(program, Shape{4}, good, repeated, 1), Error);
  ScalarProgram broken = program;
  broken.instructions[2].args[1] = 2;
  EXPECT_THROW(prepare_elementwise(broken, Shape{4}, good, {good.data(), 1}, 1), Error);
  broken = program;
  broken.outputs[0] = 9;
  EXPECT_THROW(prepare_elementwise(broken, Shape{4}, good, {good.data(), 1}, 1), Error);
}

TEST(ElementwiseKernel, PicksTheWidestInstructionSet) {
  const std::vector<Strides> strides(2, Strides{1});
  const auto chosen = [&](DType dtype, Implementation implementation) {
    return std::string(prepare_elementwise(one_op(Opcode::add, dtype), Shape{4}, strides, {strides.data(), 1},
                                           1, {.implementation = implementation})
                           ->implementation());
  };
  const std::optional<jit::Isa> best = jit::best_isa();
  const std::string expected = !best ? "interpreter" : *best == jit::Isa::avx512 ? "jit:avx512" : "jit:avx2";
  EXPECT_EQ(chosen(DType::float32, Implementation::automatic), expected);
  EXPECT_EQ(chosen(DType::float32, Implementation::interpreter), "interpreter");
  if (jit::is_supported(jit::Isa::avx2)) {
    EXPECT_EQ(chosen(DType::int64, Implementation::avx2), "interpreter");
  }
}

}  // namespace
}  // namespace lockstep::cpu::testing
