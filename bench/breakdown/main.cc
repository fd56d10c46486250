// lockstep_breakdown: where the report on a run says that the time of a GPU went, beside what CUPTI saw in
// the same run.
//
//   lockstep_breakdown                 MLP, LeNet, ResNet-50 and GPT-2 on the first GPU
//   lockstep_breakdown mlp lenet       some of them
//   lockstep_breakdown --replicas 2    on two logical GPUs of it
//
// CUPTI looks twice: at graphs as a whole, which changes hardly anything and is what the report is held
// against; and at each kernel, which tells how much of a graph's time are gaps between its kernels, and slows
// down small ones by a multiple.
//
// Ends with 0 where no part differs by more than 5% of the steps' time, with 1 where one does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/breakdown/gpu_activity.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr double kAllowed = 0.05;

struct Network {
  const char* name;
  int64_t batch, steps;
  const char* policy;
  keras::Model (*make)();
  keras::Data (*data)(int64_t examples);
};

Tensor labels(int64_t examples, int classes) {
  return random::uniform({examples},
                         {.minval = 0, .maxval = static_cast<double>(classes), .dtype = DType::int32});
}
template <int kSide, int kChannels, int kClasses>
keras::Data images(int64_t examples) {
  return {random::normal({examples, kSide, kSide, kChannels}), labels(examples, kClasses)};
}
keras::Data vectors(int64_t examples) { return {random::normal({examples, 784}), labels(examples, 10)}; }
keras::Data tokens(int64_t examples) {
  constexpr int64_t kContext = 1024;
  const Tensor some =
      random::uniform({examples, kContext}, {.minval = 0, .maxval = 50257, .dtype = DType::int32});
  return {some, some};
}

const std::vector<Network>& networks() {
  using namespace keras::applications;
  static const std::vector<Network> all{
      {"mlp", 128, 2000, "float32", [] { return mlp(); }, vectors},
      {"lenet", 128, 1000, "float32", [] { return lenet(); }, images<28, 1, 10>},
      {"resnet50", 128, 30, "mixed_bfloat16",
       [] {
         return resnet50({.input_shape = {224, 224, 3}, .classes = 1000, .version = "v1.5"});
       },
       images<224, 3, 1000>},
      {"gpt2", 16, 30, "mixed_bfloat16", [] { return gpt2(); }, tokens},
  };
  return all;
}

// Shares of the time of the steps.
struct Shares {
  double compute = 0, copy = 0, communication = 0;
};

Shares told(const observe::RunSummary& time) {
  Shares shares;
  double wall = 0;
  for (const observe::ReplicaSummary& replica : time.replicas) {
    wall += static_cast<double>(replica.wall.total);
    shares.compute += static_cast<double>(replica[observe::Category::compute].total);
    shares.copy += static_cast<double>(replica[observe::Category::copy].total);
    shares.communication += static_cast<double>(replica[observe::Category::exposed_communication].total);
  }
  return {shares.compute / wall, shares.copy / wall, shares.communication / wall};
}

Shares seen(const GpuActivity& activity, const observe::RunSummary& time) {
  const auto wall = static_cast<double>(time.replicas.at(0).wall.total);
  return {static_cast<double>(activity.kernels_ns) / wall, static_cast<double>(activity.copies_ns) / wall,
          static_cast<double>(activity.communication_ns) / wall};
}

// What a training took by its own report, and what was seen of it meanwhile.
struct Look {
  observe::RunSummary time;
  GpuActivity activity;
  double step_ms() const { return time.replicas.at(0).wall.mean / 1e6; }
};

// Trains a model of its own: CUPTI follows only those graphs that were captured while it looked.
template <class Start, class Take>
Look train(const Network& network, const distribute::Strategy& strategy, Start start, Take take) {
  keras::mixed_precision::set_global_policy(network.policy);
  const int64_t examples = network.batch * std::min<int64_t>(network.steps, 50);
  const int epochs = static_cast<int>(std::max<int64_t>(1, network.steps * network.batch / examples));
  start();
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = network.make();
    model.compile(
        {.optimizer = "adam", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const keras::Data data = network.data(examples);
  const auto synchronize = [&] {
    for (Device* device : strategy.devices()) device->synchronize();
  };
  // Compiles, and has the GPU at its clock.
  model.fit(data, {.batch_size = network.batch, .epochs = 1, .verbose = 0});
  synchronize();
  take();
  Look look;
  look.time = model.fit(data, {.batch_size = network.batch, .epochs = epochs, .verbose = 0}).time;
  synchronize();
  look.activity = take();
  return look;
}

// Whether the two agree.
bool compare(const Network& network, const distribute::Strategy& strategy, GpuActivityRecorder& recorder) {
  const auto looked = [&](Detail detail) {
    Look look = train(
        network, strategy, [&] { recorder.start(detail); }, [&] { return recorder.take(); });
    recorder.stop();
    return look;
  };
  const Look alone = train(
      network, strategy, [] {}, [] { return GpuActivity(); });
  const auto [time, activity] = looked(Detail::graphs);
  const Look closely = looked(Detail::kernels);
  const GpuActivity& kernels = closely.activity;

  const Shares report = told(time), cupti = seen(activity, time);
  bool agree = true;
  fmt::print("{}: {} steps of {:.4g} ms, {:.4g} without CUPTI; CUPTI has {} records\n", network.name,
             time.replicas.at(0).wall.count, time.replicas.at(0).wall.mean / 1e6, alone.step_ms(),
             activity.records);
  const auto row = [&](const char* part, double ours, double theirs) {
    const bool close = std::abs(ours - theirs) <= kAllowed;
    agree = agree && close;
    fmt::print("  {:14} report {:6.1f}%   CUPTI {:6.1f}%   difference {:+6.1f}%{}\n", part, 100 * ours,
               100 * theirs, 100 * (ours - theirs), close ? "" : "   MORE THAN 5%");
  };
  row("compute", report.compute, cupti.compute);
  row("copy", report.copy, cupti.copy);
  row("communication", report.communication, cupti.communication);
  const auto launched = static_cast<double>(kernels.kernels_ns + kernels.communication_ns + kernels.gaps_ns);
  fmt::print(
      "  kernel by kernel (steps of {:.4g} ms): {:.1f}% of the launches' time are gaps between their "
      "kernels\n",
      closely.step_ms(), 100 * static_cast<double>(kernels.gaps_ns) / std::max(1.0, launched));
  std::fflush(stdout);
  return agree;
}

int run(const std::vector<std::string>& names, int replicas) {
  const auto gpus = config::list_physical_devices("GPU");
  config::require_gpus(1);
  if (replicas > 1) {
    constexpr double kForParts = 0.9;
    config::LogicalDeviceConfiguration part;
    part.memory_limit_mb = static_cast<int64_t>(
        kForParts * static_cast<double>(config::get_device_details(gpus[0]).memory >> 20) / replicas);
    config::set_logical_device_configuration(gpus[0], std::vector(static_cast<size_t>(replicas), part));
  }
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("/GPU:" + std::to_string(i));
  const distribute::MirroredStrategy strategy(devices, {.report = false});
  GpuActivityRecorder recorder;
  bool agree = true;
  for (const Network& network : networks())
    if (names.empty() || std::find(names.begin(), names.end(), network.name) != names.end())
      agree = compare(network, strategy, recorder) && agree;
  fmt::print("{}\n", agree ? "The report is within 5% of CUPTI in all parts."
                           : "The report differs from CUPTI by more than 5%.");
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  CLI::App app("The report's breakdown of a GPU's time beside CUPTI's", "lockstep_breakdown");
  std::vector<std::string> names;
  int replicas = 1;
  app.add_option("network", names, "mlp, lenet, resnet50, gpt2; all where none is named")
      ->check(CLI::IsMember({"mlp", "lenet", "resnet50", "gpt2"}));
  app.add_option("--replicas", replicas, "Logical GPUs of the first one")->check(CLI::Range(1, 8));
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::run(names, replicas);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "lockstep_breakdown: %s\n", error.what());
    return 2;
  }
}
