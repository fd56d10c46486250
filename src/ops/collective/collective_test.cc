#include "lockstep/ops/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::count_ops;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::one_thread_devices;
using testing::traced;

const TensorSpec kRows{DType::float32, {3, 2}};
constexpr ReplicaTrace kReplica{.global_batch = 12, .local_batch = 3};

TEST(AllReduceSum, OutsideReplicasIsItsArgument) {
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  EXPECT_EQ(all_reduce_sum(x).impl(), x.impl());
  const Variable v(x);
  EXPECT_THAT(all_reduce_sum(v).to_vector<float>(), ElementsAre(1, 2));
  auto f = function([](const Tensor& t) { return all_reduce_sum(t) * 2.0; });
  EXPECT_THAT(f(x).to_vector<float>(), ElementsAre(2, 4));
}

TEST(AllReduceSum, OutsideReplicasGradientsPassThrough) {
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  GradientTape tape;
  tape.watch(x);
  EXPECT_THAT(tape.gradient(square(all_reduce_sum(x)), x).to_vector<float>(), ElementsAre(2, 4));
}

TEST(AllReduceSum, OfAListKeepsWhatIsUndefined) {
  const Tensor x = Tensor::scalar(1.0f);
  const TensorList sums = all_reduce_sum(TensorList{x, Tensor(), x});
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_TRUE(sums[0].defined());
  EXPECT_FALSE(sums[1].defined());
  EXPECT_TRUE(sums[2].defined());
}

TEST(AllReduceSum, InAReplicaIsANodeOfItsOwnEachTime) {
  const Graph graph = traced(
      {kRows},
      [](const TensorList& p) {
        return TensorList{all_reduce_sum(p[0]), all_reduce_sum(p[0])};
      },
      kReplica);
  EXPECT_EQ(count_ops(graph, kAllReduceSum), 2);
  const auto sequence = [&](size_t i) {
    return graph.node(graph.outputs[i]).attrs.as<CollectiveAttrs>().sequence;
  };
  EXPECT_EQ(sequence(0), 0);
  EXPECT_EQ(sequence(1), 1);
  EXPECT_EQ(graph.spec(graph.outputs[0]), kRows);
}

// Every replica's loss depends on the sum, so what reaches a replica's addend is the sum of all gradients.
TEST(AllReduceSum, TheGradientIsTheSumOfAllReplicasGradients) {
  const int64_t replicas = 3;
  auto f = function(
      [](const Tensor& x) {
        GradientTape tape;
        tape.watch(x);
        const Tensor sum = all_reduce_sum(reduce_sum(x));
        // The loss of a replica weighs the sum by its own first example.
        const Tensor loss = sum * stop_gradient(reduce_sum(slice(x, {0, 0}, {1, 1})));
        return tape.gradient(loss, x);
      },
      {.replicas = {.devices = one_thread_devices(static_cast<int>(replicas))}});
  const Tensor x = Tensor::from<float>({1, 2, 10, 20, 100, 200}, {6, 1});
  EXPECT_THAT(f(x).to_vector<float>(), Each(111));
}

TEST(AllReduceSum, IntegersAreSummedTooBooleansAreNot) {
  const ReplicaOptions replicas{.devices = one_thread_devices(2)};
  auto f = function([](const Tensor& x) { return all_reduce_sum(reduce_sum(cast(x > 0.0, DType::int64))); },
                    {.replicas = replicas});
  EXPECT_EQ(f(Tensor::from<float>({1, -1, 2, 3, -5}, {5})).item<int64_t>(), 3);
  auto g = function([](const Tensor& x) { return all_reduce_sum(x > 0.0); }, {.replicas = replicas});
  const Error error = error_of([&] { g(Tensor::from<float>({1, -1}, {2})); });
  EXPECT_EQ(error.code(), ErrorCode::dtype_mismatch);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("all_reduce_sum"), HasSubstr("bool")));
}

TEST(GlobalBatchSize, OutsideReplicasIsTheFirstDimension) {
  EXPECT_EQ(global_batch_size(zeros({7, 2})), 7);
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([] { global_batch_size(zeros({})); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THROW(global_batch_size(Tensor()), Error);
}

TEST(GlobalBatchSize, InAReplicaIsTheWholeBatchs) {
  traced(
      {kRows},
      [](const TensorList& p) {
        EXPECT_EQ(global_batch_size(p[0]), 12);
        EXPECT_EQ(global_batch_size(reduce_sum(p[0], {.axis = {1}})), 12);
        const Error error = error_of([&] { global_batch_size(transpose(p[0])); });
        EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
        EXPECT_THAT(error.message(), AllOf(HasSubstr("(2, 3)"), HasSubstr("slice of 3")));
        return TensorList{};
      },
      kReplica);
}

}  // namespace
}  // namespace lockstep
