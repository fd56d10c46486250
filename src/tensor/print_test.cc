// What is expected here was printed by NumPy, inside the frame that TensorFlow puts around it.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "lockstep/tensor/tensor.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

Tensor counting(const Shape& shape) {
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < shape.size(); ++i) numbers.push_back(static_cast<int32_t>(i));
  return Tensor::from(numbers, shape);
}

TEST(Print, Floats) {
  EXPECT_EQ(Tensor::from<float>({1, 2, 3, 4}, {2, 2}).to_string(),
            "tf.Tensor(\n"
            "[[1. 2.]\n"
            " [3. 4.]], shape=(2, 2), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({1, 2.5f, -3.125f}, {3}).to_string(),
            "tf.Tensor([ 1.     2.5   -3.125], shape=(3,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({0.1f, 1.0f / 3, 100}, {3}).to_string(),
            "tf.Tensor([  0.1          0.33333334 100.        ], shape=(3,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({1e-5f, 1, 12345}, {3}).to_string(),
            "tf.Tensor([1.0000e-05 1.0000e+00 1.2345e+04], shape=(3,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({1e10f, -2.5e-7f}, {2}).to_string(),
            "tf.Tensor([ 1.0e+10 -2.5e-07], shape=(2,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({0.97797549f, 2.3777678e-3f, 26.638956f}, {3}).to_string(),
            "tf.Tensor([9.7797549e-01 2.3777678e-03 2.6638956e+01], shape=(3,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({nan, 1, -infinity}, {3}).to_string(),
            "tf.Tensor([ nan   1. -inf], shape=(3,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({nan, infinity}, {2}).to_string(),
            "tf.Tensor([nan inf], shape=(2,), dtype=float32)");
  EXPECT_EQ(Tensor::from<float>({0, -0.0f}, {2}).to_string(),
            "tf.Tensor([ 0. -0.], shape=(2,), dtype=float32)");
  EXPECT_EQ(Tensor::from<double>({1.0 / 3, 2.0 / 3}, {2}).to_string(),
            "tf.Tensor([0.33333333 0.66666667], shape=(2,), dtype=float64)");
  EXPECT_EQ(Tensor::from<double>({1e300, 1e-300}, {2}).to_string(),
            "tf.Tensor([1.e+300 1.e-300], shape=(2,), dtype=float64)");
  EXPECT_EQ(Tensor::from<double>({123456.789, 1000.5}, {1, 2}).to_string(),
            "tf.Tensor([[123456.789   1000.5  ]], shape=(1, 2), dtype=float64)");
  EXPECT_EQ(Tensor::from<Float16>({Float16(0.1f), Float16(2), Float16(19248)}, {3}).to_string(),
            "tf.Tensor([9.998e-02 2.000e+00 1.925e+04], shape=(3,), dtype=float16)");
}

TEST(Print, IntegersAndBooleans) {
  EXPECT_EQ(Tensor::from<int64_t>({1, -20, 300}, {3}).to_string(),
            "tf.Tensor([  1 -20 300], shape=(3,), dtype=int64)");
  EXPECT_EQ(Tensor::from<uint8_t>({1, 20, 255, 0}, {2, 2}).to_string(),
            "tf.Tensor(\n"
            "[[  1  20]\n"
            " [255   0]], shape=(2, 2), dtype=uint8)");
  EXPECT_EQ(Tensor::from(std::vector<bool>{true, false, true, true}, {2, 2}).to_string(),
            "tf.Tensor(\n"
            "[[ True False]\n"
            " [ True  True]], shape=(2, 2), dtype=bool)");
}

TEST(Print, Scalars) {
  EXPECT_EQ(Tensor::scalar(3.0f).to_string(), "tf.Tensor(3.0, shape=(), dtype=float32)");
  EXPECT_EQ(Tensor::scalar(0.1f).to_string(), "tf.Tensor(0.1, shape=(), dtype=float32)");
  EXPECT_EQ(Tensor::scalar(0.1).to_string(), "tf.Tensor(0.1, shape=(), dtype=float64)");
  EXPECT_EQ(Tensor::scalar(1e-5f).to_string(), "tf.Tensor(1e-05, shape=(), dtype=float32)");
  EXPECT_EQ(Tensor::scalar(-1.5e20).to_string(), "tf.Tensor(-1.5e+20, shape=(), dtype=float64)");
  EXPECT_EQ(Tensor::scalar(1e15).to_string(), "tf.Tensor(1000000000000000.0, shape=(), dtype=float64)");
  EXPECT_EQ(Tensor::scalar(infinity).to_string(), "tf.Tensor(inf, shape=(), dtype=float32)");
  EXPECT_EQ(Tensor::scalar<int32_t>(-7).to_string(), "tf.Tensor(-7, shape=(), dtype=int32)");
  EXPECT_EQ(Tensor::scalar<uint8_t>(200).to_string(), "tf.Tensor(200, shape=(), dtype=uint8)");
  EXPECT_EQ(Tensor::scalar(true).to_string(), "tf.Tensor(True, shape=(), dtype=bool)");
}

TEST(Print, LongLinesAndLargeTensors) {
  EXPECT_EQ(Tensor::empty(DType::float32, {0}).to_string(), "tf.Tensor([], shape=(0,), dtype=float32)");
  EXPECT_EQ(Tensor::empty(DType::float32, {2, 0, 3}).to_string(),
            "tf.Tensor([], shape=(2, 0, 3), dtype=float32)");
  EXPECT_EQ(counting({2, 2, 3}).to_string(),
            "tf.Tensor(\n"
            "[[[ 0  1  2]\n"
            "  [ 3  4  5]]\n"
            "\n"
            " [[ 6  7  8]\n"
            "  [ 9 10 11]]], shape=(2, 2, 3), dtype=int32)");
  EXPECT_EQ(counting({2, 30}).to_string(),
            "tf.Tensor(\n"
            "[[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            "  24 25 26 27 28 29]\n"
            " [30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53\n"
            "  54 55 56 57 58 59]], shape=(2, 30), dtype=int32)");
  EXPECT_EQ(counting({1001}).to_string(),
            "tf.Tensor([   0    1    2 ...  998  999 1000], shape=(1001,), dtype=int32)");
  EXPECT_EQ(counting({40, 30}).to_string(),
            "tf.Tensor(\n"
            "[[   0    1    2 ...   27   28   29]\n"
            " [  30   31   32 ...   57   58   59]\n"
            " [  60   61   62 ...   87   88   89]\n"
            " ...\n"
            " [1110 1111 1112 ... 1137 1138 1139]\n"
            " [1140 1141 1142 ... 1167 1168 1169]\n"
            " [1170 1171 1172 ... 1197 1198 1199]], shape=(40, 30), dtype=int32)");
  EXPECT_EQ(counting({2, 7, 100}).to_string(),
            "tf.Tensor(\n"
            "[[[   0    1    2 ...   97   98   99]\n"
            "  [ 100  101  102 ...  197  198  199]\n"
            "  [ 200  201  202 ...  297  298  299]\n"
            "  ...\n"
            "  [ 400  401  402 ...  497  498  499]\n"
            "  [ 500  501  502 ...  597  598  599]\n"
            "  [ 600  601  602 ...  697  698  699]]\n"
            "\n"
            " [[ 700  701  702 ...  797  798  799]\n"
            "  [ 800  801  802 ...  897  898  899]\n"
            "  [ 900  901  902 ...  997  998  999]\n"
            "  ...\n"
            "  [1100 1101 1102 ... 1197 1198 1199]\n"
            "  [1200 1201 1202 ... 1297 1298 1299]\n"
            "  [1300 1301 1302 ... 1397 1398 1399]]], shape=(2, 7, 100), dtype=int32)");
}

TEST(Print, BfloatsHaveTheFewestDigitsThatNameThem) {
  EXPECT_EQ(Tensor::from<BFloat16>({BFloat16(0.1f), BFloat16(2), BFloat16(-1.0f / 3)}, {3}).to_string(),
            "tf.Tensor([ 0.1    2.    -0.334], shape=(3,), dtype=bfloat16)");
  EXPECT_EQ(Tensor::scalar(BFloat16(3)).to_string(), "tf.Tensor(3.0, shape=(), dtype=bfloat16)");
}

TEST(Print, ViewsSymbolsAndNone) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(make_view(*x.impl(), {DType::int32, {3, 2}}, {1, 3}, 0).to_string(),
            "tf.Tensor(\n"
            "[[0 3]\n"
            " [1 4]\n"
            " [2 5]], shape=(3, 2), dtype=int32)");
  EXPECT_EQ(make_symbolic({DType::float32, {2, 3}}, {.trace = 1, .node = 0, .output = 0}).to_string(),
            "Tensor(symbolic, shape=(2, 3), dtype=float32)");
  EXPECT_EQ(Tensor().to_string(), "Tensor(none)");
  std::ostringstream out;
  out << Tensor::scalar<int32_t>(1);
  EXPECT_EQ(out.str(), "tf.Tensor(1, shape=(), dtype=int32)");
}

}  // namespace
}  // namespace lockstep
