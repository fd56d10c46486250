// Sums over logical GPUs, made beside the computation.
#include <thread>

#include "execute/all_reduce/gpu_tree.h"
#include "gpu/gpu.h"
#include "gpu/outcome.h"
#include "lockstep/execute/function.h"
#include "lockstep/observe/span.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "models/models.h"
#include "tensor/tensor_impl.h"

namespace lockstep::testing {
namespace {

class GpuOverlap : public Gpu {
 protected:
  static std::vector<Device*> gpus(int count) {
    std::vector<Device*> devices;
    for (int i = 0; i < count; ++i) devices.push_back(&gpu(i));
    return devices;
  }
};

template <class Model>
Outcome train(Model model, const Tensor& x, const Tensor& y, const ReplicaOptions& replicas, int steps) {
  auto optimizer = keras::optimizers::Adam();
  FunctionOptions options;
  options.replicas = replicas;
  auto step = function([&](const Tensor& in,
                           const Tensor& labels) { return models::train_step(model, optimizer, in, labels); },
                       options);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss = step(x, y);
    if (i % 3 == 2) outcome.losses.push_back(loss.to_vector<float>()[0]);
  }
  for (const Variable& variable : model.variables())
    outcome.weights.push_back(variable.value().template to_vector<float>());
  return outcome;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.weights, b.weights);
}

TEST_F(GpuOverlap, NoBitDependsOnTheBuckets) {
  const DeviceScope scope(gpu());
  const Tensor x = models::random_inputs({64, 784}, 1).to(gpu()), y = models::random_labels(64, 10, 2);
  for (const int count : {2, 4}) {
    const auto run = [&](int64_t bytes) {
      return train(models::Mlp(7), x, y, {.devices = gpus(count), .bucket_bytes = bytes}, 12);
    };
    const Outcome whole = run(0);
    for (const int64_t bytes : {int64_t{64}, int64_t{64} << 10, int64_t{-1}}) {
      SCOPED_TRACE(::testing::Message() << count << " GPUs, buckets of " << bytes << " bytes");
      expect_same_bits(whole, run(bytes));
    }
  }
}

// Batch normalisation over all replicas sums in the midst of both passes.
TEST_F(GpuOverlap, NoBitDependsOnTheNumberOfGpus) {
  const DeviceScope scope(gpu());
  const Tensor x = models::random_inputs({16, 28, 28, 1}, 1).to(gpu()), y = models::random_labels(16, 10, 2);
  const auto run = [&](int count) {
    return train(models::ConvNet(7, true), x, y,
                 {.devices = gpus(count), .reproducible = true, .bucket_bytes = 4096}, 9);
  };
  const Outcome one = run(1);
  for (const int count : {2, 4}) {
    SCOPED_TRACE(count);
    expect_same_bits(one, run(count));
  }
}

// A sum whose addends are there before a long computation is over when that ends, and the device waits for
// nothing; one whose addends come last is waited for.
TEST_F(GpuOverlap, SumsHappenBesideTheComputation) {
  using observe::Category;
  constexpr int64_t kCount = 1 << 20;
  const DeviceScope scope(gpu());
  execute::ReplicaLayout layout;
  layout.devices = gpus(2);
  layout.replicas = 2;
  layout.slices = execute::slice_batch(2, 2);
  // The first launch of a kernel loads its code, and the driver may wait for all that runs before: who waited
  // is looked at from the second time on.
  enum class Filled : uint8_t { for_warm_up, early, late };
  for (const Filled filled : {Filled::for_warm_up, Filled::early, Filled::late}) {
    SCOPED_TRACE(filled == Filled::late ? "late" : "early");
    const bool early = filled != Filled::late;
    TensorList addends, results, operands;
    for (int d = 0; d < 2; ++d) {
      addends.push_back(Tensor::full(DType::float32, {kCount}, d + 1.5, gpu(d)));
      results.push_back(Tensor::full(DType::float32, {kCount}, 0, gpu(d)));
      operands.push_back(Tensor::full(DType::float32, {8192, 8192}, 1, gpu(d)));
      matmul(operands.back(), operands.back());
      gpu(d).synchronize();
    }
    execute::ReplicaSum sum{.phase = 1,
                            .dtype = DType::float32,
                            .size = kCount,
                            .inputs = {addends[0].impl()->data(), addends[1].impl()->data()},
                            .results = {{results[0].impl()->data()}, {results[1].impl()->data()}},
                            .ready = {0, 0},
                            .conditions = {}};
    observe::StepClock clock({.replicas = 2});
    execute::StepObserver observer;
    observer.listen(&clock);
    execute::GpuTreeAllReduce sums(execute::ReplicaGroup(layout), {sum}, observer,
                                   execute::Addends::read_in_place);
    sums.begin_step();
    const auto run = [&](int d) {
      const DeviceScope here(gpu(d));
      observe::ReplicaClock& own = clock.replica(d);
      own.begin_step();
      own.enter(Category::compute, observe::ThreadState::blocks);
      Stream& stream = backend_of(gpu(d)).compute_stream();
      const auto fill = [&] { sums.marks(d, 1)[0].mark->reach(stream); };
      if (early) fill();
      // A few long launches: they are queued long before they have ended.
      for (int i = 0; i < 6; ++i) matmul(operands[static_cast<size_t>(d)], operands[static_cast<size_t>(d)]);
      if (!early) fill();
      EXPECT_TRUE(sums.finish(d, 1));
      for (const Event* event : sums.waits(d, 1)[0].events) event->wait(stream);
      gpu(d).synchronize();
      sums.attribute_waits(d, 0);
      own.leave();
      const observe::StepRecord record = own.end_step();
      // Counted where the device waited, not where the threads met.
      const int64_t exposed = record.times[Category::exposed_communication];
      if (filled == Filled::early) EXPECT_EQ(exposed, 0);
      if (filled == Filled::late) EXPECT_GT(exposed, 0);
      EXPECT_EQ(record.counts[observe::Counter::communication_bytes], kCount * 4);
    };
    std::thread other([&] { run(1); });
    run(0);
    other.join();
    for (const Tensor& result : results)
      EXPECT_EQ(result.to_vector<float>(), std::vector<float>(kCount, 4.f));
  }
}

// A deferred device error of a replica's kernel ends a later step, wherever the replica is; then all go on.
TEST_F(GpuOverlap, ABadLabelOfAnyReplicaEndsAStep) {
  const DeviceScope scope(gpu());
  models::Mlp model(7);
  auto optimizer = keras::optimizers::Adam();
  FunctionOptions options;
  options.replicas = {.devices = gpus(4), .bucket_bytes = 64};
  auto step = function(
      [&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); }, options);
  const Tensor x = models::random_inputs({64, 784}, 1).to(gpu());
  const Tensor good = models::random_labels(64, 10, 2);
  for (int i = 0; i < 4; ++i) step(x, good);
  for (const size_t example : {size_t{0}, size_t{63}}) {
    auto labels = good.to_vector<int32_t>();
    labels[example] = 99;
    const Tensor bad = Tensor::from(labels, {64});
    std::string message;
    for (int i = 0; i < 3 && message.empty(); ++i) {
      try {
        step(x, bad);
      } catch (const Error& error) {
        message = error.message();
      }
    }
    EXPECT_NE(message.find("is 99, but there are 10 classes"), std::string::npos) << message;
    // The step behind the one that failed may have found it as well.
    for (int i = 0; i < 4; ++i) {
      try {
        step(x, good);
      } catch (const Error&) {
        EXPECT_LT(i, 2);
      }
    }
  }
}

// A trace shows every bucket on every device, with the time that it took there.
TEST_F(GpuOverlap, TracesShowTheSums) {
  const DeviceScope scope(gpu());
  models::Mlp model(7);
  auto optimizer = keras::optimizers::Adam();
  FunctionOptions options;
  options.replicas = {.devices = gpus(2), .bucket_bytes = 64};
  auto step = function(
      [&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); }, options);
  const Tensor x = models::random_inputs({64, 784}, 1).to(gpu()), y = models::random_labels(64, 10, 2);
  for (int i = 0; i < 4; ++i) step(x, y);
  observe::start_tracing();
  step(x, y);
  gpu().synchronize();
  observe::stop_tracing();
  int sums[2] = {0, 0};
  for (const observe::Event& event : observe::take_trace().events) {
    if (std::string_view(event.category.c_str()) != "communication") continue;
    ASSERT_TRUE(event.device == 0 || event.device == 1);
    ++sums[event.device];
    EXPECT_GT(event.end_ns, event.start_ns);
  }
  EXPECT_GE(sums[0], 2) << "every weight is more than a bucket";
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace lockstep::testing
