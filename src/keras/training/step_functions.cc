#include "keras/training/step_functions.h"

#include <algorithm>

#include "lockstep/device/device.h"
#include "lockstep/tensor/from_blob.h"

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

// Op by op everything is computed where its operands are: what is computed of a batch alone would be on the
// host because the data lies there. And layers may keep what they are given: of what is lent, rows alone
// would keep all of it. A compiled step fetches its batch itself.
Batch at_hand(const Batch& batch, const ReplicaOptions& replicas) {
  Device& device = replicas.devices.empty() ? current_device() : *replicas.devices.front();
  Batch here = batch;
  for (TensorList* list : {&here.x, &here.y, &here.sample_weight})
    for (Tensor& tensor : *list)
      if (tensor.defined() && tensor.device().kind() == DeviceKind::cpu) tensor = owned(tensor, device);
  return here;
}

}  // namespace

StepFunctions::Layout::Layout(const Batch& batch)
    : x(batch.x.size()), y(defined(batch.y)), weights(defined(batch.sample_weight)) {}

bool StepFunctions::Layout::describes(const Batch& batch) const {
  return x == batch.x.size() && same(y, batch.y) && same(weights, batch.sample_weight);
}

Batch StepFunctions::Layout::filled(std::span<const Tensor> arrays) const {
  Batch batch;
  auto next = arrays.begin();
  for (size_t i = 0; i < x; ++i) batch.x.push_back(*next++);
  for (const bool given : y) batch.y.push_back(given ? *next++ : Tensor());
  for (const bool given : weights) batch.sample_weight.push_back(given ? *next++ : Tensor());
  return batch;
}

std::unique_ptr<FunctionCore> StepFunctions::make(StepKind kind, const Layout& layout,
                                                  observe::StepClock* clock,
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

StepFunctions::StepFunction& StepFunctions::function_for(StepKind kind, const Batch& batch,
                                                         std::source_location where) {
  for (const auto& made : functions_)
    if (made->kind == kind && made->layout.describes(batch)) return *made;
  const Layout layout(batch);
  functions_.push_back(
      std::make_unique<StepFunction>(StepFunction{kind, layout, make(kind, layout, clock_, where), {}}));
  return *functions_.back();
}

void StepFunctions::run(StepKind kind, const Batch& batch, bool eagerly, Tensor& loss,
                        std::source_location where) {
  if (eagerly) {
    loss = (*body_)(kind, at_hand(batch, replicas_))[0];
    return;
  }
  StepFunction& function = function_for(kind, batch, where);
  const HeldInputs held(function.inputs, batch);
  function.core->call(function.inputs, std::span(&loss, 1), where, batch.worker_rows);
}

bool StepFunctions::run(StepKind kind, const BatchReader::Runs& runs, Tensor& loss,
                        std::source_location where) {
  return function_for(kind, *runs.arrays, where).core->call(runs.rows, std::span(&loss, 1), where);
}

TensorList StepFunctions::predict(const Batch& batch, bool eagerly, std::source_location where) {
  if (eagerly) return (*body_)(StepKind::predict, at_hand(batch, replicas_));
  StepFunction& function = function_for(StepKind::predict, batch, where);
  const HeldInputs held(function.inputs, batch);
  return function.core->call(function.inputs, where, batch.worker_rows);
}

ProgramStatistics StepFunctions::statistics(StepKind kind, const Batch& batch,
                                            std::source_location where) const {
  TensorList inputs;
  const HeldInputs held(inputs, batch);
  return make(kind, Layout(batch), nullptr, where)->statistics(inputs, where);
}

}  // namespace lockstep::keras
