#include "keras/training/steps.h"

#include <algorithm>

namespace lockstep::keras {
namespace {

std::vector<bool> defined(const TensorList& list) {
  std::vector<bool> flags;
  for (const Tensor& tensor : list) flags.push_back(tensor.defined());
  return flags;
}

bool same(const std::vector<bool>& flags, const TensorList& list) {
  return std::equal(flags.begin(), flags.end(), list.begin(), list.end(),
                    [](bool flag, const Tensor& tensor) { return flag == tensor.defined(); });
}

// Whoever made a batch may use its memory again once a step has ended.
class HeldInputs {
 public:
  HeldInputs(TensorList& held, const Batch& batch) : held_(held) {
    each_array(batch, [&](const Tensor& tensor) { held_.push_back(tensor); });
  }
  ~HeldInputs() { held_.clear(); }
  HeldInputs(const HeldInputs&) = delete;
  HeldInputs& operator=(const HeldInputs&) = delete;

 private:
  TensorList& held_;
};

}  // namespace

Steps::Layout::Layout(const Batch& batch)
    : x(batch.x.size()), y(defined(batch.y)), weights(defined(batch.sample_weight)) {}

bool Steps::Layout::describes(const Batch& batch) const {
  return x == batch.x.size() && same(y, batch.y) && same(weights, batch.sample_weight);
}

Batch Steps::Layout::filled(std::span<const Tensor> arrays) const {
  Batch batch;
  auto next = arrays.begin();
  for (size_t i = 0; i < x; ++i) batch.x.push_back(*next++);
  for (const bool given : y) batch.y.push_back(given ? *next++ : Tensor());
  for (const bool given : weights) batch.sample_weight.push_back(given ? *next++ : Tensor());
  return batch;
}

std::unique_ptr<FunctionCore> Steps::make(StepKind kind, const Layout& layout, observe::StepClock* clock,
                                          std::source_location where) const {
  static constexpr const char* kNames[] = {"training step", "evaluation step", "prediction step"};
  return std::make_unique<FunctionCore>(
      [body = body_, kind, layout](std::span<const Tensor> arrays) {
        return (*body)(kind, layout.filled(arrays));
      },
      FunctionOptions{.name = name_ + ": " + kNames[static_cast<int>(kind)],
                      .replicas = replicas_,
                      .clock = kind == StepKind::train ? clock : nullptr,
                      .timed = false},
      where);
}

Steps::Step& Steps::step_for(StepKind kind, const Batch& batch, std::source_location where) {
  for (const auto& step : steps_)
    if (step->kind == kind && step->layout.describes(batch)) return *step;
  const Layout layout(batch);
  steps_.push_back(std::make_unique<Step>(Step{kind, layout, make(kind, layout, clock_, where), {}}));
  return *steps_.back();
}

void Steps::run(StepKind kind, const Batch& batch, bool eagerly, Tensor& loss, std::source_location where) {
  if (eagerly) {
    loss = (*body_)(kind, batch)[0];
    return;
  }
  Step& step = step_for(kind, batch, where);
  const HeldInputs held(step.inputs, batch);
  step.function->call(step.inputs, std::span(&loss, 1), where, batch.worker_rows);
}

bool Steps::run(StepKind kind, const BatchReader::Runs& runs, Tensor& loss, std::source_location where) {
  return step_for(kind, *runs.arrays, where).function->call(runs.rows, std::span(&loss, 1), where);
}

TensorList Steps::predict(const Batch& batch, bool eagerly, std::source_location where) {
  if (eagerly) return (*body_)(StepKind::predict, batch);
  Step& step = step_for(StepKind::predict, batch, where);
  const HeldInputs held(step.inputs, batch);
  return step.function->call(step.inputs, where, batch.worker_rows);
}

ProgramStatistics Steps::statistics(StepKind kind, const Batch& batch, std::source_location where) const {
  TensorList inputs;
  const HeldInputs held(inputs, batch);
  return make(kind, Layout(batch), nullptr, where)->statistics(inputs, where);
}

}  // namespace lockstep::keras
