// What people meet when they call Lockstep wrongly: the code, a message that names the op, the rule and
// what was received, and the line of their own program.
#include "lockstep/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error_of_test.h"
#include "devices.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

Tensor rows() { return zeros({2, 3}); }
Tensor wide() { return zeros({2, 3}, DType::float64); }
Tensor whole() { return zeros({2, 3}, DType::int32); }

// `where` and `call` stand on one line.
struct WrongCall {
  const char* name;
  ErrorCode code;
  std::vector<std::string> parts;  // of the message
  std::source_location where;
  std::function<void()> call;
};

std::ostream& operator<<(std::ostream& out, const WrongCall& c) { return out << c.name; }

// clang-format off
const std::vector<WrongCall>& wrong_calls() {
  using enum ErrorCode;
  static const std::vector<WrongCall> calls = {
    // Operators have no room for a location among their arguments, and name the line all the same.
    {"plus", shape_mismatch, {"add", "(2, 3)", "(2, 4)"}, here(), [] { rows() + zeros({2, 4}); }},
    {"minus", shape_mismatch, {"sub", "(2, 3)", "(4,)"}, here(), [] { rows() - zeros({4}); }},
    {"times_dtypes", dtype_mismatch, {"mul", "float32(2, 3)", "float64(2, 3)", "cast()"}, here(), [] { rows() * wide(); }},
    {"divide_dtypes", dtype_mismatch, {"div", "int32(2, 3)", "float32(2, 3)"}, here(), [] { whole() / rows(); }},
    {"less", dtype_mismatch, {"less", "float32(2, 3)", "int32(2, 3)"}, here(), [] { (void)(rows() < whole()); }},
    {"negate_booleans", dtype_mismatch, {"neg", "bool"}, here(), [] { -(rows() > 0.0); }},
    {"number_of_no_integer", dtype_mismatch, {"add", "0.5", "int32"}, here(), [] { whole() + 0.5; }},
    {"number_in_front", dtype_mismatch, {"sub", "0.5", "int32"}, here(), [] { 0.5 - whole(); }},
    {"plus_none", invalid_argument, {"add", "none"}, here(), [] { rows() + Tensor(); }},

    {"exp_of_integers", dtype_mismatch, {"exp", "floating-point", "int32(2, 3)"}, here(), [] { exp(whole()); }},
    {"logical_not", dtype_mismatch, {"logical_not", "float32(2, 3)"}, here(), [] { logical_not(rows()); }},
    {"where_condition", dtype_mismatch, {"select", "boolean", "float32(2, 3)"}, here(), [] { where(rows(), rows(), rows()); }},

    {"matmul_inner", shape_mismatch, {"matmul", "inner dimensions", "(2, 3) x (2, 3)", "3 and 2"}, here(), [] { matmul(rows(), rows()); }},
    {"matmul_rank", shape_mismatch, {"matmul", "(3,)"}, here(), [] { matmul(rows(), zeros({3})); }},
    {"matmul_dtype", dtype_mismatch, {"matmul", "float32(2, 3)", "float64(2, 3)"}, here(), [] { matmul(rows(), wide(), {.transpose_b = true}); }},

    {"reshape", shape_mismatch, {"reshape", "(2, 3)", "(4, 2)"}, here(), [] { reshape(rows(), {4, 2}); }},
    {"transpose", invalid_argument, {"transpose", "(0, 0)"}, here(), [] { transpose(rows(), {0, 0}); }},
    {"slice", invalid_argument, {"slice", "(2, 3)"}, here(), [] { slice(rows(), {0, 2}, {2, 2}); }},
    {"concat", shape_mismatch, {"concat", "(2, 3)", "(3, 4)"}, here(), [] { concat(TensorList{rows(), zeros({3, 4})}, 0); }},
    {"split", invalid_argument, {"split", "2"}, here(), [] { split(rows(), 2, 1); }},
    {"squeeze", shape_mismatch, {"squeeze", "(2, 3)"}, here(), [] { squeeze(rows(), {0}); }},
    {"broadcast_to", shape_mismatch, {"broadcast_to", "(2, 3)", "(2, 4)"}, here(), [] { broadcast_to(rows(), {2, 4}); }},
    {"gather_indices", dtype_mismatch, {"gather", "float32(2, 3)"}, here(), [] { gather(rows(), rows()); }},
    {"gather_position", invalid_argument, {"gather", "9"}, here(), [] { gather(rows(), Tensor::from<int32_t>({0, 9}, {2})); }},
    {"reduce_axis", invalid_argument, {"axis 2", "rank 2"}, here(), [] { reduce_sum(rows(), {.axis = {2}}); }},
    {"softmax", dtype_mismatch, {"softmax", "int32(2, 3)"}, here(), [] { softmax(whole()); }},
    {"labels", shape_mismatch, {"sparse_softmax_cross_entropy", "(3,)", "(2,)"}, here(), [] { sparse_softmax_cross_entropy_with_logits(Tensor::from<int32_t>({0, 1, 2}, {3}), rows()); }},
    {"label_out_of_range", invalid_argument, {"label", "position (1,)", "is 3", "0 to 2"}, here(), [] { sparse_softmax_cross_entropy_with_logits(Tensor::from<int32_t>({0, 3}, {2}), rows()); }},
    {"conv2d", shape_mismatch, {"conv2d", "(1, 5, 5, 2)", "(3, 3, 4, 8)"}, here(), [] { conv2d(zeros({1, 5, 5, 2}), zeros({3, 3, 4, 8})); }},
    {"padding", invalid_argument, {"full", "same", "valid"}, here(), [] { conv2d(zeros({1, 5, 5, 2}), zeros({3, 3, 2, 8}), {.padding = "full"}); }},
    {"uniform", invalid_argument, {"uniform"}, here(), [] { random::uniform({2}, {.minval = 2, .maxval = 1}); }},
    {"bernoulli", invalid_argument, {"1.5"}, here(), [] { random::bernoulli({2}, 1.5); }},
    {"dropout", invalid_argument, {"dropout", "1"}, here(), [] { dropout(rows(), 1.0); }},

    {"from", shape_mismatch, {"(2, 2)", "4", "3"}, here(), [] { Tensor::from<float>({1, 2, 3}, {2, 2}); }},
    {"negative_dimension", invalid_argument, {"(2, -1)"}, here(), [] { Tensor::empty(DType::float32, {2, -1}); }},
    {"too_many_elements", out_of_memory, {"(4294967296, 4294967296)"}, here(), [] { Tensor::empty(DType::float32, {int64_t{1} << 32, int64_t{1} << 32}); }},
    {"too_many_bytes", out_of_memory, {}, here(), [] { zeros({int64_t{1} << 40, int64_t{1} << 20}); }},
    {"item_of_many", shape_mismatch, {"one element", "float32(2, 3)", "to_vector()"}, here(), [] { rows().item<float>(); }},
    {"item_of_other_dtype", dtype_mismatch, {"float32()", "float64", "cast()"}, here(), [] { zeros({}).item<double>(); }},
    {"data_of_a_view", failed_precondition, {"strided", "float32(3, 2)", "to_vector()"}, here(), [] { transpose(rows()).data<float>(); }},

    {"assign", shape_mismatch, {"assign", "\"w\"", "float32(2, 3)", "float32(3,)"}, here(), [] { Variable(rows(), {.name = "w"}).assign(zeros({3})); }},
    {"assign_add", shape_mismatch, {"add", "(2, 3)", "(4,)"}, here(), [] { Variable(rows(), {.name = "w"}).assign_add(zeros({4})); }},
    {"variable_of_none", failed_precondition, {"\"w\""}, here(), [] { Variable(Tensor(), {.name = "w"}); }},
    {"watch", dtype_mismatch, {"watch", "int32(2, 3)"}, here(), [] { GradientTape().watch(whole()); }},
    {"gradient", dtype_mismatch, {"gradient", "target", "int32(2, 3)"}, here(), [] { GradientTape().gradient(whole(), rows()); }},
    {"jacobian", failed_precondition, {"persistent"}, here(), [] { GradientTape tape; for (int i = 0; i < 2; ++i) tape.jacobian(rows(), rows()); }},
    {"apply_gradients", invalid_argument, {"2 gradients for 0 variables"}, here(), [] { keras::optimizers::SGD().apply_gradients(TensorList{rows(), rows()}, {}); }},
    {"unknown_device", device_mismatch, {"\"cpu:99\"", "/CPU:0", "/CPU:1", "/CPU:8"}, here(), [] { device_by_name("cpu:99"); }},
    {"device_name", invalid_argument, {"tpu:0", "CPU and GPU", "/device:<TYPE>"}, here(), [] { device_by_name("tpu:0"); }},
    {"logical_cpus", failed_precondition, {"after being initialized", "devices"}, here(), [] { (logical_devices(), set_logical_cpus({.count = 3})); }},
    {"function_argument", invalid_argument, {"\"f\"", "argument 0", "undefined"}, here(), [] { function([](const Tensor& x) { return x; }, {.name = "f"})(Tensor()); }},
    {"global_batch_size", shape_mismatch, {"global_batch_size"}, here(), [] { global_batch_size(zeros({})); }},
    {"missing_device", device_mismatch, {"/GPU:0", "/CPU:0", "set_soft_device_placement"}, here(), [] { (void)device("/gpu:0"); }},
  };
  return calls;
}
// clang-format on

class WrongCalls : public testing::TestWithParam<WrongCall> {};

TEST_P(WrongCalls, SayWhatIsWrongAndWhere) {
  const WrongCall& c = GetParam();
  const Error error = error_of(c.call);
  EXPECT_EQ(name(error.code()), name(c.code)) << error.what();
  for (const std::string& part : c.parts) EXPECT_THAT(error.message(), HasSubstr(part));
  EXPECT_THAT(std::string(error.where().file_name()), EndsWith("error_test.cc")) << error.what();
  EXPECT_EQ(error.where().line(), c.where.line()) << error.what();
}

INSTANTIATE_TEST_SUITE_P(All, WrongCalls, testing::ValuesIn(wrong_calls()),
                         [](const auto& info) { return std::string(info.param.name); });

// --- inside traced functions -------------------------------------------------------------------------------

TEST(WrongInAFunction, TheLineInTheFunctionAndTheFunctionAreNamed) {
  uint32_t line = 0;
  const auto body = [&](const Tensor& x) {
    line = here().line() + 1;
    return x + zeros({7});
  };
  const uint32_t made = here().line() + 1;
  auto f = function(body, {.name = "training_step"});
  const Error error = error_of([&] { f(rows()); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("while tracing function \"training_step\""),
                                  HasSubstr("error_test.cc:" + std::to_string(made))));
}

TEST(WrongInAFunction, ValuesThatAreWrongAtRunTimeNameTheOpAndItsLine) {
  uint32_t line = 0;
  auto f = function([&](const Tensor& labels, const Tensor& logits) {
    line = here().line() + 1;
    return sparse_softmax_cross_entropy_with_logits(labels, logits);
  });
  f(Tensor::from<int32_t>({0, 2}, {2}), rows());
  const Error error = error_of([&] { f(Tensor::from<int32_t>({0, 5}, {2}), rows()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("5"), HasSubstr("cross_entropy"),
                                  HasSubstr("error_test.cc:" + std::to_string(line))));
  EXPECT_EQ(f(Tensor::from<int32_t>({0, 2}, {2}), rows()).size(), 2) << "the next call works";
}

TEST(WrongInAFunction, AGradientThatFailsNamesItsOp) {
  const Tensor x = zeros({2});
  GradientTape tape;
  tape.watch(x);
  const TensorList y = custom_gradient(
      [](std::span<const Tensor> in) {
        return CustomGradient{.outputs = {in[0] * 2.0}, .grad = [](std::span<const Tensor> d) {
                                return TensorList{d[0] + zeros({9})};
                              }};
      },
      {&x, 1});
  const Error error = error_of([&] { tape.gradient(y[0], x); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(error.what(), HasSubstr("in the gradient of custom_gradient"));
}

// --- memory ------------------------------------------------------------------------------------------------

class OutOfMemory : public testing::Test {
 protected:
  void SetUp() override { device_.set_memory_limit(device_.memory_info().current + (int64_t{1} << 20)); }
  void TearDown() override { device_.set_memory_limit(0); }
  Device& device_ = *first_devices(8)[7];
};

TEST_F(OutOfMemory, SaysWhatWasAskedWhatIsHeldAndWhere) {
  const DeviceScope scope(device_);
  const Tensor held = zeros({1000, 100});
  const std::string current = std::to_string(device_.memory_info().current),
                    limit = std::to_string(device_.memory_info().limit);
  const uint32_t line = here().line() + 1;
  const Error error = error_of([] { zeros({1000, 1000}); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("/CPU:7"), HasSubstr("4000000 bytes"), HasSubstr(current), HasSubstr(limit)));
  EXPECT_EQ(error.where().line(), line);
  EXPECT_EQ(zeros({10}).size(), 10) << "what fits is still served";
}

TEST_F(OutOfMemory, InAnOpNamesTheLineOfTheOp) {
  const DeviceScope scope(device_);
  const Tensor column = zeros({1000, 1});
  const uint32_t line = here().line() + 1;
  const Error error = error_of([&] { column + transpose(column); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_EQ(error.where().line(), line);
}

TEST_F(OutOfMemory, InACompiledFunctionItCanBeTriedAgain) {
  const DeviceScope scope(device_);
  const Variable v(zeros({4}));
  auto f = function(
      [&](const Tensor& x) {
        v.assign(v + 1.0);
        return reduce_sum(matmul(x, x) + 1.0);
      },
      {.name = "large"});
  device_.set_memory_limit(0);
  const Tensor x = zeros({600, 600});  // 1.44 MB, and as much again for the product
  device_.set_memory_limit(device_.memory_info().current + 100'000);
  EXPECT_EQ(error_of([&] { f(x); }).code(), ErrorCode::out_of_memory);
  EXPECT_EQ(v.value().to_vector<float>()[0], 0) << "nothing was updated";
  device_.set_memory_limit(0);
  EXPECT_EQ(f(x).item<float>(), 600 * 600);
  EXPECT_EQ(v.value().to_vector<float>()[0], 1);
}

TEST_F(OutOfMemory, ALimitBelowWhatIsHeldIsRefused) {
  const Tensor held = Tensor::empty(DType::float32, {1000}, device_);
  const Error error = error_of([&] { device_.set_memory_limit(100); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("/CPU:7"), HasSubstr("100")));
}

// --- logical devices ---------------------------------------------------------------------------------------

TEST(LogicalDevices, TheSameConfigurationAgainIsNoError) {
  logical_devices();
  set_logical_cpus({.threads_of = {1, 1, 1, 1, 1, 1, 1, 1, 2}});
  EXPECT_EQ(logical_devices().size(), 9u);
  EXPECT_EQ(device_by_name("cpu:8").threads(), 2);
}

}  // namespace
}  // namespace lockstep
