#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/nn/cross_entropy.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

double tolerance(DType dtype) {
  return dtype == DType::float32    ? 3e-6
         : dtype == DType::float64  ? 1e-12
         : dtype == DType::bfloat16 ? 2e-2
                                    : 3e-3;
}

Tensor random_labels(int64_t rows, int64_t classes, DType dtype) {
  std::mt19937 engine(7);
  std::vector<double> labels;
  for (int64_t i = 0; i < rows; ++i)
    labels.push_back(static_cast<double>(engine() % static_cast<unsigned>(classes)));
  return tensor_of(dtype, {rows}, labels);
}

struct Reference {
  std::vector<double> loss, gradient;  // the gradient of each row's own loss
};

Reference reference(const Tensor& logits, const Tensor& labels) {
  const auto x = values(logits), label = values(labels);
  const auto n = static_cast<size_t>(logits.shape()[-1]);
  Reference r;
  for (size_t row = 0; row < label.size(); ++row) {
    const double* v = x.data() + row * n;
    const double max = *std::max_element(v, v + n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(v[i] - max);
    const auto k = static_cast<size_t>(label[row]);
    r.loss.push_back(std::log(sum) + max - v[k]);
    for (size_t i = 0; i < n; ++i) r.gradient.push_back(std::exp(v[i] - max) / sum - (i == k ? 1 : 0));
  }
  return r;
}

TEST(SparseCrossEntropy, LossAndGradientAgreeWithDoublePrecision) {
  for (const DType dtype : kFloats)
    for (const DType label_type : {DType::int32, DType::int64})
      for (const int64_t classes : {1, 2, 10, 16, 17, 64, 1000, 3000})
        for (const int64_t rows : {1, 5, 16, 37}) {
          const Tensor logits = random_tensor(dtype, {rows, classes});
          const Tensor labels = random_labels(rows, classes, label_type);
          const Reference expected = reference(logits, labels);
          const TensorList forward = run_kernel(kSparseCrossEntropy, {logits, labels}, {}, 1);
          const Tensor ones = Tensor::full(dtype, {rows}, 1);
          const Tensor gradient =
              run_kernel(kSparseCrossEntropyGrad, {logits, labels, forward[1], ones}, {}, 1).front();
          const auto loss = values(forward[0]);
          for (size_t i = 0; i < loss.size(); ++i)
            ASSERT_NEAR(loss[i], expected.loss[i], tolerance(dtype) * (1 + std::abs(expected.loss[i]) / 4))
                << logits.spec();
          const auto d = values(gradient);
          for (size_t i = 0; i < d.size(); ++i)
            ASSERT_NEAR(d[i], expected.gradient[i], tolerance(dtype)) << logits.spec() << " at " << i;
        }
}

TEST(SparseCrossEntropy, LargeLogitsKeepTheirPrecision) {
  const Tensor logits = tensor_of(DType::float32, {2, 3}, {1e4, 1e4 + 1, 1e4 - 2, -3e38, 0, 3e38});
  const Tensor labels = Tensor::from<int32_t>({0, 2}, {2});
  const Reference expected = reference(logits, labels);
  GradientTape tape;
  tape.watch(logits);
  const Tensor loss = sparse_softmax_cross_entropy_with_logits(labels, logits);
  const auto gradient = values(tape.gradient(loss, logits));
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(values(loss)[i], expected.loss[i], 1e-6);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(gradient[i], expected.gradient[i], 1e-6);
}

TEST(SparseCrossEntropy, BitsDoNotDependOnThreadsOrOtherRows) {
  const Tensor logits = random_tensor(DType::float32, {300, 131});
  const Tensor labels = random_labels(300, 131, DType::int64);
  const Tensor d = random_tensor(DType::float32, {300}, 9);
  const TensorList one = run_kernel(kSparseCrossEntropy, {logits, labels}, {}, 1);
  const TensorList two = run_kernel(kSparseCrossEntropy, {logits, labels}, {}, 2);
  EXPECT_TRUE(same_bits(one[0], two[0]) && same_bits(one[1], two[1]));
  EXPECT_TRUE(same_bits(run_kernel(kSparseCrossEntropyGrad, {logits, labels, one[1], d}, {}, 1).front(),
                        run_kernel(kSparseCrossEntropyGrad, {logits, labels, one[1], d}, {}, 2).front()));
  const Tensor part =
      sparse_softmax_cross_entropy_with_logits(slice(labels, {37}, {50}), slice(logits, {37, 0}, {50, 131}));
  EXPECT_TRUE(same_bits(part, slice(one[0], {37}, {50})));
}

// Rows of few classes have code of their own: classes that cannot be, enough for the code of longer rows,
// change no bit.
TEST(SparseCrossEntropy, RowsOfFewClassesHaveTheBitsOfLongerOnes) {
  constexpr int64_t kRows = 39, kMore = 4;
  for (const DType dtype : kFloats)
    for (const int64_t classes : {2, 3, 4}) {
      const Tensor few = random_tensor(dtype, {kRows, classes}, 3), dloss = random_tensor(dtype, {kRows}, 4);
      const Tensor many =
          concat({few, Tensor::full(dtype, {kRows, kMore}, -std::numeric_limits<double>::infinity())}, 1);
      for (const DType label_dtype : {DType::int32, DType::int64}) {
        const Tensor labels = random_labels(kRows, classes, label_dtype);
        const TensorList a = run_kernel(kSparseCrossEntropy, {few, labels}, {}, 2),
                         b = run_kernel(kSparseCrossEntropy, {many, labels}, {}, 1);
        EXPECT_TRUE(same_bits(a[0], b[0])) << dtype << ", " << classes << " classes";
        EXPECT_TRUE(same_bits(a[1], b[1])) << dtype << ", " << classes << " classes";
        const Tensor da = run_kernel(kSparseCrossEntropyGrad, {few, labels, a[1], dloss}, {}, 2)[0],
                     db = run_kernel(kSparseCrossEntropyGrad, {many, labels, b[1], dloss}, {}, 1)[0];
        EXPECT_TRUE(same_bits(da, slice(db, {0, 0}, {kRows, classes})))
            << dtype << ", " << classes << " classes";
      }
    }
}

TEST(SparseCrossEntropy, MoreDimensionsAndNone) {
  const Tensor logits = random_tensor(DType::float32, {2, 3, 4});
  const Tensor labels = Tensor::from<int32_t>({0, 1, 2, 3, 2, 1}, {2, 3});
  const Tensor loss = sparse_softmax_cross_entropy_with_logits(labels, logits);
  EXPECT_EQ(loss.shape(), (Shape{2, 3}));
  EXPECT_TRUE(same_bits(reshape(loss, {6}), sparse_softmax_cross_entropy_with_logits(
                                                reshape(labels, {6}), reshape(logits, {6, 4}))));
  EXPECT_EQ(
      sparse_softmax_cross_entropy_with_logits(Tensor::scalar<int32_t>(1), random_tensor(DType::float32, {4}))
          .shape(),
      Shape{});
  EXPECT_EQ(sparse_softmax_cross_entropy_with_logits(Tensor::empty(DType::int32, {0}),
                                                     Tensor::empty(DType::float32, {0, 4}))
                .size(),
            0);
}

TEST(SparseCrossEntropy, ALabelThatIsNoClassIsNamed) {
  const Tensor logits = random_tensor(DType::float32, {2, 3, 4});
  for (const int32_t wrong : {-1, 4}) {
    const Tensor labels = Tensor::from<int32_t>({0, 1, 2, 3, wrong, 9}, {2, 3});
    try {
      sparse_softmax_cross_entropy_with_logits(labels, logits);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(e.message(), HasSubstr("position (1, 1) is " + std::to_string(wrong)));
      EXPECT_THAT(e.message(), HasSubstr("4 classes"));
    }
  }
}

TEST(SparseCrossEntropy, RefusesWrongOperands) {
  const Tensor logits = random_tensor(DType::float32, {2, 4});
  EXPECT_THROW(sparse_softmax_cross_entropy_with_logits(logits, logits), Error);
  EXPECT_THROW(sparse_softmax_cross_entropy_with_logits(Tensor::from<int32_t>({1, 2, 3}, {3}), logits),
               Error);
  EXPECT_THROW(sparse_softmax_cross_entropy_with_logits(Tensor::from<int32_t>({1, 2}, {2}),
                                                        Tensor::from<int32_t>({1, 2}, {2, 1})),
               Error);
}

TEST(SparseCrossEntropy, SecondDerivatives) {
  const Tensor logits = random_tensor(DType::float64, {3, 4});
  const Tensor labels = Tensor::from<int32_t>({0, 3, 2}, {3});
  const Tensor weight = random_tensor(DType::float64, {3, 4}, 5);
  const auto first = [&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    return reduce_sum(tape.gradient(square(sparse_softmax_cross_entropy_with_logits(labels, x)), x) * weight);
  };
  GradientTape outer;
  outer.watch(logits);
  const Tensor value = first(logits);
  const auto second = values(outer.gradient(value, logits));
  for (size_t i = 0; i < second.size(); ++i) {
    auto up = values(logits), down = up;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    const double slope = (first(tensor_of(DType::float64, {3, 4}, up)).item<double>() -
                          first(tensor_of(DType::float64, {3, 4}, down)).item<double>()) /
                         2e-5;
    EXPECT_NEAR(second[i], slope, 1e-7 * (1 + std::abs(slope))) << i;
  }
}

TEST(CrossEntropy, DenseLabelsAgreeWithSparseOnes) {
  const Tensor logits = random_tensor(DType::float64, {5, 7});
  const Tensor labels = random_labels(5, 7, DType::int32);
  GradientTape tape({.persistent = true});
  tape.watch(logits);
  const Tensor sparse = sparse_softmax_cross_entropy_with_logits(labels, logits);
  const Tensor dense = softmax_cross_entropy_with_logits(one_hot(labels, 7, DType::float64), logits);
  const auto a = values(sparse), b = values(dense);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
  const auto da = values(tape.gradient(sparse, logits)), db = values(tape.gradient(dense, logits));
  for (size_t i = 0; i < da.size(); ++i) EXPECT_NEAR(da[i], db[i], 1e-12);
}

}  // namespace
}  // namespace lockstep
