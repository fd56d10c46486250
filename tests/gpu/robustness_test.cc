// What must not change with time or place: memory over thousands of steps, checkpoints between devices,
// training in 16 bits; and that asynchronous copies from the host overlap with compute.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "gpu/gpu.h"
#include "lockstep/data/dataset.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/datasets.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/checkpoint.h"
#include "models/models.h"
#include "tensor/tensor_impl.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

using GpuRobustness = Gpu;

using Bits = std::vector<std::vector<float>>;

Bits bits_of(const std::vector<Variable>& variables) {
  Bits bits;
  for (const Variable& variable : variables)
    bits.push_back(cast(variable.value(), DType::float32).to_vector<float>());
  return bits;
}

// --- checkpoints between devices ---

struct Trained {
  models::Mlp model{3};
  keras::optimizers::Optimizer optimizer = keras::optimizers::Adam();
  std::vector<double> losses;

  Trained() { optimizer.build(model.variables()); }
  void train(int first, int last) {
    auto step = function(
        [&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); });
    for (int i = first; i < last; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      losses.push_back(
          step(models::random_inputs({32, 784}, seed), models::random_labels(32, 10, seed)).item<float>());
    }
  }
  train::Checkpoint checkpoint() {
    return train::Checkpoint({{"model", model.variables()}, {"optimizer", optimizer}});
  }
};

TEST_F(GpuRobustness, CheckpointsCrossBetweenCpuAndGpu) {
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep_cross_" + std::to_string(getpid()));
  for (const bool from_cpu : {true, false}) {
    SCOPED_TRACE(from_cpu ? "from the CPU to the GPU" : "from the GPU to the CPU");
    Device& first = from_cpu ? cpu() : gpu();
    Device& second = from_cpu ? gpu() : cpu();
    std::string path;
    Bits written, state;
    std::vector<double> next;
    {
      const DeviceScope scope(first);
      Trained run;
      run.train(0, 4);
      path = run.checkpoint().save((folder / "run").string(), {.asynchronous = false});
      written = bits_of(run.model.variables());
      state = bits_of(run.optimizer.variables());
      run.train(4, 8);
      next.assign(run.losses.begin() + 4, run.losses.end());
    }
    const DeviceScope scope(second);
    Trained run;
    run.checkpoint().restore(path);
    EXPECT_EQ(run.model.variables()[0].value().device().kind(), second.kind());
    EXPECT_EQ(bits_of(run.model.variables()), written);
    EXPECT_EQ(bits_of(run.optimizer.variables()), state);
    // And back, to the bit.
    const std::string back = run.checkpoint().save((folder / "back").string(), {.asynchronous = false});
    run.train(4, 8);
    ASSERT_EQ(run.losses.size(), next.size());
    for (size_t i = 0; i < next.size(); ++i)
      EXPECT_NEAR(run.losses[i], next[i], 1e-4 * std::abs(next[i])) << i;
    const DeviceScope home(first);
    Trained again;
    again.checkpoint().restore(back);
    EXPECT_EQ(bits_of(again.model.variables()), written);
    EXPECT_EQ(bits_of(again.optimizer.variables()), state);
  }
  std::filesystem::remove_all(folder);
}

// --- ten thousand steps ---

TEST_F(GpuRobustness, LongTenThousandStepsByHandTakeNoMoreMemory) {
  const DeviceScope scope(gpu());
  Trained run;
  auto step = function(
      [&](const Tensor& x, const Tensor& y) { return models::train_step(run.model, run.optimizer, x, y); });
  std::vector<Tensor> xs, ys;
  for (uint64_t i = 0; i < 16; ++i) {
    xs.push_back(models::random_inputs({32, 784}, i).to(cpu()));
    ys.push_back(models::random_labels(32, 10, i).to(cpu()));
  }
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i) % xs.size();
      const Tensor loss = step(xs[at], ys[at]);
      if (i % 100 == 0) {
        ASSERT_TRUE(std::isfinite(loss.item<float>()));
      }
    }
    gpu().synchronize();
  };
  steps(200);
  const MemoryInfo before = gpu().memory_info();
  steps(10'000);
  const MemoryInfo after = gpu().memory_info();
  EXPECT_EQ(after.current, before.current);
  EXPECT_EQ(after.reserved, before.reserved);
}

TEST_F(GpuRobustness, LongTenThousandStepsOfFitTakeNoMoreMemory) {
  const DeviceScope scope(gpu());
  set_random_seed(5);
  keras::Sequential model({keras::layers::Dense(64, {.activation = "relu", .input_shape = {32}}),
                           keras::layers::Dropout(0.1), keras::layers::Dense(4)});
  model.compile({.optimizer = keras::optimizers::Adam(),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const Tensor x = models::random_inputs({32'000, 32}, 1).to(cpu());
  const Tensor y = models::random_labels(32'000, 4, 2).to(cpu());
  const keras::FitOptions options{.batch_size = 32, .epochs = 2, .verbose = 0};
  // Twice: the second fit's batches lie elsewhere, and an argument that moves gets a staging copy of its own,
  // once.
  model.fit({x, y}, options);
  model.fit({x, y}, options);
  const MemoryInfo before = gpu().memory_info();
  keras::FitOptions longer = options;
  longer.epochs = 10;
  const keras::History history = model.fit({x, y}, longer);
  const MemoryInfo after = gpu().memory_info();
  EXPECT_EQ(after.current, before.current);
  EXPECT_EQ(after.reserved, before.reserved);
  ASSERT_EQ(history.time.memory.size(), 1u);
  for (const auto& use : history.time.memory[0].uses) EXPECT_LE(use.grown, 0) << use.name;
}

// --- 16 bits ---

struct MixedRun {
  std::vector<double> losses;
  double scale = 0;
};

MixedRun train_mixed(Device& device, const char* policy) {
  const DeviceScope scope(device);
  set_random_seed(11);
  keras::mixed_precision::set_global_policy(policy);
  auto [train, test] = keras::datasets::digits();
  keras::Sequential model({keras::layers::Reshape({28, 28, 1}, {.input_shape = {28, 28}}),
                           keras::layers::Conv2D(8, {3}, {.activation = "relu"}),
                           keras::layers::MaxPooling2D(), keras::layers::Flatten(),
                           keras::layers::Dense(32, {.activation = "relu"}),
                           keras::layers::Dense(10, {.dtype = "float32"})});
  model.compile({.optimizer = keras::optimizers::Adam(),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const keras::History history = model.fit(
      train, {.batch_size = 64, .epochs = 3, .verbose = 0, .shuffle = false, .steps_per_epoch = 40});
  keras::mixed_precision::set_global_policy("float32");
  for (const Variable& weight : model.weights())
    EXPECT_EQ(weight.spec().dtype, DType::float32) << weight.name();
  MixedRun run{history["loss"]};
  for (const Variable& v : model.optimizer().variables())
    if (v.name().find("dynamic_scale") != std::string::npos) run.scale = v.value().item<float>();
  return run;
}

TEST_F(GpuRobustness, LongMixedPrecisionTrainsAsOnTheCpu) {
  const std::vector<double> full = train_mixed(gpu(), "float32").losses;
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    SCOPED_TRACE(policy);
    const MixedRun on_cpu = train_mixed(cpu(), policy), on_gpu = train_mixed(gpu(), policy);
    // The first steps of float16 are left out until the scale fits, so that it learns a little later.
    const bool scales = std::string(policy) == "mixed_float16";
    ASSERT_EQ(on_gpu.losses.size(), full.size());
    for (size_t i = 0; i < full.size(); ++i) {
      EXPECT_NEAR(on_gpu.losses[i], on_cpu.losses[i], 0.05 * on_cpu.losses[i]);
      if (!scales) {
        EXPECT_NEAR(on_gpu.losses[i], full[i], 0.05 * full[i]) << "against float32";
      }
    }
    EXPECT_LT(on_gpu.losses.back(), 0.7 * on_gpu.losses.front());
    EXPECT_EQ(on_gpu.scale > 1, scales);
    EXPECT_EQ(on_gpu.scale, on_cpu.scale);
  }
}

// --- asynchronous copies from the host ---

// Copies through more pinned memory than there is can only return while copies happen; the computation that
// was queued before them has not ended by then.
TEST_F(GpuRobustness, PrefetchCopiesOverlapWithCompute) {
  DeviceBackend& device = backend_of(gpu());
  const auto begun = device.new_event(Event::Timed::yes), ended = device.new_event(Event::Timed::yes);
  const auto busy = [&] { return ended->ns_since(*begun) == 0; };
  const DeviceScope scope(gpu());
  const Tensor a = Tensor::full(DType::float32, {4096, 4096}, 1e-4);
  const auto compute = [&](int times) {
    Tensor b = a;
    for (int i = 0; i < times; ++i) b = matmul(b, a);
    return b;
  };
  constexpr size_t kBytes = size_t{24} << 20;  // half as much again as is pinned
  const std::vector<char> bytes(kBytes, 7);
  // Twice: the second one gets the first one's memory.
  for (int round = 0; round < 2; ++round) {
    compute(2);
    gpu().synchronize();
    std::unique_ptr<Storage> prefetched;
    if (round == 0) {
      // What the device used before must be free of readers: nothing is queued.
      prefetched = std::make_unique<Storage>(gpu(), kBytes, std::source_location::current(), true);
    }
    begun->record(device.compute_stream());
    const Tensor last = compute(100);
    ended->record(device.compute_stream());
    ASSERT_TRUE(busy()) << "the computation was too short";
    if (!prefetched)
      prefetched = std::make_unique<Storage>(gpu(), kBytes, std::source_location::current(), true);
    device.copy_from_host(prefetched->data(), bytes.data(), kBytes);
    EXPECT_TRUE(busy()) << "the copy has waited for the computation, round " << round;
    std::vector<char> back(kBytes);
    device.copy_to_host(back.data(), prefetched->data(), kBytes);
    EXPECT_EQ(back, bytes);
  }
}

// Blocks go round while kernels still read them: every batch must arrive as it was sent.
TEST_F(GpuRobustness, PrefetchedBatchesAreNeverOverwrittenTooSoon) {
  const DeviceScope scope(gpu());
  constexpr int64_t kRows = 512, kColumns = 1024;
  const Tensor weights = Tensor::full(DType::float32, {kColumns, kColumns}, 1.0 / kColumns);
  auto slow = function([&](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = matmul(y, weights);
    return y;
  });
  const auto batches = data::Dataset::range(60)
                           .map([](const Tensor& i) {
                             return cast(broadcast_to(i, {kRows, kColumns}), DType::float32);
                           })
                           .prefetch_to_device(gpu(), 3);
  std::vector<Tensor> results;
  for (const data::Element& element : batches) results.push_back(slow(element.tensor()));
  ASSERT_EQ(results.size(), 60u);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto values = results[i].to_vector<float>();
    for (const size_t at : {size_t{0}, values.size() / 2, values.size() - 1})
      ASSERT_NEAR(values[at], static_cast<float>(i), 1e-3f * static_cast<float>(i)) << "batch " << i;
  }
}

// The same from the host's memory, batch by batch.
TEST_F(GpuRobustness, LargeInputsFromTheHostArriveAsTheyWere) {
  const DeviceScope scope(gpu());
  auto step = function([](const Tensor& x) { return reduce_sum(x); });
  std::vector<Tensor> results;
  for (int i = 0; i < 40; ++i) results.push_back(step(Tensor::full(DType::float32, {1024, 1024}, i, cpu())));
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(results[static_cast<size_t>(i)].item<float>(), static_cast<float>(i) * 1024 * 1024);
}

TEST_F(GpuRobustness, OutOfMemoryNamesOtherProcessesWhereTheyAreKnown) {
  try {
    Tensor::empty(DType::float32, {int64_t{1} << 31}, gpu());
    FAIL() << "8 GiB fit into a limit of 4";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), ::testing::Not(HasSubstr("(" + std::to_string(getpid()) + ")")));
  }
}

}  // namespace
}  // namespace lockstep::testing
