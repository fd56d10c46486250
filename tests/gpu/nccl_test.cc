// NCCL between processes. Two run on the one GPU; what several GPUs do beyond that is not run here.
#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "comm/communicator.h"
#include "device/device_backend.h"
#include "gpu/gpu.h"
#include "gpu/ranks.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "models/models.h"
#include "tensor/tensor_impl.h"

namespace lockstep::testing {
namespace {

using comm::Communicator;
using comm::Group;
using ::testing::AllOf;
using ::testing::HasSubstr;

void must(bool condition, const std::string& what) {
  require(condition, ErrorCode::internal, std::source_location::current(), what);
}

Device& gpu() { return device_by_name("/GPU:0"); }
Stream& gpu_stream() { return backend_of(gpu()).compute_stream(); }
void* data_of(const Tensor& tensor) { return tensor.impl()->data(); }

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return static_cast<float>(value);
  else
    return static_cast<double>(value);
}

// Small whole numbers that differ by rank and position: sums are exact in every type.
double value_at(int rank, int64_t i) { return static_cast<double>((i * 7 + 3 * rank) % 11 + rank); }

template <class T>
Tensor numbers(int rank, int64_t count, DType dtype) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double value = value_at(rank, i);
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
      values[static_cast<size_t>(i)] = T(static_cast<float>(value));
    else
      values[static_cast<size_t>(i)] = static_cast<T>(value);
  }
  const DeviceScope scope(gpu());
  Tensor tensor = Tensor::from(values, {count});
  must(tensor.dtype() == dtype, "the test made another type");
  return tensor;
}

template <class T>
void collect(Communicator& communicator, DType dtype, int64_t count) {
  const int rank = communicator.rank(), size = communicator.size();
  Stream& stream = gpu_stream();
  const std::string what = detail::concat(" of ", count, " ", dtype);
  const Tensor own = numbers<T>(rank, count, dtype);
  const Tensor sum = Tensor::full(dtype, {count}, 99, gpu());
  const Tensor in_place = numbers<T>(rank, count, dtype);
  const Tensor all = Tensor::full(dtype, {size * count}, 99, gpu());
  const Tensor sent = numbers<T>(rank, count, dtype);
  communicator.all_reduce_sum(data_of(own), data_of(sum), count, dtype, stream);
  communicator.all_reduce_sum(data_of(in_place), data_of(in_place), count, dtype, stream);
  communicator.all_gather(data_of(own), data_of(all), count, dtype, stream);
  communicator.broadcast(data_of(sent), data_of(sent), count, dtype, size - 1, stream);
  communicator.wait(stream);
  const auto sums = sum.to_vector<T>(), sums_in_place = in_place.to_vector<T>(), parts = all.to_vector<T>(),
             received = sent.to_vector<T>();
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    double expected = 0;
    for (int r = 0; r < size; ++r) expected += value_at(r, i);
    must(as_double(sums[at]) == expected, detail::concat("all_reduce_sum", what, " at ", i));
    must(as_double(sums_in_place[at]) == expected,
         detail::concat("all_reduce_sum in place", what, " at ", i));
    must(as_double(received[at]) == value_at(size - 1, i), detail::concat("broadcast", what, " at ", i));
    for (int r = 0; r < size; ++r)
      must(as_double(parts[static_cast<size_t>(r * count + i)]) == value_at(r, i),
           detail::concat("all_gather", what, " of rank ", r, " at ", i));
  }
}

void collectives(int rank, int size, const std::string& address) {
  Group group({.address = address, .rank = rank, .size = size, .timeout_s = 60});
  const auto communicator = comm::join(group, gpu(), {.timeout_s = 60});
  must(communicator->rank() == rank && communicator->size() == size, "rank and size");
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{1000}, int64_t{4097}, int64_t{1'000'003}}) {
    collect<float>(*communicator, DType::float32, count);
    collect<double>(*communicator, DType::float64, count);
    collect<BFloat16>(*communicator, DType::bfloat16, count);
    collect<Float16>(*communicator, DType::float16, count);
    collect<int32_t>(*communicator, DType::int32, count);
    collect<int64_t>(*communicator, DType::int64, count);
  }
  // Many as one launch.
  std::vector<Tensor> many;
  communicator->begin_batch();
  for (int64_t i = 0; i < 20; ++i) {
    many.push_back(numbers<float>(rank, 1 + 777 * i, DType::float32));
    communicator->all_reduce_sum(data_of(many.back()), data_of(many.back()), 1 + 777 * i, DType::float32,
                                 gpu_stream());
  }
  communicator->end_batch();
  communicator->barrier(gpu_stream());
  for (const Tensor& tensor : many) {
    double expected = 0;
    for (int r = 0; r < size; ++r) expected += value_at(r, tensor.size() - 1);
    must(tensor.to_vector<float>().back() == expected, "sums of a batch");
  }
  communicator->check();
}
const RegisterScenario collectives_scenario("collectives", collectives);

// A captured sum is replayed, with new values each time.
void captured(int rank, int size, const std::string& address) {
  Group group({.address = address, .rank = rank, .size = size, .timeout_s = 60});
  const auto communicator = comm::join(group, gpu(), {.timeout_s = 60});
  constexpr int64_t kCount = 5000;
  const Tensor values = Tensor::full(DType::float32, {kCount}, 1, gpu());
  const Tensor sum = Tensor::full(DType::float32, {kCount}, 0, gpu());
  const auto add_up = [&](Stream& stream) {
    communicator->all_reduce_sum(data_of(values), data_of(sum), kCount, DType::float32, stream);
  };
  add_up(gpu_stream());
  communicator->wait(gpu_stream());
  const CapturedLaunch launches[] = {{add_up, {}}};
  const auto graph = backend_of(gpu()).capture_graph(launches);
  for (int i = 1; i <= 10; ++i) {
    const float value = static_cast<float>(i * (rank + 1));
    gpu_stream().fill(data_of(values), std::bit_cast<uint32_t>(value), sizeof value, kCount);
    graph->replay(gpu_stream());
    communicator->watch("captured sum", gpu_stream());
    communicator->wait(gpu_stream());
    for (const float x : sum.to_vector<float>())
      must(x == static_cast<float>(i * size * (size + 1)) / 2, "a captured sum");
  }
}
const RegisterScenario captured_scenario("captured", captured);

void expect_failure(const std::function<void()>& f, const std::vector<std::string>& words) {
  try {
    f();
  } catch (const Error& error) {
    std::printf("%s\n", error.message().c_str());
    must(error.code() == ErrorCode::io, "another error: " + error.message());
    for (const std::string& word : words)
      must(error.message().find(word) != std::string::npos, "\"" + word + "\" is not in: " + error.message());
    return;
  }
  fail(ErrorCode::internal, std::source_location::current(), "nothing failed");
}

void sum_once(Communicator& communicator, const Tensor& values) {
  communicator.all_reduce_sum(data_of(values), data_of(values), values.size(), DType::float32, gpu_stream());
  communicator.wait(gpu_stream());
}

// The last rank dies between two sums: the others learn it, although NCCL's kernel waits on the GPU.
void killed(int rank, int size, const std::string& address) {
  Group group({.address = address, .rank = rank, .size = size, .timeout_s = 60});
  const auto communicator = comm::join(group, gpu(), {.timeout_s = 60});
  const Tensor values = Tensor::full(DType::float32, {100'000}, 1, gpu());
  for (int i = 0; i < 3; ++i) sum_once(*communicator, values);
  if (rank == size - 1) {
    // The others wait for it by then.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    raise(SIGKILL);
  }
  const std::vector<std::string> words = {"rank " + std::to_string(rank) + " of",
                                          "all_reduce_sum of 100000 float32",
                                          "rank " + std::to_string(size - 1) + " (process", "is gone"};
  expect_failure([&] { sum_once(*communicator, values); }, words);
  // And stays so.
  expect_failure([&] { sum_once(*communicator, values); }, {"is gone"});
  // The GPU is as usable as before.
  must((values * 0.0 + 2.0).to_vector<float>()[7] == 2.f, "the GPU computes");
}
const RegisterScenario killed_scenario("killed", killed);

// The last rank lives, but does not come: when the time is over the others say so.
void stalled(int rank, int size, const std::string& address) {
  Group group({.address = address, .rank = rank, .size = size, .timeout_s = 60});
  const auto communicator = comm::join(group, gpu(), {.timeout_s = rank == size - 1 ? 60.0 : 3.0});
  const Tensor values = Tensor::full(DType::float32, {1000}, 1, gpu());
  for (int i = 0; i < 3; ++i) sum_once(*communicator, values);
  if (rank == size - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(8));
    communicator->abort("the test is over");
    return;
  }
  expect_failure(
      [&] { sum_once(*communicator, values); },
      {"has not ended within 3 s", "rank " + std::to_string(size - 1) + " (process", "has begun 3"});
}
const RegisterScenario stalled_scenario("stalled", stalled);

// Data parallel by hand: every rank has its half of the batch, gradients are summed, weights stay the same.
void trains(int rank, int size, const std::string& address) {
  Group group({.address = address, .rank = rank, .size = size, .timeout_s = 60});
  const auto communicator = comm::join(group, gpu(), {.timeout_s = 60});
  const DeviceScope scope(gpu());
  constexpr int64_t kBatch = 64;
  constexpr int kSteps = 12;
  const auto gradients_of = [](models::Mlp& model, const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor loss = models::mean_loss(model.logits(x, true), y);
    TensorList all = tape.gradient(loss, model.variables());
    all.push_back(loss);
    return all;
  };
  const auto train = [&](bool together) {
    models::Mlp model(7);
    auto optimizer = keras::optimizers::Adam();
    auto gradients = function([&](const Tensor& x, const Tensor& y) { return gradients_of(model, x, y); });
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      Tensor x = models::random_inputs({kBatch, 784}, seed), y = models::random_labels(kBatch, 10, seed);
      const int64_t share = together ? kBatch / size : kBatch, begin = together ? rank * share : 0;
      x = slice(x, {begin, 0}, {share, 784});
      y = slice(y, {begin}, {share});
      TensorList all = gradients(x, y);
      if (together) {
        communicator->begin_batch();
        for (const Tensor& g : all)
          communicator->all_reduce_sum(data_of(g), data_of(g), g.size(), DType::float32, gpu_stream());
        communicator->end_batch();
        communicator->check();
        for (Tensor& g : all) g = g / static_cast<double>(size);
      }
      losses.push_back(all.back().item<float>());
      all.pop_back();
      optimizer.apply_gradients(all, model.variables());
    }
    std::vector<std::vector<float>> weights;
    for (const Variable& v : model.variables()) weights.push_back(v.value().to_vector<float>());
    return std::pair(losses, weights);
  };
  const auto [losses, weights] = train(true);
  const auto [expected_losses, expected] = train(false);
  for (size_t i = 0; i < losses.size(); ++i)
    must(std::abs(losses[i] - expected_losses[i]) < 1e-4 * std::abs(expected_losses[i]),
         detail::concat("loss of step ", i, ": ", losses[i], " and ", expected_losses[i]));
  for (size_t v = 0; v < weights.size(); ++v) {
    const auto count = static_cast<int64_t>(weights[v].size());
    for (size_t i = 0; i < weights[v].size(); ++i)
      must(std::abs(weights[v][i] - expected[v][i]) < 2e-3, detail::concat("weight ", v, " at ", i));
    // In lockstep: the same bits everywhere.
    const Tensor own = Tensor::from(weights[v], {count});
    const Tensor all = Tensor::full(DType::float32, {size * count}, 0, gpu());
    communicator->all_gather(data_of(own), data_of(all), count, DType::float32, gpu_stream());
    communicator->wait(gpu_stream());
    const auto every = all.to_vector<float>();
    for (size_t i = 0; i < every.size(); ++i)
      must(every[i] == weights[v][i % weights[v].size()], "weights differ between the ranks");
  }
}
const RegisterScenario trains_scenario("trains", trains);

class GpuNccl : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    if (const std::string missing = comm::missing_backend("nccl"); !missing.empty()) GTEST_SKIP() << missing;
  }
  static void expect_all_well(const char* scenario, double seconds) {
    for (const RankResult& rank : run_ranks(scenario, 2, seconds)) EXPECT_EQ(rank.status, 0) << rank.output;
  }
};

TEST_F(GpuNccl, SaysWhatItIs) {
  EXPECT_THAT(comm::communicator_backend("nccl").description(),
              AllOf(HasSubstr("NCCL 2."), HasSubstr("libnccl")));
}

TEST_F(GpuNccl, AloneSumsAreWhatTheyWere) {
  Group group({.rank = 0, .size = 1});
  const auto communicator = comm::join(group, gpu());
  const Tensor x = Tensor::full(DType::float32, {1000}, 3, gpu());
  communicator->all_reduce_sum(data_of(x), data_of(x), 1000, DType::float32,
                               backend_of(gpu()).compute_stream());
  communicator->barrier(backend_of(gpu()).compute_stream());
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 3.f));
}

TEST_F(GpuNccl, LongTwoProcessesAddUpEveryTypeAndSize) { expect_all_well("collectives", 60); }
TEST_F(GpuNccl, LongCapturedSumsAreReplayed) { expect_all_well("captured", 60); }
TEST_F(GpuNccl, LongTwoProcessesTrainInLockstep) { expect_all_well("trains", 60); }
TEST_F(GpuNccl, LongAStalledRankIsNamed) { expect_all_well("stalled", 60); }
TEST_F(GpuNccl, LongADeadRankIsNamed) {
  const auto ranks = run_ranks("killed", 2, 60);
  EXPECT_EQ(ranks[0].status, 0) << ranks[0].output;
  EXPECT_EQ(ranks[1].status, -SIGKILL) << ranks[1].output;
}

}  // namespace
}  // namespace lockstep::testing
