#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/array/array.h"
#include "ops/array/strided_copy_cpu.h"
#include "ops/elementwise/ops.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kAll[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                          DType::int32,   DType::int64,   DType::uint8,    DType::boolean};

Tensor counting(const Shape& shape, DType dtype = DType::int32) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape.size(); ++i) numbers.push_back(static_cast<double>(i % 250));
  return tensor_of(dtype, shape, numbers);
}

bool is_view_of(const Tensor& view, const Tensor& base) {
  return view.impl()->storage == base.impl()->storage;
}

// x[index] by its strides, the slow way.
std::vector<double> elements_by_strides(const Shape& shape, const Strides& strides, int64_t offset,
                                        const std::vector<double>& base) {
  std::vector<double> result;
  for (int64_t i = 0; i < shape.size(); ++i) {
    int64_t rest = i, position = offset;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      position += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    result.push_back(base[static_cast<size_t>(position)]);
  }
  return result;
}

TEST(Reshape, IsAViewWhereMemoryAllows) {
  const Tensor x = counting({4, 6});
  EXPECT_TRUE(is_view_of(reshape(x, {2, 2, 3, 2}), x));
  EXPECT_TRUE(is_view_of(reshape(x, {-1}), x));
  EXPECT_EQ(reshape(x, {3, -1}).shape(), (Shape{3, 8}));
  EXPECT_TRUE(is_view_of(reshape(transpose(x), {3, 2, 4}), x));
  EXPECT_FALSE(is_view_of(reshape(transpose(x), {24}), x));
  EXPECT_EQ(values(reshape(transpose(x), {24})), values(transpose(x)));
}

TEST(Reshape, KeepsRowMajorOrderOfAnyLayout) {
  const Tensor x = counting({4, 6, 5});
  for (const Tensor& y :
       {x, transpose(x), transpose(x, {1, 0, 2}), strided_slice(x, {0, 5, 0}, {4, -7, 5}, {2, -2, 3}),
        broadcast_to(slice(x, {0, 0, 0}, {1, 6, 1}), {4, 6, 5})}) {
    const std::vector<double> flat = values(y);
    EXPECT_EQ(values(reshape(y, {-1})), flat) << y.shape();
    EXPECT_EQ(values(reshape(y, {2, -1, 1})), flat) << y.shape();
    EXPECT_EQ(values(reshape(reshape(y, {-1}), y.shape())), flat);
  }
  EXPECT_EQ(reshape(Tensor::empty(DType::float32, {0, 3}), {3, 0, 2}).shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(reshape(counting({1}), {}).shape(), Shape{});
}

TEST(Reshape, RefusesOtherNumbersOfElements) {
  const Tensor x = counting({4, 6});
  EXPECT_THROW(reshape(x, {5, 5}), Error);
  EXPECT_THROW(reshape(x, {5, -1}), Error);
  EXPECT_THROW(reshape(x, {-1, -1}), Error);
}

TEST(Transpose, ReversesOrPermutes) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(transpose(x).shape(), (Shape{4, 3, 2}));
  const Tensor y = transpose(x, {1, -1, 0});
  EXPECT_EQ(y.shape(), (Shape{3, 4, 2}));
  EXPECT_TRUE(is_view_of(y, x));
  EXPECT_EQ(values(y), elements_by_strides({3, 4, 2}, {4, 1, 12}, 0, values(x)));
  EXPECT_THROW(transpose(x, {0, 1}), Error);
  EXPECT_THROW(transpose(x, {0, 1, 1}), Error);
}

TEST(Slice, TakesRangesWithPythonsRules) {
  const Tensor x = counting({5, 7});
  EXPECT_EQ(values(slice(x, {1, 2}, {2, 3})), (std::vector<double>{9, 10, 11, 16, 17, 18}));
  EXPECT_EQ(slice(x, {1, 2}, {-1, 0}).shape(), (Shape{4, 0}));
  EXPECT_EQ(values(strided_slice(x, {-1, 0}, {-6, 7}, {-2, 3})),
            (std::vector<double>{28, 31, 34, 14, 17, 20, 0, 3, 6}));
  EXPECT_EQ(strided_slice(x, {3, 0}, {1, 100}, {1, 1}).shape(), (Shape{0, 7}));
  EXPECT_THROW(slice(x, {0, 5}, {1, 3}), Error);
  EXPECT_THROW(strided_slice(x, {0, 0}, {5, 7}, {1, 0}), Error);
}

TEST(BroadcastTo, RepeatsWithoutCopying) {
  const Tensor x = counting({3, 1});
  const Tensor y = broadcast_to(x, {2, 3, 4});
  EXPECT_TRUE(is_view_of(y, x));
  EXPECT_EQ(values(y), elements_by_strides({2, 3, 4}, {0, 1, 0}, 0, values(x)));
  EXPECT_THROW(broadcast_to(x, {4, 4}), Error);
}

TEST(BroadcastTo, RefusesMoreThanCanBeCounted) {
  const Shape beyond{int64_t{1} << 40, int64_t{1} << 40};
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what()).find("more bytes than can be counted") != std::string::npos;
    }
    return false;
  };
  const Tensor x = counting({1, 1});
  EXPECT_TRUE(refused([&] { broadcast_to(x, beyond); })) << "a view, of which nothing is allocated";
  EXPECT_TRUE(refused([&] { broadcast_to(x, {int64_t{1} << 40, 0, int64_t{1} << 40}); }));
  EXPECT_THROW(reshape(x, beyond), Error);
}

TEST(ExpandAndSqueeze, AddAndDropDimensions) {
  const Tensor x = counting({3, 1, 2, 1});
  EXPECT_EQ(expand_dims(x, -1).shape(), (Shape{3, 1, 2, 1, 1}));
  EXPECT_EQ(expand_dims(x, 1).shape(), (Shape{3, 1, 1, 2, 1}));
  EXPECT_EQ(squeeze(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(squeeze(x, {-1}).shape(), (Shape{3, 1, 2}));
  EXPECT_THROW(squeeze(x, {0}), Error);
}

// Every way of copying, in every element width, against a copy by index.
TEST(StridedCopy, AnyLayoutOfAnyDtype) {
  struct Case {
    Shape shape;
    Strides source, target;
  };
  const Case cases[] = {
      {{}, {}, {}},
      {{7}, {1}, {1}},
      {{40}, {3}, {1}},
      {{5, 7}, {7, 1}, {7, 1}},
      {{5, 7}, {9, 1}, {7, 1}},      // rows
      {{37, 50}, {1, 37}, {50, 1}},  // transposed
      {{16, 16}, {1, 16}, {16, 1}},
      {{3, 18, 33}, {594, 1, 18}, {594, 33, 1}},
      {{18, 3, 33}, {1, 594, 18}, {99, 33, 1}},
      {{4, 5}, {1, 0}, {5, 1}},  // repeated
      {{4, 5}, {0, 1}, {5, 1}},
      {{4, 5}, {0, 0}, {5, 1}},
      {{4, 5, 6}, {1, 4, 20}, {30, 6, 1}},
      {{6, 5}, {10, 2}, {5, 1}},
      {{6, 5}, {5, 1}, {20, 3}},  // into every third element
      {{2, 1, 3, 1, 4}, {12, 99, 4, 98, 1}, {12, 97, 4, 96, 1}},
      {{0, 3}, {3, 1}, {3, 1}},
  };
  for (const DType dtype : kAll)
    for (const auto& [shape, source, target] : cases) {
      const Tensor from = counting({4096}, dtype);
      for (const int threads : {1, 2}) {
        Tensor to = Tensor::full(dtype, {4096}, 0);
        cpu::StridedCopy(shape, source, target, dtype).run(from.impl()->data(), to.impl()->data(), threads);
        EXPECT_EQ(elements_by_strides(shape, target, 0, values(to)),
                  elements_by_strides(shape, source, 0, values(from)))
            << dtype << shape << source << target;
      }
    }
}

// Rows of every length, and what lies between them.
TEST(StridedCopy, RunsOfAnyLength) {
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::float32, DType::float64})
    for (int64_t n = 1; n <= 300; ++n) {
      const Tensor from = counting({3 * (n + 2)}, dtype), to = Tensor::full(dtype, {3 * (n + 5)}, 99);
      cpu::StridedCopy({3, n}, {n + 2, 1}, {n + 5, 1}, dtype).run(from.impl()->data(), to.impl()->data(), 1);
      std::vector<double> expected(static_cast<size_t>(3 * (n + 5)), 99);
      const std::vector<double> source = values(from);
      for (int64_t row = 0; row < 3; ++row)
        std::copy_n(source.begin() + row * (n + 2), n, expected.begin() + row * (n + 5));
      ASSERT_EQ(values(to), expected) << dtype << " " << n;
    }
}

TEST(StridedCopy, NegativeStridesAndManyThreads) {
  const Tensor x = random_tensor(DType::float32, {300, 500});
  const Tensor back = strided_slice(x, {299, 499}, {-301, -501}, {-1, -1});
  std::vector<double> reversed = values(x);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(values(identity(back)), reversed);
  for (const Tensor& view : {transpose(x), back, transpose(back)}) {
    const Tensor one = run_kernel(kIdentity, {view}, {}, 1).front();
    EXPECT_EQ(values(one), values(view));
    for (const int threads : {2, 3})
      EXPECT_TRUE(same_bits(one, run_kernel(kIdentity, {view}, {}, threads).front()));
  }
}

// The kernels that a compiled plan uses where it wants a copy rather than a view.
TEST(ViewKernels, CopyWhatTheViewWouldShow) {
  const Tensor x = transpose(random_tensor(DType::float32, {6, 10}));
  EXPECT_EQ(values(run_kernel(kTranspose, {x}, TransposeAttrs{{1, 0}}, 1).front()), values(transpose(x)));
  EXPECT_EQ(values(run_kernel(kReshape, {x}, ShapeAttrs{{5, 12}}, 1).front()), values(x));
  EXPECT_EQ(values(run_kernel(kStridedSlice, {x}, StridedSliceAttrs{{8, 1}, {4, 2}, {-2, 3}}, 1).front()),
            values(strided_slice(x, {8, 1}, {0, 6}, {-2, 3})));
  EXPECT_EQ(values(run_kernel(kBroadcastTo, {x}, ShapeAttrs{{3, 10, 6}}, 1).front()),
            values(broadcast_to(x, {3, 10, 6})));
}

}  // namespace
}  // namespace lockstep
