// Random programs, run op by op, compiled, compiled for replicas, and with their ops and variables spread
// over devices: all must agree.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;
using lockstep::testing::two_thread_device;

constexpr int64_t kWidth = 6;

Tensor tensor_of(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = uniform(random);
  if (dtype == DType::float64) return Tensor::from(values, shape);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

std::vector<double> read(const Tensor& tensor) {
  if (tensor.dtype() == DType::float64) return tensor.to_vector<double>();
  const auto values = tensor.to_vector<float>();
  return {values.begin(), values.end()};
}

// A program is its seed: the same decisions wherever it runs. Its values are rows (batch, kWidth), which
// replicas share out, and vectors (kWidth) and matrices (kWidth, kWidth), which are the same for all.
// Every op keeps numbers of about one, so that a wrong value shows, and is continuous, so that rounding
// does not.
class Program {
 public:
  Program(unsigned seed, DType dtype, std::vector<Device*> spread)
      : seed_(seed), spread_(std::move(spread)), places_(seed) {
    for (unsigned i = 0; i < 3; ++i) {
      std::optional<DeviceScope> scope;
      go_somewhere(scope);
      vectors_.emplace_back(tensor_of(dtype, {kWidth}, seed * 31 + i),
                            VariableOptions{.name = "vector_" + std::to_string(i)});
      matrices_.emplace_back(tensor_of(dtype, {kWidth, kWidth}, seed * 37 + i),
                             VariableOptions{.name = "matrix_" + std::to_string(i)});
    }
    captured_ = transpose(tensor_of(dtype, {kWidth, kWidth}, seed * 41));
  }

  TensorList operator()(const Tensor& x, const Tensor& scalar) {
    random_.seed(seed_);
    places_.seed(seed_ + 1);
    rows_ = {x, x * scalar};
    invariant_vectors_ = {vectors_[0].value()};
    invariant_matrices_ = {matrices_[0].value(), captured_};
    const int length = 4 + choose(22);
    for (int i = 0; i < length; ++i) {
      std::optional<DeviceScope> scope;
      go_somewhere(scope);
      step();
    }
    TensorList results;
    for (int i = 0; i < 5; ++i) {
      const int kind = choose(4);
      results.push_back(kind == 0   ? any(invariant_vectors_)
                        : kind == 1 ? transpose(any(invariant_matrices_))
                                    : any(rows_));
    }
    return results;
  }

  std::vector<std::vector<double>> state() const {
    std::vector<std::vector<double>> all;
    for (const auto* list : {&vectors_, &matrices_})
      for (const Variable& variable : *list) all.push_back(read(variable.value()));
    return all;
  }

 private:
  int choose(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  // A scope of one of the devices or none; where there are none to choose from, none.
  void go_somewhere(std::optional<DeviceScope>& scope) {
    const size_t chosen = places_() % (spread_.size() + 1);
    if (chosen < spread_.size()) scope.emplace(*spread_[chosen]);
  }
  const Tensor& any(const TensorList& list) {
    return list[static_cast<size_t>(choose(static_cast<int>(list.size())))];
  }
  const Variable& any(const std::vector<Variable>& list) {
    return list[static_cast<size_t>(choose(static_cast<int>(list.size())))];
  }

  Tensor pointwise(const Tensor& a, const Tensor& b) {
    switch (choose(7)) {
      case 0: return a * 0.5 + b * 0.25;
      case 1: return tanh(a - b);
      case 2: return maximum(a, b);
      case 3: return where(a > 0.0, a, a * 0.25) + b * 0.5;
      case 4: return sigmoid(a) * b;
      case 5: return relu(a) - b * 0.5;
      default: return a * 1.0 - cast(b > 0.0, b.dtype()) * b;
    }
  }

  // Rows to rows.
  Tensor new_rows() {
    const Tensor& a = any(rows_);
    switch (choose(11)) {
      case 0: return pointwise(a, any(rows_));
      case 1: return pointwise(a, any(invariant_vectors_));
      case 2: return matmul(a, any(invariant_matrices_)) * 0.4;
      case 3:
        return tanh(matmul(a, any(invariant_matrices_), {.transpose_b = true}) + any(invariant_vectors_));
      case 4: return softmax(a);
      case 5:
        return concat(TensorList{slice(a, {0, 2}, {-1, kWidth - 2}), slice(any(rows_), {0, 0}, {-1, 2})}, 1);
      case 6: return transpose(pointwise(transpose(a), transpose(any(rows_))));
      case 7: return a - reduce_mean(a, {.axis = {1}, .keepdims = true});
      case 8: return branch(a);
      case 9: return loop(a);
      default: return reshape(transpose(reshape(a, {a.shape()[0], 2, kWidth / 2}), {0, 2, 1}), a.shape());
    }
  }

  // Both branches agree where the predicate turns.
  Tensor branch(const Tensor& a) {
    const Tensor turn = reduce_mean(any(invariant_vectors_));
    const Tensor b = any(rows_), matrix = any(invariant_matrices_);
    return cond(
        turn > 0.0, [&] { return a + matmul(b, matrix) * turn; }, [&] { return a - tanh(b) * turn; });
  }

  // Along the columns of rows, with what is the same in all iterations, in either direction; now and then
  // with a branch inside, or for the gradient.
  Tensor loop(const Tensor& a) {
    const Tensor vector = any(invariant_vectors_);
    const bool reverse = choose(2) == 0, inner = choose(2) == 0, differentiated = choose(2) == 0;
    GradientTape tape;
    tape.watch(a);
    const Tensor columns = transpose(a);
    const ScanResult result = scan(
        [&](std::span<const Tensor> carry, std::span<const Tensor> x) {
          Tensor next = tanh(carry[0] * 0.5 + x[0] + reduce_mean(vector));
          if (inner) {
            const Tensor turn = reduce_mean(vector);
            next = cond(
                turn > 0.0, [&] { return next * (turn + 0.5); }, [&] { return next * 0.5; });
          }
          return ScanResult{.carry = {next, carry[1] + square(x[0]) * 0.1}, .ys = {next, carry[1]}};
        },
        {reduce_mean(a, {.axis = {1}}), reduce_sum(a, {.axis = {1}}) * 0.1}, {columns}, {.reverse = reverse});
    const Tensor rows = transpose(result.ys[0]) + transpose(result.ys[1]) * 0.5;
    return differentiated ? tape.gradient(rows, a) * 0.3 : rows;
  }

  Tensor new_vector() {
    switch (choose(6)) {
      case 0: return pointwise(any(invariant_vectors_), any(invariant_vectors_));
      case 1: return squeeze(slice(any(invariant_matrices_), {choose(kWidth), 0}, {1, kWidth}), {0});
      case 2: return reduce_mean(any(invariant_matrices_), {.axis = {0}});
      case 3: return any(vectors_).value();
      default: {
        const Tensor& rows = any(rows_);
        return all_reduce_sum(reduce_sum(rows, {.axis = {0}})) *
               (1.0 / static_cast<double>(global_batch_size(rows)));
      }
    }
  }

  Tensor new_matrix() {
    switch (choose(7)) {
      case 0: return pointwise(any(invariant_matrices_), any(invariant_matrices_));
      case 1: return pointwise(any(invariant_matrices_), transpose(any(invariant_matrices_)));
      case 2: return matmul(any(invariant_matrices_), any(invariant_matrices_)) * 0.3;
      case 3: return transpose(any(invariant_matrices_));
      case 4: return any(matrices_).value();
      default: {
        const Tensor& rows = any(rows_);
        const Tensor gram = matmul(rows, any(rows_), {.transpose_a = true});
        const Tensor sum = all_reduce_sum(choose(2) == 0 ? gram : transpose(gram));
        return sum * (1.0 / static_cast<double>(global_batch_size(rows)));
      }
    }
  }

  void step() {
    switch (choose(11)) {
      case 10: {
        const Variable& variable = any(vectors_);
        const Tensor vector = any(invariant_vectors_);
        invariant_vectors_.push_back(scan(
                                         [&](std::span<const Tensor> carry, std::span<const Tensor>) {
                                           variable.assign(variable * 0.5 + vector * 0.25);
                                           return ScanResult{.carry = {carry[0] * 0.5 + variable * 0.5},
                                                             .ys = {}};
                                         },
                                         {vector}, {}, {.length = 3})
                                         .carry[0]);
        return;
      }
      case 0:
      case 1:
      case 2:
      case 3: return rows_.push_back(new_rows());
      case 4:
      case 5: return invariant_vectors_.push_back(new_vector());
      case 6:
      case 7: return invariant_matrices_.push_back(new_matrix());
      case 8: {
        const Variable& variable = any(vectors_);
        return variable.assign(choose(3) == 0 ? variable * 0.5 + any(invariant_vectors_) * 0.5
                                              : any(invariant_vectors_));
      }
      default: {
        const Variable& variable = any(matrices_);
        return variable.assign(choose(3) == 0 ? variable * 0.5 + transpose(variable) * 0.5
                                              : any(invariant_matrices_));
      }
    }
  }

  unsigned seed_;
  std::vector<Device*> spread_;
  std::mt19937 random_, places_;
  std::vector<Variable> vectors_, matrices_;
  Tensor captured_;
  TensorList rows_, invariant_vectors_, invariant_matrices_;
};

struct Outcome {
  std::vector<std::vector<double>> results;
  std::vector<std::vector<double>> state;
};

Outcome run(unsigned seed, DType dtype, int64_t batch, bool eager, const ReplicaOptions& replicas,
            const std::vector<Device*>& spread = {}) {
  Program program(seed, dtype, spread);
  const auto body = [&](const Tensor& x, const Tensor& scalar) { return program(x, scalar); };
  auto compiled = function(body, {.name = "program_" + std::to_string(seed), .replicas = replicas});
  const Tensor scalar = tensor_of(dtype, {}, seed + 5);
  Outcome outcome;
  // The second run starts from what the first one left, in memory that was used before.
  for (unsigned i = 0; i < 2; ++i) {
    const Tensor x = tensor_of(dtype, {batch, kWidth}, seed * 43 + i);
    for (const Tensor& result : eager ? body(x, scalar) : compiled(x, scalar))
      outcome.results.push_back(read(result));
  }
  outcome.state = program.state();
  return outcome;
}

void expect_close(const std::vector<std::vector<double>>& expected,
                  const std::vector<std::vector<double>>& actual, double bound) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_EQ(expected[t].size(), actual[t].size()) << "tensor " << t;
    for (size_t i = 0; i < expected[t].size(); ++i)
      ASSERT_NEAR(expected[t][i], actual[t][i], bound * (1 + std::abs(expected[t][i])))
          << "tensor " << t << " element " << i;
  }
}

void check_program(unsigned seed) {
  const DType dtype = seed % 2 == 0 ? DType::float64 : DType::float32;
  const double bound = dtype == DType::float64 ? 1e-10 : 2e-4;
  const int64_t batch = 1 + static_cast<int64_t>(seed * 7 % 19);
  const Outcome expected = run(seed, dtype, batch, true, {});
  const auto check = [&](const char* way, const ReplicaOptions& replicas, bool eager = false,
                         const std::vector<Device*>& spread = {}) {
    SCOPED_TRACE(::testing::Message() << way << ", seed " << seed << ", batch " << batch);
    const Outcome outcome = run(seed, dtype, batch, eager, replicas, spread);
    expect_close(expected.results, outcome.results, bound);
    expect_close(expected.state, outcome.state, bound);
  };
  check("compiled", {});
  check("one device", {.devices = one_thread_devices(1)});
  check("three devices", {.devices = one_thread_devices(3)});
  check("two devices, reproducible", {.devices = one_thread_devices(2), .reproducible = true});
  check("two threads, reproducible", {.devices = {&two_thread_device()}, .reproducible = true});
  check("spread over devices, op by op", {}, true, one_thread_devices(3));
  check("spread over devices, compiled", {}, false, one_thread_devices(3));
}

TEST(RandomPrograms, AgreeHoweverTheyAreRun) {
  for (unsigned seed = 0; seed < 40 && !::testing::Test::HasFailure(); ++seed) check_program(seed);
}

TEST(RandomPrograms, LongAgreeHoweverTheyAreRun) {
  for (unsigned seed = 1000; seed < 2000 && !::testing::Test::HasFailure(); ++seed) check_program(seed);
}

}  // namespace
}  // namespace lockstep::execute
