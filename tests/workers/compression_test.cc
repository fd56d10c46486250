// Gradients that travel as bfloat16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tensor/tensor_impl.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using distribute::Compression;
using distribute::MultiWorkerMirroredStrategy;
using distribute::StrategyOptions;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSize = 1000;

StrategyOptions options() {
  const bool compressed = std::getenv("TEST_COMPRESSED") != nullptr;
  return {.reproducible = std::getenv("TEST_REPRODUCIBLE") != nullptr,
          .communication = {.timeout_seconds = 30,
                            .compression = compressed ? Compression::bf16 : Compression::none}};
}

// An element of the row of worker w: none of them is a bfloat16, and their sum is none either.
float element(int64_t worker, int64_t i) {
  return 1.0f + 0x1p-9f * static_cast<float>(3 * i + 1) + 0x1p-15f * static_cast<float>(worker + 1);
}
float rounded(float x) { return static_cast<float>(BFloat16(x)); }

// The gradient of w is the sum of the rows, one per worker; the loss is not rounded.
void sum_rows() {
  const MultiWorkerMirroredStrategy strategy(options());
  const int64_t count = strategy.num_workers();
  std::vector<float> rows;
  for (int64_t w = 0; w < count; ++w)
    for (int64_t i = 0; i < kSize; ++i) rows.push_back(element(w, i));
  Variable variable;
  std::optional<keras::optimizers::Optimizer> optimizer;
  {
    const auto scope = strategy.scope();
    variable = Variable(Tensor::full(DType::float32, {kSize}, 0), {.name = "w"});
    optimizer.emplace(keras::optimizers::SGD({.learning_rate = 1}));
  }
  const auto step = [&](const Tensor& x) {
    GradientTape tape;
    const Tensor loss = reduce_sum(x * variable);
    optimizer->apply_gradients(tape.gradient(loss, std::vector<Variable>{variable}), {variable});
    return distribute::all_reduce(distribute::ReduceOp::sum, reduce_sum(x));
  };
  const Tensor x = Tensor::from(rows, {count, kSize});
  const float sum = strategy.run(step, strategy.distribute(x)).at(0).item<float>();
  for (int i = 0; i < 15; ++i) strategy.run(step, strategy.distribute(x * 0.0));
  bool as_rounded = true, exact = true;
  const std::vector<float> made = variable.value().to_vector<float>();
  double whole = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    float of_rounded = 0, of_all = 0;
    for (int64_t w = 0; w < count; ++w) {
      of_rounded += rounded(element(w, i));
      of_all += element(w, i);
      whole += element(w, i);
    }
    as_rounded = as_rounded && -made[static_cast<size_t>(i)] == rounded(of_rounded);
    exact = exact && std::abs(-made[static_cast<size_t>(i)] - of_all) <= 1e-6f * of_all;
  }
  const int64_t bytes = strategy.summary().replicas[0].counts[observe::Counter::communication_bytes];
  report(detail::concat(as_rounded ? "as bfloat16"
                        : exact    ? "as float32"
                                   : "as something else",
                        ", ",
                        std::abs(sum - whole) < 1e-5 * whole ? "other sums exact" : "other sums rounded",
                        ", ", bytes > 0 ? "bytes counted" : "no bytes counted"));
  report(detail::concat("weights ",
                        crc32c(std::string_view(static_cast<const char*>(variable.value().impl()->data()),
                                                variable.value().spec().bytes()))));
}
const RegisterScenario summed("sum rows", sum_rows);

class Compressed : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static std::vector<WorkerResult> with(int workers, std::vector<std::string> environment) {
    environment.emplace_back("LOCKSTEP_LOG=info");
    return run({.scenario = "sum rows",
                .workers = workers,
                .launcher = GetParam(),
                .environment = std::move(environment)});
  }
};

TEST_P(Compressed, GradientsAreRoundedAndAddedInFloat32) {
  for (const int workers : {2, 3}) {
    const auto results = with(workers, {"TEST_COMPRESSED=1"});
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      EXPECT_THAT(worker.report, HasSubstr("as bfloat16, other sums exact, bytes counted\n"));
      EXPECT_EQ(worker.report, results[0].report);
    }
    // In the line about the engine, and in the report, whose lines end anywhere.
    const std::string& text = results[0].output;
    EXPECT_THAT(text, HasSubstr("gradients are sent as bfloat16\n"));
    const size_t report = text.find("all-reduce: ");
    ASSERT_NE(report, std::string::npos) << text;
    EXPECT_NE(text.find("bfloat16", report), std::string::npos) << text;
  }
}

TEST_P(Compressed, NotUnlessAskedFor) {
  const auto results = with(2, {});
  EXPECT_THAT(results[0].report, HasSubstr("as float32, other sums exact"));
  EXPECT_THAT(results[0].output, Not(HasSubstr("sent as bfloat16")));
}

TEST_P(Compressed, NotWithReproducible) {
  for (const WorkerResult& worker : with(2, {"TEST_COMPRESSED=1", "TEST_REPRODUCIBLE=1"})) {
    EXPECT_NE(worker.status, 0);
    EXPECT_THAT(worker.report, HasSubstr("Compression::bf16 and reproducible exclude each other"));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Compressed, ::testing::Values(Launcher::lockstep, Launcher::mpirun),
                         [](const auto& info) { return info.param == Launcher::mpirun ? "Mpi" : "Gloo"; });

}  // namespace
}  // namespace lockstep::testing
