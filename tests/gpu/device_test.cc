// Memory, copies and placement on GPUs.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "gpu/gpu.h"
#include "lockstep/execute/function.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

using GpuDevice = Gpu;

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.f);
  return values;
}

TEST_F(GpuDevice, IsListedWithItsDetails) {
  const auto gpus = config::list_physical_devices("GPU");
  const config::DeviceDetails details = config::get_device_details(gpus[0]);
  EXPECT_FALSE(details.device_name.empty());
  EXPECT_THAT(details.uuid, HasSubstr("GPU-"));
  EXPECT_GE(details.compute_capability.first, 8);
  EXPECT_GT(details.memory, int64_t{1} << 30);
  EXPECT_EQ(config::list_logical_devices("GPU").size(), static_cast<size_t>(kLogicalGpus));
  EXPECT_EQ(current_device().name(), "/GPU:0");
}

TEST_F(GpuDevice, ElementsCrossAndComeBack) {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{3000001}}) {
    const auto values = numbers(count);
    const Tensor there = Tensor::from(values, {static_cast<int64_t>(count)});
    EXPECT_EQ(there.device().kind(), DeviceKind::gpu);
    EXPECT_EQ(there.to_vector<float>(), values);
    EXPECT_EQ(there.to(cpu()).to_vector<float>(), values);
    EXPECT_EQ(there.to(gpu(1)).to_vector<float>(), values);
    EXPECT_EQ(there.to(cpu()).to(gpu(2)).to_vector<float>(), values);
  }
}

TEST_F(GpuDevice, ViewsAreReadInTheirOrder) {
  const Tensor x = Tensor::from(numbers(24), {4, 6});
  const Tensor view = transpose(x);
  EXPECT_EQ(view.to_vector<float>(), view.to(cpu()).to_vector<float>());
  EXPECT_EQ(view.to_vector<float>()[1], 6.f);
  EXPECT_EQ(view.to(gpu(1)).to_vector<float>(), view.to_vector<float>());
}

TEST_F(GpuDevice, FillsEveryType) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int32,
                            DType::int64, DType::uint8, DType::boolean}) {
    const Tensor filled = Tensor::full(dtype, {1001}, 1.0, gpu());
    const Tensor expected = Tensor::full(dtype, {1001}, 1.0, cpu());
    dispatch(dtype, [&]<class T>() { EXPECT_EQ(filled.to_vector<T>(), expected.to_vector<T>()) << dtype; });
  }
}

TEST_F(GpuDevice, MemoryIsCountedAndComesBack) {
  const int64_t before = gpu().memory_info().current;
  {
    const Tensor x = Tensor::empty(DType::float32, {1 << 20}, gpu());
    EXPECT_EQ(gpu().memory_info().current, before + (4 << 20));
    EXPECT_GE(gpu().memory_info().peak, before + (4 << 20));
  }
  EXPECT_EQ(gpu().memory_info().current, before);
}

TEST_F(GpuDevice, OutOfMemorySaysWhoHoldsWhat) {
  try {
    Tensor::empty(DType::float32, {int64_t{1} << 31}, gpu());
    FAIL() << "8 GiB fit into a limit of 4";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    for (const char* part :
         {"/GPU:0", "8192 MiB", "the limit is 4096 MiB", "are free", "raise the memory limit"})
      EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST_F(GpuDevice, OpsRunWhereTheirInputsAre) {
  const Tensor a = Tensor::from(numbers(6), {2, 3});
  const Tensor sum = a + a;
  EXPECT_EQ(&sum.device(), &gpu());
  EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8, 10}));
  const Tensor host = a.to(cpu());
  EXPECT_EQ(&(host + host).device(), &cpu());
  EXPECT_EQ(&(host + a).device(), &gpu()) << "a GPU comes first";
  auto scope = device("/GPU:3");
  EXPECT_EQ(&(a * a).device(), &gpu(3));
}

TEST_F(GpuDevice, ProductsAreRight) {
  const Tensor a = Tensor::from(numbers(6), {2, 3});
  const Tensor b = Tensor::from(numbers(12), {3, 4});
  const std::vector<float> expected = {20, 23, 26, 29, 56, 68, 80, 92};
  EXPECT_EQ(matmul(a, b).to_vector<float>(), expected);
  EXPECT_EQ(matmul(transpose(a), b, {.transpose_a = true}).to_vector<float>(), expected);
  EXPECT_EQ(matmul(a.to(cpu()), b.to(cpu())).to_vector<float>(), expected);
}

// The launches of a function are recorded and repeated; a variable that it updates must go on.
TEST_F(GpuDevice, FunctionsRepeatTheirLaunches) {
  const Variable count(Tensor::full(DType::float32, {3}, 0.0));
  auto step = function([&](const Tensor& x) {
    count.assign_add(x);
    return exp(count.value() * 0.0) + x;
  });
  const Tensor one = Tensor::full(DType::float32, {3}, 1.0);
  for (int i = 1; i <= 20; ++i) {
    const Tensor x = i % 3 == 0 ? one * 2.0 : one;
    const std::vector<float> result = step(x).to_vector<float>();
    EXPECT_EQ(result, std::vector<float>(3, i % 3 == 0 ? 3.f : 2.f)) << "call " << i;
  }
  EXPECT_EQ(count.value().to_vector<float>(), std::vector<float>(3, 26.f));
}

// Values from the host are brought to the GPU, where the function runs as a whole.
// Blocks of the host that come again are pinned and read by the GPU itself; what they hold changes from call
// to call.
TEST_F(GpuDevice, LargeArgumentsThatComeAgainAreThoseOfTheCall) {
  const DeviceScope scope(gpu());
  auto twice = function([](const Tensor& x) { return x * 2.0; });
  for (int call = 0; call < 40; ++call) {
    const size_t size = call % 3 == 0 ? 400000 : 300000;  // blocks of two sizes take turns
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i % 1000) + static_cast<float>(call);
    const auto count = static_cast<int64_t>(size);
    const std::vector<float> result = twice(Tensor::from(values, {count}).to(cpu())).to_vector<float>();
    for (float& value : values) value *= 2;
    ASSERT_EQ(result, values) << "call " << call;
  }
}

// Arguments of all sizes travel together into blocks that take turns, while the GPU still works on those
// before.
TEST_F(GpuDevice, ArgumentsFromTheHostAreThoseOfTheCallHoweverManyAreUnderWay) {
  const DeviceScope scope(gpu());
  const Tensor weights = Tensor::full(DType::float32, {512, 512}, 1.0 / 512);
  auto slow = function([&](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
    const Tensor sums = stack({reduce_sum(a), reduce_sum(b), reduce_sum(c), reduce_sum(d)});
    Tensor y = broadcast_to(reduce_sum(sums), {512, 512});
    for (int i = 0; i < 4; ++i) y = matmul(y, weights);
    return sums + reduce_max(y) * 0.0;
  });
  // Small, larger than what is copied by one core, larger than a slot of pinned memory, none.
  const std::vector<int64_t> sizes = {7, 100000, 300000, 0};
  TensorList arguments;
  for (const int64_t size : sizes) arguments.push_back(Tensor::empty(DType::float32, {size}, cpu()));
  std::vector<Tensor> results;
  constexpr int kCalls = 50;  // sums stay below 2^24: they are exact
  for (int call = 0; call < kCalls; ++call) {
    // The same memory as long as nobody else holds it.
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!sole_owner(arguments[i])) arguments[i] = Tensor::empty(DType::float32, {sizes[i]}, cpu());
      std::fill_n(static_cast<float*>(arguments[i].impl()->data()), sizes[i], static_cast<float>(call));
    }
    results.push_back(slow(arguments[0], arguments[1], arguments[2], arguments[3]));
  }
  for (int call = 0; call < kCalls; ++call) {
    std::vector<float> expected;
    for (const int64_t size : sizes) expected.push_back(static_cast<float>(size * call));
    EXPECT_EQ(results[static_cast<size_t>(call)].to_vector<float>(), expected) << "call " << call;
  }
}

TEST_F(GpuDevice, FunctionsTakeArgumentsFromTheHost) {
  auto step = function([](const Tensor& x) { return matmul(x * 2.0, x, {.transpose_b = true}) - 1.0; });
  const Tensor x = Tensor::from(numbers(4), {2, 2}).to(cpu());
  for (int i = 0; i < 4; ++i) {
    const Tensor y = step(x);
    EXPECT_EQ(&y.device(), &gpu());
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 5, 5, 25}));
  }
}

}  // namespace
}  // namespace lockstep::testing
