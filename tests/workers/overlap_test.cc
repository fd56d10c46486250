// Sums between processes are made while the backward pass goes on: here the pass does not go on before one of
// them has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/workers.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using distribute::MultiWorkerMirroredStrategy;

// Of this process.
comm::Workers* workers = nullptr;
std::atomic<int64_t> ended_before{0};

// Collectives that the engine has ended, as the flight recorder knows them.
int64_t ended() {
  const std::string record = workers->flight_record();
  int64_t count = 0;
  for (size_t at = record.find(" took "); at != std::string::npos; at = record.find(" took ", at + 1))
    ++count;
  return count;
}

// A copy whose kernel returns when a collective of this step has ended.
constinit const OpDef kAfterASum{
    .name = "test_after_a_sum",
    .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; },
};
const RegisterOp registered_after(kAfterASum);

class AfterASum final : public Kernel {
 public:
  explicit AfterASum(const KernelRequest& request) : bytes_(request.inputs[0].spec.bytes()) {}
  void launch(const LaunchArgs& args) const override {
    // Were sums made behind the backward pass, this would wait for ever.
    constexpr int kPatience = 10'000;
    for (int waited = 0; ended() <= ended_before; ++waited) {
      require(waited < kPatience, ErrorCode::internal, std::source_location::current(),
              "no sum has been made while the backward pass was under way");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::memcpy(args.outputs[0], args.inputs[0], bytes_);
  }

 private:
  const size_t bytes_;
};
const RegisterKernel registered_kernel(
    DeviceKind::cpu, kAfterASum, {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
      return std::make_unique<AfterASum>(request);
    }});

// Forward a copy, backward that.
constinit const OpDef kTurn{.name = "test_turn",
                            .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; },
                            .grad = [](const GradContext& g) -> TensorList {
                              return {emit_one(kAfterASum, {g.dout()}, {}, std::source_location::current())};
                            }};
const RegisterOp registered_turn(kTurn);
const RegisterKernel registered_copy(DeviceKind::cpu, kTurn,
                                     {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                                       class Copy final : public Kernel {
                                        public:
                                         explicit Copy(size_t bytes) : bytes_(bytes) {}
                                         void launch(const LaunchArgs& args) const override {
                                           std::memcpy(args.outputs[0], args.inputs[0], bytes_);
                                         }

                                        private:
                                         const size_t bytes_;
                                       };
                                       return std::make_unique<Copy>(request.inputs[0].spec.bytes());
                                     }});

// Three layers, and the turn behind the first of them: the gradient of the last is summed before that of the
// first is computed.
void overlap() {
  const char* const reproducible = std::getenv("TEST_REPRODUCIBLE");
  const MultiWorkerMirroredStrategy strategy({.bucket_bytes = 1024,
                                              .reproducible = reproducible != nullptr,
                                              .virtual_replicas = 2,  // one per worker: the last of it
                                              .report = false,
                                              .communication = {.timeout_seconds = 60}});
  workers = strategy.workers().get();
  std::vector<Variable> layers;
  {
    const auto scope = strategy.scope();
    for (const char* name : {"first", "second", "third"})
      layers.emplace_back(Tensor::full(DType::float32, {32, 32}, 0.03125), VariableOptions{.name = name});
  }
  const Tensor x = Tensor::full(DType::float32, {8, 32}, 1);
  const auto step = [&](const Tensor& rows) {
    GradientTape tape;
    const Tensor hidden = emit_one(kTurn, {matmul(rows, layers[0])}, {}, std::source_location::current());
    const Tensor out = matmul(matmul(hidden, layers[1]), layers[2]);
    const Tensor loss = distribute::global_mean(reduce_sum(out * out, {.axis = {1}}));
    const TensorList gradients = all_reduce_sum(tape.gradient(loss, layers), std::source_location::current());
    for (size_t i = 0; i < layers.size(); ++i) layers[i].assign_sub(gradients[i] * 0.0009765625);
    return loss;
  };
  for (int i = 0; i < 3; ++i) {
    ended_before = ended();
    strategy.run(step, strategy.distribute(x));
  }
  for (const Variable& layer : layers) report(std::to_string(layer.value().to_vector<float>()[0]));
}
const RegisterScenario overlapped("overlap", overlap);

class Overlap : public ::testing::TestWithParam<Launcher> {};

TEST_P(Overlap, ASumEndsWhileTheBackwardPassGoesOn) {
  if (const std::string why = missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  std::string reported;
  for (const bool reproducible : {false, true}) {
    const auto results = run({.scenario = "overlap",
                              .workers = 2,
                              .launcher = GetParam(),
                              .environment = reproducible ? std::vector<std::string>{"TEST_REPRODUCIBLE=1"}
                                                          : std::vector<std::string>{}});
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      if (reported.empty()) reported = worker.report;
      EXPECT_EQ(worker.report, reported);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Overlap, ::testing::Values(Launcher::lockstep, Launcher::mpirun),
                         [](const auto& info) { return info.param == Launcher::mpirun ? "Mpi" : "Gloo"; });

}  // namespace
}  // namespace lockstep::testing
