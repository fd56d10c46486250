#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "cli/commands.h"
#include "cli/networks.h"
#include "cli/progress.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/compile/function.h"
#include "lockstep/keras/datasets.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/observe/trace.h"
#include "lockstep/observe/verdict.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::cli {
namespace {

struct Settings {
  std::string network = "mlp";
  int epochs = 5;
  int64_t batch_size = 128;
  double learning_rate = 1e-3;
  uint64_t seed = 0;
  int64_t train_size = 60000;
  int64_t test_size = 10000;
  int devices = 1;
  int threads = 0;
  bool reproducible = false;
  bool json = false;
  std::string trace;
};

Tensor as_images(const Tensor& bytes) { return cast(bytes, DType::float32) * (1.0 / 255); }

class Training {
 public:
  explicit Training(const Settings& settings)
      : settings_(settings),
        out_(settings.json ? stderr : stdout),
        devices_(logical_devices().begin(), logical_devices().end()),
        clock_({.replicas = static_cast<int>(devices_.size())}) {}

  nlohmann::ordered_json run() {
    Progress making(out_, "digits", 1);
    data_ = keras::datasets::digits(
        {.seed = settings_.seed, .train_size = settings_.train_size, .test_size = settings_.test_size});
    making.finish(
        fmt::format("{} examples to learn from, {} to test on", data_.train.y.size(), data_.test.y.size()));
    network_ = make_network(settings_.network, settings_.seed);
    std::string names;
    for (const Device* device : devices_) names += (names.empty() ? "" : " ") + device->name();
    fmt::print(out_, "{} with {} weights on {} ({} thread{} each)\n", settings_.network, weights(), names,
               devices_[0]->threads(), devices_[0]->threads() == 1 ? "" : "s");
    train();
    const auto [accuracy, loss] = evaluate();
    report_time();
    nlohmann::ordered_json result;
    result["accuracy"] = accuracy;
    result["loss"] = loss;
    result["examples_per_s"] = examples_per_s_;
    for (const Device* device : devices_) result["devices"].push_back(device->name());
    result["threads_per_device"] = devices_[0]->threads();
    result["network"] = settings_.network;
    result["epochs"] = settings_.epochs;
    result["batch_size"] = settings_.batch_size;
    result["seed"] = settings_.seed;
    result["reproducible"] = settings_.reproducible;
    result["step_clock"] = nlohmann::ordered_json::parse(observe::to_json(clock_.summary()));
    return result;
  }

 private:
  int64_t weights() const {
    int64_t total = 0;
    for (const Variable& variable : network_->variables()) total += variable.shape().size();
    return total;
  }

  FunctionOptions function_options(const char* name, observe::StepClock* clock) {
    FunctionOptions options{.name = name, .replicas = {}, .clock = clock};
    if (devices_.size() > 1 || settings_.reproducible)
      options.replicas = {.devices = devices_,
                          .reproducible = settings_.reproducible,
                          .virtual_replicas = std::max<int>(8, static_cast<int>(devices_.size()))};
    return options;
  }

  void train() {
    auto optimizer = keras::optimizers::Adam({.learning_rate = settings_.learning_rate});
    // The mean over the global batch, whichever slice of it this is.
    auto step = function(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor losses =
              sparse_softmax_cross_entropy_with_logits(cast(y, DType::int32), network_->logits(as_images(x)));
          const Tensor loss = reduce_sum(losses) * (1.0 / static_cast<double>(global_batch_size(y)));
          const TensorList gradients = tape.gradient(loss, network_->variables());
          optimizer.apply_gradients(all_reduce_sum(gradients), network_->variables());
          return all_reduce_sum(loss);
        },
        function_options("training step", &clock_));
    const int64_t count = data_.train.y.size();
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::mt19937_64 engine(settings_.seed + 1);
    double seconds = 0;
    for (int epoch = 1; epoch <= settings_.epochs; ++epoch) {
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
      Progress progress(out_, fmt::format("epoch {}/{}", epoch, settings_.epochs), count);
      double total = 0;
      for (int64_t begin = 0; begin < count; begin += settings_.batch_size) {
        const int64_t size = std::min(settings_.batch_size, count - begin);
        clock_.begin_step();
        clock_.enter(observe::Category::input_wait);
        const Tensor indices = Tensor::from(
            std::span<const int64_t>(order).subspan(static_cast<size_t>(begin), static_cast<size_t>(size)),
            {size});
        const Tensor x = gather(data_.train.x, indices);
        const Tensor y = gather(data_.train.y, indices);
        clock_.leave();
        const double loss = step(x, y).item<float>();
        clock_.replica(0).count(observe::Counter::examples, size);
        clock_.end_step();
        require(std::isfinite(loss), ErrorCode::failed_precondition, std::source_location::current(),
                "the loss became ", loss, " in epoch ", epoch, "; use a smaller --learning-rate (",
                settings_.learning_rate, ")");
        total += loss * static_cast<double>(size);
        progress.update(begin + size, fmt::format("loss {:.4f}", total / static_cast<double>(begin + size)));
      }
      seconds += progress.seconds();
      progress.finish(fmt::format("loss {:.4f}  {:.0f} examples/s", total / static_cast<double>(count),
                                  static_cast<double>(count) / progress.seconds()));
    }
    examples_per_s_ = seconds > 0 ? static_cast<double>(count) * settings_.epochs / seconds : 0;
  }

  std::pair<double, double> evaluate() {
    auto measure = function(
        [&](const Tensor& x, const Tensor& y) {
          const Tensor labels = cast(y, DType::int32);
          const Tensor logits = network_->logits(as_images(x));
          const Tensor hits = cast(equal(argmax(logits), cast(y, DType::int64)), DType::float32);
          return std::pair(
              all_reduce_sum(reduce_sum(hits)),
              all_reduce_sum(reduce_sum(sparse_softmax_cross_entropy_with_logits(labels, logits))));
        },
        function_options("evaluation", nullptr));
    constexpr int64_t kBatch = 1000;
    const int64_t count = data_.test.y.size();
    double hits = 0;
    double loss = 0;
    Progress progress(out_, "test", count);
    for (int64_t begin = 0; begin < count; begin += kBatch) {
      const int64_t size = std::min(kBatch, count - begin);
      const auto [batch_hits, batch_loss] =
          measure(slice(data_.test.x, {begin, 0, 0}, {size, -1, -1}), slice(data_.test.y, {begin}, {size}));
      hits += batch_hits.item<float>();
      loss += batch_loss.item<float>();
    }
    const double n = static_cast<double>(count);
    progress.finish(fmt::format("accuracy {:.2f}%  loss {:.4f}", 100 * hits / n, loss / n));
    return {hits / n, loss / n};
  }

  void report_time() {
    const observe::RunSummary summary = clock_.summary();
    fmt::print(out_, "{}", observe::to_text(summary));
    fmt::print(out_, "{}", observe::to_text(observe::judge(summary)));
  }

  const Settings settings_;
  std::FILE* out_;
  std::vector<Device*> devices_;
  observe::StepClock clock_;
  keras::datasets::TrainTest data_;
  std::unique_ptr<Network> network_;
  double examples_per_s_ = 0;
};

void train(const Settings& settings) {
  set_logical_cpus({.count = settings.devices, .threads = settings.threads});
  if (!settings.trace.empty()) observe::start_tracing();
  const nlohmann::ordered_json result = Training(settings).run();
  if (!settings.trace.empty()) {
    observe::stop_tracing();
    observe::write_trace(observe::take_trace(), settings.trace);
    fmt::print(settings.json ? stderr : stdout, "trace written to {}: open it at https://ui.perfetto.dev\n",
               settings.trace);
  }
  fmt::print("{}\n", result.dump());
}

}  // namespace

void add_train(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("train", "Train a network on the embedded handwritten-like digits, on all devices");
  auto s = std::make_shared<Settings>();
  command->add_option("network", s->network, "linear, mlp (784-128-10) or convnet")
      ->check(CLI::IsMember({"linear", "mlp", "convnet"}))
      ->capture_default_str();
  command->add_option("--epochs", s->epochs, "Times the training examples are gone through")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--batch-size", s->batch_size, "Examples a step, over all devices")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--learning-rate", s->learning_rate, "Adam's step size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", s->seed, "Of the digits, the weights and the order")->capture_default_str();
  command->add_option("--train-size", s->train_size, "Training examples")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--test-size", s->test_size, "Test examples")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--devices", s->devices, "Logical CPU devices that share the work")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--threads", s->threads, "Threads of each device; 0: the cores shared out")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--reproducible", s->reproducible, "The same bits on any number of devices and threads");
  command->add_option("--trace", s->trace, "Write a Chrome/Perfetto trace of every kernel to this file");
  command->add_flag("--json", s->json, "Only the result, one JSON object, on standard output");
  command->footer(
      "The last line is one JSON object with accuracy, loss, examples_per_s and devices.\n"
      "Example: lockstep train convnet --epochs 3 --devices 2 --reproducible");
  command->callback([s] { train(*s); });
}

}  // namespace lockstep::cli
