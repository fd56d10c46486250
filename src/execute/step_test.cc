#include "execute/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::counting;
using lockstep::testing::error_of;
using lockstep::testing::Floats;
using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using lockstep::testing::two_thread_device;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- ways to run as replicas -------------------------------------------------------------------------------

struct Way {
  int devices;
  bool reproducible;
  bool two_threads = false;

  ReplicaOptions options() const {
    if (two_threads) return {.devices = {&two_thread_device()}, .reproducible = reproducible};
    return {.devices = one_thread_devices(devices), .reproducible = reproducible};
  }
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.devices << (way.devices == 1 ? "_device" : "_devices")
             << (way.reproducible ? "_reproducible" : "") << (way.two_threads ? "_two_threads" : "");
}

class Replicas : public ::testing::TestWithParam<Way> {
 protected:
  ReplicaOptions options() const { return GetParam().options(); }
  // How many replicas run.
  int64_t replicas() const { return GetParam().reproducible ? 8 : GetParam().devices; }
};

constexpr int64_t kBatches[] = {1, 7, 16, 61};

TEST_P(Replicas, RowsOfPerReplicaResultsComeInOrder) {
  for (const int64_t batch : kBatches) {
    SCOPED_TRACE(batch);
    auto f = function(
        [](const Tensor& x, const Tensor& labels) {
          return std::tuple(x * 2.0, reduce_sum(x, {.axis = {1}}), labels, reshape(x, {x.shape()[0], 3, 1}));
        },
        {.replicas = options()});
    const Tensor x = counting({batch, 3});
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < batch; ++i) numbers.push_back(i * i);
    for (int run = 0; run < 2; ++run) {
      const auto [doubled, sums, labels, reshaped] = f(x, Tensor::from(numbers, {batch}));
      EXPECT_EQ(read(doubled), read(x * 2.0));
      EXPECT_EQ(read(sums), read(reduce_sum(x, {.axis = {1}})));
      EXPECT_EQ(labels.to_vector<int64_t>(), numbers);
      EXPECT_EQ(reshaped.shape(), Shape({batch, 3, 1}));
      EXPECT_EQ(read(reshaped), read(x));
    }
  }
}

TEST_P(Replicas, SumsCoverTheWholeBatch) {
  for (const int64_t batch : kBatches) {
    SCOPED_TRACE(batch);
    auto f = function(
        [](const Tensor& x) {
          const Tensor total = all_reduce_sum(reduce_sum(x, {.axis = {0}}));
          const Tensor mean = total * (1.0 / static_cast<double>(global_batch_size(x)));
          // A second sum that needs the first.
          const Tensor spread = all_reduce_sum(reduce_sum(square(x - mean), {.axis = {0}}));
          return std::tuple(total, spread, x - mean);
        },
        {.replicas = options()});
    const Tensor x = counting({batch, 2});
    for (int run = 0; run < 2; ++run) {
      const auto [total, spread, centred] = f(x);
      const Tensor expected_total = reduce_sum(x, {.axis = {0}});
      const Tensor expected = x - expected_total * (1.0 / static_cast<double>(batch));
      EXPECT_EQ(read(total), read(expected_total));
      const Floats wanted = read(reduce_sum(square(expected), {.axis = {0}})), got = read(spread);
      for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4 * wanted[i] + 1e-6);
      EXPECT_EQ(centred.shape(), x.shape());
      const Floats rows = read(centred), wanted_rows = read(expected);
      for (size_t i = 0; i < rows.size(); ++i)
        EXPECT_NEAR(rows[i], wanted_rows[i], 1e-5 * static_cast<double>(batch));
    }
  }
}

// Whatever memory the summed value lives in.
TEST_P(Replicas, SumsOfArgumentsVariablesCapturesConstantsAndResults) {
  const Variable v(Tensor::from<float>({1, 2, 3}, {3}));
  const Tensor outside = Tensor::from<float>({10, 20, 30}, {3});
  const Tensor scalar = Tensor::scalar(2.0f);
  auto f = function(
      [&](const Tensor& x, const Tensor& s) {
        const Tensor rows = reduce_sum(x, {.axis = {0}});
        return TensorList{all_reduce_sum(v),         all_reduce_sum(outside),
                          all_reduce_sum(ones({2})), all_reduce_sum(s),
                          all_reduce_sum(rows),      all_reduce_sum(all_reduce_sum(ones({})))};
      },
      {.replicas = options()});
  const Tensor x = counting({16, 2});
  const auto count = static_cast<float>(replicas());
  for (int run = 0; run < 2; ++run) {
    const TensorList sums = f(x, scalar);
    EXPECT_THAT(read(sums[0]), ElementsAre(count, 2 * count, 3 * count));
    EXPECT_THAT(read(sums[1]), ElementsAre(10 * count, 20 * count, 30 * count));
    EXPECT_THAT(read(sums[2]), ElementsAre(count, count));
    EXPECT_THAT(read(sums[3]), ElementsAre(2 * count));
    EXPECT_EQ(read(sums[4]), read(reduce_sum(x, {.axis = {0}})));
    EXPECT_THAT(read(sums[5]), ElementsAre(count * count));
  }
}

TEST_P(Replicas, SumsOfWholeArguments) {
  auto f = function([](const Tensor& x) { return all_reduce_sum(x); }, {.replicas = options()});
  const Tensor x = counting({24, 2});
  const Tensor expected = reduce_sum(reshape(x, {replicas(), 24 / replicas(), 2}), {.axis = {0}});
  for (int run = 0; run < 3; ++run) EXPECT_EQ(read(f(x)), read(expected));
}

TEST_P(Replicas, AValueIsSummedAndReturnedAsItIs) {
  auto f = function(
      [](const Tensor& x) {
        const Tensor y = x * 2.0;
        return std::pair(y, all_reduce_sum(y));
      },
      {.replicas = options()});
  const Tensor x = counting({24, 2});
  std::vector<std::pair<Tensor, Tensor>> held;  // so that no memory is used again
  for (int run = 0; run < 3; ++run) {
    held.push_back(f(x));
    EXPECT_EQ(read(held.back().first), read(x * 2.0));
    EXPECT_EQ(read(held.back().second),
              read(reduce_sum(reshape(x * 2.0, {replicas(), 24 / replicas(), 2}), {.axis = {0}})));
  }
}

TEST_P(Replicas, SumsOfViews) {
  auto f = function(
      [](const Tensor& x) {
        const Tensor gram = matmul(x, x, {.transpose_a = true});
        const Tensor other = matmul(x, x * 2.0, {.transpose_a = true});
        return std::tuple(all_reduce_sum(transpose(gram)), all_reduce_sum(slice(gram, {0, 1}, {3, 1})),
                          all_reduce_sum(transpose(other)),
                          all_reduce_sum(broadcast_to(slice(other, {0, 0}, {1, 3}), {2, 3})));
      },
      {.replicas = options()});
  const Tensor x = counting({13, 3});
  const Tensor gram = matmul(x, x, {.transpose_a = true});
  for (int run = 0; run < 2; ++run) {
    const auto [across, column, doubled, wide] = f(x);
    EXPECT_EQ(read(across), read(gram));
    EXPECT_EQ(read(column), read(slice(gram, {0, 1}, {3, 1})));
    EXPECT_EQ(read(doubled), read(gram * 2.0));
    EXPECT_EQ(read(wide), read(broadcast_to(slice(gram * 2.0, {0, 0}, {1, 3}), {2, 3})));
  }
}

// Work on one sum stands between the sums of a phase, with temporaries of the same size as they have.
TEST_P(Replicas, WorkBetweenSumsDoesNotDisturbThem) {
  const Variable scale(Tensor::full(DType::float32, {8, 8}, 0.125));
  auto f = function(
      [&](const Tensor& x) {
        Tensor y = x;
        TensorList kept;
        for (int layer = 0; layer < 3; ++layer) {
          TensorList sums;
          for (int i = 0; i < 4; ++i) {
            const Tensor local = matmul(y * (0.1 * (i + 1)), x, {.transpose_a = true});
            Tensor sum = all_reduce_sum(i % 2 == 0 ? local : transpose(local));
            for (int k = 0; k < 3; ++k) sum = matmul(sum, scale) * 0.5;
            sums.push_back(sum);
          }
          Tensor mixed = sums[0];
          for (size_t i = 1; i < sums.size(); ++i) mixed = mixed + sums[i];
          y = tanh(matmul(y, mixed));
          kept.insert(kept.end(), sums.begin(), sums.end());
        }
        kept.push_back(y);
        return kept;
      },
      {.replicas = options()});
  const Tensor x = counting({22, 8}) * 0.005;
  auto whole = function([&](const Tensor& input) {
    Tensor y = input;
    TensorList kept;
    for (int layer = 0; layer < 3; ++layer) {
      Tensor mixed;
      for (int i = 0; i < 4; ++i) {
        const Tensor local = matmul(y * (0.1 * (i + 1)), input, {.transpose_a = true});
        Tensor sum = i % 2 == 0 ? local : transpose(local);
        for (int k = 0; k < 3; ++k) sum = matmul(sum, scale) * 0.5;
        kept.push_back(sum);
        mixed = mixed.defined() ? mixed + sum : sum;
      }
      y = tanh(matmul(y, mixed));
    }
    kept.push_back(y);
    return kept;
  });
  const TensorList expected = whole(x);
  for (int run = 0; run < 2; ++run) {
    const TensorList results = f(x);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t k = 0; k < results.size(); ++k) {
      const Floats got = read(results[k]), wanted = read(expected[k]);
      for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], 2e-5 * (1 + std::abs(wanted[i]))) << k << ' ' << i;
    }
  }
}

TEST_P(Replicas, ScalarsAreNotSplit) {
  auto f = function(
      [](const Tensor& x, const Tensor& s) {
        EXPECT_EQ(s.rank(), 0);
        return std::pair(x * s, s + 1.0);
      },
      {.replicas = options()});
  const Tensor x = counting({9, 2});
  for (const float value : {2.0f, 3.0f}) {
    const auto [scaled, next] = f(x, Tensor::scalar(value));
    EXPECT_EQ(read(scaled), read(x * value));
    EXPECT_EQ(next.item<float>(), value + 1);
  }
}

TEST_P(Replicas, VariablesAreUpdatedOnceAndMirroredEverywhere) {
  const Variable v(Tensor::from<float>({1, 2}, {2}));
  auto f = function(
      [&](const Tensor& x) {
        const Tensor before = x * 0.0 + v;
        v.assign_add(all_reduce_sum(reduce_sum(x, {.axis = {0}})));
        return std::pair(before, x * 0.0 + v);
      },
      {.replicas = options()});
  const Tensor x = ones({11, 2});
  Floats held = {1, 2};
  const auto check = [&] {
    const auto [before, after] = f(x);
    const Floats old_rows = read(before), new_rows = read(after);
    for (size_t i = 0; i < old_rows.size(); ++i) {
      ASSERT_EQ(old_rows[i], held[i % 2]) << "row " << i / 2;
      ASSERT_EQ(new_rows[i], held[i % 2] + 11) << "row " << i / 2;
    }
    for (float& value : held) value += 11;
    ASSERT_EQ(read(v), held);
  };
  check();
  check();
  // Written outside: every mirror is out of date.
  held = {-5, 7};
  v.assign(Tensor::from(held, {2}));
  check();
  // Another function writes it, on this thread's device alone.
  auto other = function([&] { v.assign(v * 2.0); });
  other();
  for (float& value : held) value *= 2;
  check();
  EXPECT_EQ(&v.value().device(), &current_device());
}

// Replicas read a variable's old and its new value after the same sum: neither may see the other.
TEST_P(Replicas, OldAndNewValuesOfAVariableAreReadInOnePhase) {
  const Variable v(Tensor::from<float>({1, 2}, {2}));
  auto f = function(
      [&](const Tensor& x) {
        const Tensor total = all_reduce_sum(reduce_sum(x, {.axis = {0}}));
        const Tensor old = v.value();
        v.assign(v + total);
        return std::pair(matmul(x * total, reshape(old, {2, 1})), matmul(x * total, reshape(v, {2, 1})));
      },
      {.replicas = options()});
  Floats held = {1, 2};
  for (int run = 0; run < 3; ++run) {
    const auto [before, after] = f(ones({11, 2}));
    EXPECT_THAT(read(before), Each(11 * (held[0] + held[1]))) << run;
    for (float& value : held) value += 11;
    EXPECT_THAT(read(after), Each(11 * (held[0] + held[1]))) << run;
    EXPECT_EQ(read(v), held);
  }
}

TEST_P(Replicas, AVariableReadBeforeTheStepKeepsItsValue) {
  const Variable v(Tensor::from<float>({1}, {1}));
  auto f = function([&](const Tensor& x) { v.assign_add(all_reduce_sum(reduce_sum(x, {.axis = {0}}))); },
                    {.replicas = options()});
  f(ones({5, 1}));
  const Tensor held = v.value();
  f(ones({5, 1}));
  EXPECT_THAT(read(held), ElementsAre(6));
  EXPECT_THAT(read(v), ElementsAre(11));
}

TEST_P(Replicas, GradientsAreThoseOfTheWholeBatch) {
  const Variable w(counting({4, 3}) * 0.1);
  const Tensor labels = Tensor::from<int32_t>({0, 2, 1, 1, 0, 2, 2, 0, 1, 1, 0}, {11});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor loss = reduce_sum(sparse_softmax_cross_entropy_with_logits(y, matmul(x, w))) *
                        (1.0 / static_cast<double>(global_batch_size(y)));
    return std::pair(all_reduce_sum(tape.gradient(loss, w)), all_reduce_sum(loss));
  };
  auto f = function(body, {.replicas = options()});
  const Tensor x = counting({11, 4}) * 0.05;
  const auto [gradient, loss] = f(x, labels);
  const auto [expected_gradient, expected_loss] = body(x, labels);
  EXPECT_NEAR(loss.item<float>(), expected_loss.item<float>(), 1e-6);
  const Floats got = read(gradient), wanted = read(expected_gradient);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6);
}

// --- failures ----------------------------------------------------------------------------------------------

TEST_P(Replicas, AnErrorInOneReplicaReachesTheCallerAndHarmsNobody) {
  const Variable steps(Tensor::scalar(0.0f));
  const Variable w(Tensor::full(DType::float32, {2, 3}, 0.5));
  auto f = function(
      [&](const Tensor& x, const Tensor& labels) {
        const Tensor losses = sparse_softmax_cross_entropy_with_logits(labels, matmul(x, w));
        const Tensor loss = all_reduce_sum(reduce_sum(losses));
        w.assign(w + loss * 0.0);
        steps.assign(steps + 1.0);
        return loss;
      },
      {.replicas = options()});
  constexpr int64_t kBatch = 16;
  const Tensor x = counting({kBatch, 2}) * 0.1;
  const auto labels_with = [](int64_t position, int32_t label) {
    std::vector<int32_t> labels(kBatch, 1);
    if (position >= 0) labels[static_cast<size_t>(position)] = label;
    return Tensor::from(labels, {kBatch});
  };
  const float good = f(x, labels_with(-1, 0)).item<float>();
  float expected_steps = 1;
  for (const int64_t position : {0, 5, 9, 15}) {
    SCOPED_TRACE(position);
    const Error error = error_of([&] { f(x, labels_with(position, 77)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cross_entropy"), HasSubstr("77"), HasSubstr("step_test.cc")));
    EXPECT_EQ(steps.value().item<float>(), expected_steps) << "a failed step updates nothing";
    EXPECT_THAT(read(w), Each(0.5f));
    EXPECT_EQ(f(x, labels_with(-1, 0)).item<float>(), good) << "the next step works";
    EXPECT_EQ(steps.value().item<float>(), ++expected_steps);
  }
  // Every replica fails at once.
  std::vector<int32_t> wrong(kBatch, -1);
  EXPECT_THROW(f(x, Tensor::from(wrong, {kBatch})), Error);
  EXPECT_EQ(f(x, labels_with(-1, 0)).item<float>(), good);
}

// The step fails in a replica after every device has updated its own copy of a variable.
TEST_P(Replicas, AFailedStepLeavesAllMirrorsAlike) {
  const Variable v(Tensor::from<float>({1, 2}, {2}));
  auto f = function(
      [&](const Tensor& x, const Tensor& labels) {
        v.assign(v + all_reduce_sum(reduce_sum(x, {.axis = {0}})));
        const Tensor losses = sparse_softmax_cross_entropy_with_logits(labels, x * v);
        return std::pair(losses * 0.0 + reduce_sum(x * v, {.axis = {1}}), all_reduce_sum(reduce_sum(losses)));
      },
      {.replicas = options()});
  constexpr int64_t kBatch = 12;
  const Tensor x = ones({kBatch, 2});
  std::vector<int32_t> good(kBatch, 0), bad = good;
  bad[kBatch - 1] = 5;
  f(x, Tensor::from(good, {kBatch}));
  for (int trial = 0; trial < 3; ++trial) {
    EXPECT_THROW(f(x, Tensor::from(bad, {kBatch})), Error);
    const Floats before = read(v);
    const auto [rows, loss] = f(x, Tensor::from(good, {kBatch}));
    EXPECT_THAT(read(v), ElementsAre(before[0] + kBatch, before[1] + kBatch)) << "trial " << trial;
    EXPECT_THAT(read(rows), Each(before[0] + before[1] + 2 * kBatch)) << "trial " << trial;
  }
}

TEST_P(Replicas, AfterAFailedStepOtherProgramsSeeWhatTheVariableHolds) {
  const Variable v(Tensor::from<float>({1, 2}, {2}));
  auto reader = function([&](const Tensor& x) { return x * 0.0 + v; }, {.replicas = options()});
  auto step = function([&](const Tensor& labels, const Tensor& logits) {
    v.assign(v + 1.0);
    return sparse_softmax_cross_entropy_with_logits(labels, logits);
  });
  reader(ones({1, 2}));
  EXPECT_THROW(step(Tensor::from<int32_t>({7}, {1}), zeros({1, 3})), Error);
  EXPECT_EQ(read(reader(ones({1, 2}))), read(v));
}

TEST_P(Replicas, UnderATapeRunAsOne) {
  const Variable w(Tensor::from<float>({2, 3}, {2}));
  auto f = function([&](const Tensor& x) { return all_reduce_sum(reduce_sum(square(x * w))); },
                    {.replicas = options()});
  const Tensor x = counting({7, 2});
  const float expected = f(x).item<float>();
  GradientTape tape;
  const Tensor y = f(x);
  EXPECT_EQ(y.item<float>(), expected);
  EXPECT_EQ(read(tape.gradient(y, w)), read(reduce_sum(square(x), {.axis = {0}}) * 2.0 * w));
}

TEST_P(Replicas, AScalarThatDiffersBetweenReplicasIsNotReturned) {
  auto f = function([](const Tensor& x) { return reduce_sum(x); }, {.replicas = options()});
  const Error error = error_of([&] { f(counting({8, 2})); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("differs between replicas"), HasSubstr("all_reduce_sum")));
}

TEST_P(Replicas, AResultWithoutABatchDimensionIsNotReturned) {
  auto f = function([](const Tensor& x) { return reduce_sum(x, {.axis = {0}}); }, {.replicas = options()});
  const Error error = error_of([&] { f(counting({16, 3})); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("replica"), HasSubstr("(3,)")));
}

TEST_P(Replicas, AVariableIsNotAssignedAValueThatDiffersBetweenReplicas) {
  const Variable v(zeros({3}), {.name = "statistics"});
  auto f =
      function([&](const Tensor& x) { v.assign(reduce_sum(x, {.axis = {0}})); }, {.replicas = options()});
  const Error error = error_of([&] { f(counting({16, 3})); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"statistics\""), HasSubstr("differs between replicas"),
                                     HasSubstr("all_reduce_sum")));
  EXPECT_THAT(read(v), ElementsAre(0, 0, 0));
}

TEST_P(Replicas, ArgumentsOfDifferentBatchSizesAreRefused) {
  auto f = function([](const Tensor& x, const Tensor& y) { return x + y; },
                    {.name = "pairs", .replicas = options()});
  const Error error = error_of([&] { f(counting({8, 2}), counting({6, 2})); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"pairs\""), HasSubstr("argument 1"),
                                     HasSubstr("float32(6, 2)"), HasSubstr("8 examples")));
}

TEST_P(Replicas, ABatchIsNeeded) {
  auto f = function([](const Tensor& s) { return s + 1.0; }, {.replicas = options()});
  EXPECT_EQ(error_of([&] { f(Tensor::scalar(1.0f)); }).code(), ErrorCode::invalid_argument);
  auto g = function([](const Tensor& x) { return x + 1.0; }, {.replicas = options()});
  EXPECT_EQ(error_of([&] { g(zeros({0, 3})); }).code(), ErrorCode::invalid_argument);
}

TEST_P(Replicas, RandomNumbersOfAnExampleDoNotDependOnTheReplicas) {
  const random::Generator generator(3);
  const auto body = [&](const Tensor& x) {
    return random::uniform({x.shape()[0], 5}, {.per_example = true, .generator = &generator});
  };
  const Tensor x = zeros({13, 1});
  auto whole = function(body);
  const Floats expected = read(whole(x));
  generator.reset(3);
  auto f = function(body, {.replicas = options()});
  EXPECT_EQ(read(f(x)), expected);
  EXPECT_NE(read(f(x)), expected) << "the next step draws other numbers";
}

TEST_P(Replicas, WorkIsCountedOnEveryDevice) {
  const ReplicaOptions replicas = options();
  auto f = function([](const Tensor& x) { return matmul(x, ones({4, 4})); }, {.replicas = replicas});
  const Tensor x = counting({24, 4});
  f(x);
  for (Device* device : replicas.devices) device->reset_counters();
  f(x);
  int64_t flops = 0;
  for (Device* device : replicas.devices) {
    EXPECT_GT(device->counters().flops, 0) << *device;
    // The argument lives on no device of theirs: each gets its rows.
    EXPECT_GT(device->counters().bytes_copied_in, 0) << *device;
    flops += device->counters().flops;
  }
  EXPECT_EQ(flops, 2 * 24 * 4 * 4);
  EXPECT_EQ(f.statistics(x).flops, flops);
}

INSTANTIATE_TEST_SUITE_P(Ways, Replicas,
                         ::testing::Values(Way{1, false}, Way{2, false}, Way{3, false}, Way{8, false},
                                           Way{1, true}, Way{3, true}, Way{8, true}, Way{1, true, true},
                                           Way{1, false, true}),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

TEST(Replicated, FewerVirtualReplicasThanDevicesAreRefused) {
  auto f =
      function([](const Tensor& x) { return x + 1.0; },
               {.name = "few",
                .replicas = {.devices = one_thread_devices(3), .reproducible = true, .virtual_replicas = 2}});
  const Error error = error_of([&] { f(counting({8, 1})); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"few\""), HasSubstr("2 virtual"), HasSubstr("3 devices")));
}

TEST(Replicated, SumsWhoseShapeDependsOnTheSliceAreRefused) {
  auto f = function([](const Tensor& x) { return all_reduce_sum(x * 2.0); },
                    {.replicas = {.devices = one_thread_devices(2)}});
  const Error error = error_of([&] { f(counting({5, 2})); });  // slices of 3 and 2
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), HasSubstr("must not depend on the batch size"));
}

TEST(Replicated, ResultsAreOnTheFirstDevice) {
  const auto devices = one_thread_devices(3);
  auto f = function([](const Tensor& x) { return std::pair(x + 1.0, all_reduce_sum(reduce_sum(x))); },
                    {.replicas = {.devices = devices}});
  const auto [rows, sum] = f(counting({6, 1}));
  EXPECT_EQ(&rows.device(), devices[0]);
  EXPECT_EQ(&sum.device(), devices[0]);
}

}  // namespace
}  // namespace lockstep::execute
