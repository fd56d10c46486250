#include "bench/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

#include "bench/engine.h"
#include "device/ceilings.h"
#include "lockstep/base/error.h"
#include "lockstep/device/config.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/kernel_profile.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

// What is run where nobody asks for all: a row of every network, and what docs/benchmarks.md shows.
constexpr const char* kStandard[] = {
    "gpu/mlp/float32/32",
    "gpu/mlp/float32/128",
    "gpu/mlp/float32/1024",
    "gpu/host/mlp/float32/32",
    "gpu/host/mlp/float32/128",
    "gpu/host/mlp/float32/1024",
    "gpu/lenet/float32/128",
    "gpu/resnet18/float32/128",
    "gpu/lstm/float32/128",
    "gpu/gru/float32/128",
    "gpu/nanogpt/float32/64",
    "gpu/nanogpt/mixed_bfloat16/64",
    "gpu/vit_tiny/float32/128",
    "gpu/gpt_tiny/float32/256",
    "gpu/unet/float32/32",
    "gpu/conv3d/float32/32",
    "gpu/embedding_bag/float32/256",
    "gpu/resnet50/mixed_bfloat16/256",
    "gpu/resnet101/mixed_bfloat16/256",
    "gpu/resnet152/mixed_bfloat16/256",
    "gpu/resnet50_v2/mixed_bfloat16/128",
    "gpu/resnet101_v2/mixed_bfloat16/128",
    "gpu/resnet152_v2/mixed_bfloat16/128",
    "gpu/vgg16/mixed_bfloat16/128",
    "gpu/vgg19/mixed_bfloat16/128",
    "gpu/densenet121/mixed_bfloat16/128",
    "gpu/mobilenet_v2/mixed_bfloat16/128",
    "gpu/efficientnet_b0/mixed_bfloat16/128",
    "gpu/inception_v3/mixed_bfloat16/128",
    "gpu/xception/mixed_bfloat16/128",
    "gpu/gpt2/mixed_bfloat16/32",
    "gpu/attention_1k/mixed_bfloat16/16",
    "gpu/attention_4k/mixed_bfloat16/4",
    "gpu/attention_16k/mixed_bfloat16/1",
    "gpu/predict/lenet/float32/32",
    "gpu/predict/resnet50/mixed_bfloat16/256",
    "gpu/predict/nanogpt/mixed_bfloat16/64",
};

const char* prefix(Task task) {
  switch (task) {
    case Task::train: return "";
    case Task::predict: return "predict/";
    case Task::host: return "host/";
  }
  return "";
}

Device& gpu(int index = 0) { return device_by_name("/GPU:" + std::to_string(index)); }

// A step whose device is waited for behind the last one.
Candidate step_candidate(std::string name, const NetworkStep& step, Device& device) {
  return in_process(
      std::move(name),
      [step, &device] {
        const DeviceScope here(device);
        step();
      },
      {}, [&device] { device.synchronize(); });
}

struct Measured {
  NetworkStep step;
  int64_t memory;  // at its peak, since before the network was made
};

Measured measured_step(const Network& network, const Exercise& exercise, Device& device) {
  const DeviceScope scope(device);
  const std::string name = device.name();
  device.synchronize();
  config::reset_memory_stats(name);
  const int64_t before = config::get_memory_info(name).current;
  NetworkStep step = network.make(exercise);
  for (int i = 0; i < 3; ++i) step();  // by then a GPU replays what it has recorded
  device.synchronize();
  return {std::move(step), config::get_memory_info(name).peak - before};
}

// Its step, and what its first runs took at the peak.
Candidate measured_candidate(std::string name, const Measured& measured, Device& device) {
  Candidate candidate = step_candidate(std::move(name), measured.step, device);
  const ProgramStatistics cost = measured.step.statistics();
  candidate.flops = static_cast<double>(cost.flops);
  candidate.traffic = static_cast<double>(cost.bytes_accessed);
  candidate.read = [read = candidate.read, memory = measured.memory](int iterations) {
    Reading reading = read(iterations);
    reading.memory = memory;
    return reading;
  };
  return candidate;
}

// The next rows of arrays on the GPU with every step, and many steps with one launch; none where that cannot
// be.
void add_steps_at_once(std::vector<Candidate>& list, const NetworkStep& step, int64_t batch) {
  constexpr int64_t kAtOnce = 50, kMostBytes = int64_t{1} << 28;
  int64_t bytes = 0;
  TensorList arrays;
  for (const Tensor& argument : step.arguments()) bytes += argument.shape().size() * int64_t{4} * kAtOnce;
  if (bytes > kMostBytes) return;
  Device& host = device_by_name("/CPU:0");
  for (const Tensor& argument : step.arguments()) {
    const TensorList copies(kAtOnce, argument.to(host));
    arrays.push_back(concat(copies, 0).to(gpu()));
  }
  const DeviceScope scope(gpu());
  if (!step.run_rows(arrays, batch, kAtOnce)) return;
  Candidate many = in_process(
      fmt::format("Lockstep, {} steps per launch", kAtOnce),
      [=] {
        const DeviceScope here(gpu());
        step.run_rows(arrays, batch, kAtOnce);
      },
      {}, [] { gpu().synchronize(); });
  many.read = [read = many.read](int iterations) {
    Reading reading = read(std::max(1, iterations / static_cast<int>(kAtOnce)));
    reading.us /= kAtOnce;
    return reading;
  };
  list.push_back(std::move(many));
}

// Model::fit, epochs over 60,000 shuffled examples on the GPU.
Candidate fit_candidate(int64_t batch) {
  constexpr int kEpochs = 5;
  const DeviceScope scope(gpu());
  const keras::Model model = keras::applications::mlp();
  model.compile(
      {.optimizer = "adam", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const keras::Data data(models::random_inputs({kFitExamples, 784}, 1).to(gpu()),
                         models::random_labels(kFitExamples, 10, 2).to(gpu()));
  const auto run = [=] {
    const DeviceScope here(gpu());
    model.fit(data, {.batch_size = batch, .epochs = kEpochs, .verbose = 0});
  };
  Candidate fit = whole("Lockstep fit", run, kEpochs * ((kFitExamples + batch - 1) / batch));
  fit.aside = true;
  return fit;
}

// The best of many readings: a ceiling is what the device can do, not what others leave of it.
constexpr int kReadings = 20;
double seconds_of(const std::function<void()>& run, Device& device) {
  double best = 1e9;
  for (int i = 0; i < kReadings; ++i) {  // the first are warm-up
    const auto start = std::chrono::steady_clock::now();
    run();
    device.synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i > 1) best = std::min(best, elapsed.count());
  }
  return best;
}

}  // namespace

std::string Row::work() const {
  return fmt::format("{}/{}{}/{}", on_gpu ? "gpu" : "cpu", prefix(task), network->name, policy);
}

std::string Row::id() const { return work() + "/" + (batch > 0 ? std::to_string(batch) : "large"); }

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const Task task : {Task::train, Task::host, Task::predict})
    for (const Network& network : networks()) {
      if (task == Task::host && network.name != "mlp") continue;
      for (const std::string& policy : policies())
        for (const int64_t batch : network.gpu_batches)
          rows.push_back(
              {.on_gpu = true, .network = &network, .task = task, .policy = policy, .batch = batch});
    }
  for (Row& row : rows) row.standard = std::ranges::find(kStandard, row.id()) != std::end(kStandard);
  for (const Task task : {Task::train, Task::predict})
    for (const Network& network : networks())
      if (network.cpu_batch > 0)
        rows.push_back({.network = &network,
                        .task = task,
                        .batch = task == Task::predict ? 1 : network.cpu_batch,
                        .standard = true});
  return rows;
}

int64_t standard_gpu_rows() { return std::ssize(kStandard); }

std::vector<Row> large_rows() {
  std::vector<Row> rows;
  for (const Network& network : networks())
    for (const std::string& policy : policies())
      if (!network.gpu_batches.empty())
        rows.push_back(
            {.on_gpu = true, .network = &network, .policy = policy, .standard = true, .large = true});
  return rows;
}

Row row_of(std::string_view id, std::source_location where) {
  for (const std::vector<Row>& rows : {all_rows(), large_rows()})
    for (const Row& row : rows)
      if (row.id() == id) return row;
  fail(ErrorCode::not_found, where, "the benchmark has no work \"", id, "\"; --list --all names them");
}

void configure_gpus(bool in_one_piece) {
  const auto gpus = config::list_physical_devices("GPU");
  if (gpus.empty() || in_one_piece) return;
  constexpr double kShare = 0.45;
  config::LogicalDeviceConfiguration half;
  half.memory_limit_mb =
      static_cast<int64_t>(kShare * static_cast<double>(config::get_device_details(gpus[0]).memory >> 20));
  config::set_logical_device_configuration(gpus[0], {half, half});
}

std::string why_no_gpu() {
  try {
    config::require_gpus(1);
    return {};
  } catch (const Error& error) {
    return error.message();
  }
}

Device& device_of(const Row& row, int threads) { return row.on_gpu ? gpu() : device_with(threads); }

std::vector<Candidate> row_candidates(const Row& row, int threads) {
  Device& device = device_of(row, threads);
  const Exercise exercise{.task = row.task, .batch = row.batch, .policy = row.policy};
  const Measured measured = measured_step(*row.network, exercise, device);
  std::vector<Candidate> list{measured_candidate("Lockstep", measured, device)};
  if (row.task != Task::train || row.large) return list;
  if (row.network->deep) {
    Exercise again = exercise;
    again.recomputes = true;
    list.push_back(
        measured_candidate("Lockstep, recomputing", measured_step(*row.network, again, device), device));
    list.back().aside = true;
  }
  if (!row.on_gpu) return list;
  if (row.network->attends && row.policy == "mixed_bfloat16") {
    Exercise any_order = exercise;
    any_order.op_determinism = false;
    list.push_back(
        measured_candidate("Lockstep, any order", measured_step(*row.network, any_order, device), device));
    list.back().aside = true;
  }
  // What a launch costs is nothing to a step of so much memory, and it would be held twice.
  constexpr int64_t kMostMemory = int64_t{1} << 30;
  if (measured.memory <= kMostMemory) add_steps_at_once(list, measured.step, row.batch);
  if (row.network->name == "mlp" && row.policy == "float32") list.push_back(fit_candidate(row.batch));
  if (row.network->name == "resnet50" && row.standard && config::list_logical_devices("GPU").size() > 1) {
    const DeviceScope scope(device);
    Exercise both = exercise;
    both.replicas.devices = {&gpu(0), &gpu(1)};
    list.push_back(step_candidate("Lockstep, two logical GPUs", row.network->make(both), device));
    list.back().aside = true;
  }
  return list;
}

int64_t largest_batch(const Row& row, Device& device, int64_t bytes) {
  for (int64_t batch = std::ranges::max(row.network->gpu_batches);; batch *= 2) {
    const Exercise exercise{.task = row.task, .batch = batch, .policy = row.policy};
    if (2 * measured_step(*row.network, exercise, device).memory > bytes) return batch;
  }
}

int64_t memory_for_steps() {
  constexpr double kUsable = 0.9;  // the rest is the driver's, and what blocks are rounded up by
  const int64_t limit = config::get_memory_info(gpu().name()).limit;
  const int64_t whole = config::get_device_details(config::list_physical_devices("GPU")[0]).memory;
  return static_cast<int64_t>(kUsable * static_cast<double>(limit > 0 ? limit : whole));
}

void make_one_step(const Row& row, int threads) {
  Device& device = device_of(row, threads);
  const DeviceScope scope(device);
  row.network->make({.task = row.task, .batch = row.batch, .policy = row.policy});
  device.synchronize();
}

Ceiling ceiling_of(Device& device, const std::string& policy) {
  static std::map<std::pair<std::string, std::string>, Ceiling> known;
  const auto [it, is_new] = known.try_emplace({device.name(), policy});
  if (!is_new) return it->second;
  const DeviceScope scope(device);
  Ceiling& ceiling = it->second;
  if (device.kind() == DeviceKind::gpu) {
    constexpr int64_t kSide = 8192;
    const bool tf32 = config::tensor_float_32_execution_enabled();
    config::enable_tensor_float_32_execution(policy == "tf32");
    const Tensor a = cast(models::random_inputs({kSide, kSide}, 1),
                          policy == "mixed_bfloat16" ? DType::bfloat16 : DType::float32)
                         .to(device);
    auto product = function([](const Tensor& x) { return matmul(x, x); }, {.timed = false});
    ceiling.flops_per_second = 2.0 * kSide * kSide * kSide / seconds_of([&] { product(a); }, device);
    config::enable_tensor_float_32_execution(tf32);
  } else {  // in less than a millisecond, which others may leave alone
    for (int i = 0; i < kReadings; ++i)
      ceiling.flops_per_second =
          std::max(ceiling.flops_per_second, measure_multiply_adds(static_cast<int>(device.threads())));
  }
  const int64_t elements = int64_t{device.kind() == DeviceKind::gpu ? 256 : 16} << 20;
  const Tensor x = Tensor::full(DType::float32, {elements}, 0.5).to(device);
  auto copy = function([](const Tensor& t) { return t + 1.0; }, {.timed = false});
  ceiling.bytes_per_second =
      2.0 * sizeof(float) * static_cast<double>(elements) / seconds_of([&] { copy(x); }, device);
  return ceiling;
}

std::string network_profile(const std::string& what, int threads) {
  const auto part = [&](size_t index) {
    size_t begin = 0;
    for (; index > 0 && begin != std::string::npos; --index) {
      begin = what.find('/', begin);
      if (begin != std::string::npos) ++begin;
    }
    return begin == std::string::npos ? std::string() : what.substr(begin, what.find('/', begin) - begin);
  };
  Row row{.on_gpu = why_no_gpu().empty(), .network = &network(part(0)), .policy = {}};
  for (const Row& known : all_rows())
    if (row.policy.empty() && known.network == row.network && known.on_gpu == row.on_gpu && known.standard &&
        known.task == Task::train)
      row.policy = known.policy, row.batch = known.batch;
  if (row.policy.empty()) row.policy = "float32", row.batch = 1;  // too large for a CPU
  if (!part(1).empty()) row.policy = part(1);
  require(std::ranges::find(policies(), row.policy) != policies().end(), ErrorCode::invalid_argument,
          std::source_location::current(), "there is no policy \"", row.policy,
          "\"; there are float32, tf32 and mixed_bfloat16");
  if (const std::string batch = part(2); !batch.empty()) {
    const auto [end, error] = std::from_chars(batch.data(), batch.data() + batch.size(), row.batch);
    require(error == std::errc() && end == batch.data() + batch.size() && row.batch > 0,
            ErrorCode::invalid_argument, std::source_location::current(), "\"", batch,
            "\" is no batch; a profile is asked for as NETWORK/POLICY/BATCH, lenet/float32/128");
  }

  Device& device = device_of(row, threads);
  const DeviceScope scope(device);
  const NetworkStep step = row.network->make({.batch = row.batch, .policy = row.policy});
  for (int i = 0; i < 3; ++i) step();
  device.synchronize();
  constexpr int kSteps = 3;
  observe::start_tracing();
  for (int i = 0; i < kSteps; ++i) step();
  device.synchronize();
  observe::stop_tracing();
  const observe::Trace trace = observe::take_trace();
  const Ceiling ceiling = ceiling_of(device, row.policy);
  return fmt::format("{} on {}; it multiplies {:.1f} TFLOP/s and copies {:.2f} TB/s\n\n", row.id(),
                     device.name(), ceiling.flops_per_second * 1e-12, ceiling.bytes_per_second * 1e-12) +
         to_text(observe::kernel_profile(trace), {.steps = kSteps,
                                                  .flops_per_second = ceiling.flops_per_second,
                                                  .bytes_per_second = ceiling.bytes_per_second});
}

}  // namespace lockstep::bench
