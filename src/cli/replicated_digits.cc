#include "cli/replicated_digits.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/run_data.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/clock.h"
#include "lockstep/compile/function.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/observe/verdict.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::cli {
namespace {

using keras::datasets::Examples;

class ReplicatedDigits {
 public:
  ReplicatedDigits(const RunFile& run, bool reproducible, const RunReports& reports)
      : run_(run),
        reproducible_(reproducible),
        reports_(reports),
        devices_(logical_devices().begin(), logical_devices().end()),
        clock_({.replicas = static_cast<int>(devices_.size())}) {}

  Json run() {
    random::set_seed(static_cast<uint64_t>(run_.seed));
    model_ = make_model(run_);
    const RunData data = load_data(run_, model_);
    fmt::print(reports_.out, "{} on {} devices ({} threads each): {} examples to learn from, {} to test on\n",
               model_.name(), devices_.size(), devices_[0]->threads(), data.train.x.shape()[0],
               data.validation.x.shape()[0]);
    const double seconds = train(data.train);
    const auto [accuracy, loss] = evaluate(data.validation);
    fmt::print(reports_.out, "test - accuracy: {:.4f} - loss: {:.4f}\n", accuracy, loss);
    const observe::RunSummary summary = clock_.summary();
    fmt::print(reports_.out, "{}{}", observe::to_text(summary), observe::to_text(observe::judge(summary)));
    const double examples = static_cast<double>(data.train.x.shape()[0] * run_.fit.epochs);
    return Json::object({{"accuracy", accuracy},
                         {"loss", loss},
                         {"examples_per_s", seconds > 0 ? examples / seconds : 0.0},
                         {"devices", device_names()},
                         {"threads_per_device", devices_[0]->threads()},
                         {"model", model_.name()},
                         {"parameters", model_.count_params()},
                         {"epochs", run_.fit.epochs},
                         {"batch_size", run_.fit.batch_size},
                         {"seed", run_.seed},
                         {"reproducible", reproducible_},
                         {"step_clock", Json::parse(observe::to_json(summary))}});
  }

 private:
  FunctionOptions function_options(const char* name, observe::StepClock* clock) const {
    return {.name = name,
            .replicas = {.devices = devices_,
                         .reproducible = reproducible_,
                         .virtual_replicas = std::max<int>(8, static_cast<int>(devices_.size()))},
            .clock = clock};
  }

  double train(const Examples& data) {
    const keras::optimizers::Optimizer optimizer = run_.compile->options("compile").optimizer;
    const std::vector<Variable> weights = model_.trainable_weights();
    // The mean over the global batch, whichever slice of it this is.
    auto step = function(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor losses = sparse_softmax_cross_entropy_with_logits(y, model_(x, {.training = true}));
          const Tensor loss = reduce_sum(losses) * (1.0 / static_cast<double>(global_batch_size(y)));
          optimizer.apply_gradients(tape.gradient(loss, weights), weights);
          return all_reduce_sum(loss);
        },
        function_options("training step", &clock_));
    const int64_t count = data.x.shape()[0];
    const int64_t batch = run_.fit.batch_size;
    double seconds = 0;
    for (int64_t epoch = 1; epoch <= run_.fit.epochs; ++epoch) {
      const Tensor order =
          run_.fit.shuffle ? random::permutation(count) : range(static_cast<double>(count), DType::int64);
      const int64_t start = Clock::system().now_ns();
      double total = 0;
      for (int64_t begin = 0; begin < count; begin += batch) {
        const int64_t size = std::min(batch, count - begin);
        clock_.begin_step();
        clock_.enter(observe::Category::input_wait);
        const Tensor indices = slice(order, {begin}, {size});
        const Tensor x = gather(data.x, indices);
        const Tensor y = gather(data.y, indices);
        clock_.leave();
        const double loss = step(x, y).item<float>();
        clock_.replica(0).count(observe::Counter::examples, size);
        clock_.end_step();
        require(std::isfinite(loss), ErrorCode::failed_precondition, std::source_location::current(),
                "the loss became ", loss, " in epoch ", epoch, "; use a smaller learning rate");
        total += loss * static_cast<double>(size);
      }
      const double elapsed = static_cast<double>(Clock::system().now_ns() - start) * 1e-9;
      seconds += elapsed;
      fmt::print(reports_.out, "epoch {}/{}  {:.1f} s  {:.0f} examples/s - loss: {:.4f}\n", epoch,
                 run_.fit.epochs, elapsed, static_cast<double>(count) / elapsed,
                 total / static_cast<double>(count));
      std::fflush(reports_.out);
    }
    return seconds;
  }

  std::pair<double, double> evaluate(const Examples& data) {
    auto measure = function(
        [&](const Tensor& x, const Tensor& y) {
          const Tensor logits = model_(x, {.training = false});
          const Tensor hits = cast(equal(argmax(logits), cast(y, DType::int64)), DType::float32);
          const Tensor losses = sparse_softmax_cross_entropy_with_logits(y, logits);
          return std::pair(all_reduce_sum(reduce_sum(hits)), all_reduce_sum(reduce_sum(losses)));
        },
        function_options("evaluation step", nullptr));
    constexpr int64_t kBatch = 1000;
    const int64_t count = data.x.shape()[0];
    double hits = 0;
    double loss = 0;
    for (int64_t begin = 0; begin < count; begin += kBatch) {
      const int64_t size = std::min(kBatch, count - begin);
      Dims from = Dims::filled(data.x.rank(), 0);
      Dims sizes = Dims::filled(data.x.rank(), -1);
      from[0] = begin;
      sizes[0] = size;
      const auto [batch_hits, batch_loss] =
          measure(slice(data.x, from, sizes), slice(data.y, {begin}, {size}));
      hits += batch_hits.item<float>();
      loss += batch_loss.item<float>();
    }
    return {hits / static_cast<double>(count), loss / static_cast<double>(count)};
  }

  const RunFile& run_;
  const bool reproducible_;
  const RunReports& reports_;
  std::vector<Device*> devices_;
  observe::StepClock clock_;
  keras::Model model_;
};

}  // namespace

Json carry_out_replicated(const RunFile& run, bool reproducible, const RunReports& reports) {
  return ReplicatedDigits(run, reproducible, reports).run();
}

}  // namespace lockstep::cli
