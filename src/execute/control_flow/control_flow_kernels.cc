// Kernels of control-flow nodes: they run their bodies, in the memory they are given.
#include <algorithm>

#include "base/interruption_poll.h"
#include "compile/control_flow/control_flow_ops.h"
#include "compile/planning/memory_plan.h"
#include "execute/control_flow/body_runner.h"

namespace lockstep::execute {

using compile::aligned;
using compile::CondAttrs;
using compile::kCond;
using compile::kLoop;
using compile::LoopAttrs;

namespace {

class LoopKernel final : public Kernel {
 public:
  LoopKernel(const KernelRequest& request, DeviceKind kind)
      : attrs_(request.attrs<LoopAttrs>()),
        // What a GPU captures is only queued, and a graph that is left half captured would have to be given up.
        interruptible_(kind != DeviceKind::gpu || attrs_.condition || attrs_.counted),
        body_(*attrs_.body, kind, request) {
    attrs_.traced = nullptr;
    attrs_.results.clear();
    if (attrs_.condition) condition_.emplace(*attrs_.condition, kind, request);
    carries_ = static_cast<size_t>(attrs_.carries);
    elems_ = static_cast<size_t>(attrs_.elems);
    captured_inputs_ = static_cast<size_t>(attrs_.captured_inputs);
    first_stacked_ = static_cast<size_t>(attrs_.first_stacked());
    results_ = static_cast<size_t>(attrs_.num_stacked());
    condition_captured_inputs_ =
        request.inputs.size() - carries_ - elems_ - captured_inputs_ - (attrs_.counted ? 1 : 0);
    const auto slice_bytes = [&](const TensorSpec& spec) {
      return attrs_.length > 0 ? spec.bytes() / static_cast<size_t>(attrs_.length) : 0;
    };
    for (size_t i = 0; i < elems_; ++i) elem_bytes_.push_back(slice_bytes(request.inputs[carries_ + i].spec));
    for (size_t i = 0; i < results_; ++i)
      result_bytes_.push_back(slice_bytes(request.outputs[first_stacked_ + i].spec));
    history_.assign(carries_, -1);
    for (size_t i = 0; i < attrs_.histories.size(); ++i)
      history_[static_cast<size_t>(attrs_.histories[i])] = static_cast<int>(first_stacked_ + results_ + i);
    for (size_t i = 0; i < carries_; ++i) {
      carry_bytes_.push_back(request.inputs[i].spec.bytes());
      spare_offset_.push_back(workspace_);
      if (history_[i] < 0) workspace_ += aligned(carry_bytes_[i]);
    }
    arena_offset_ = workspace_;
    // Body and condition share an arena, except where constants lie in it.
    const size_t body_bytes = aligned(body_.arena_bytes());
    const size_t condition_bytes = condition_ ? aligned(condition_->arena_bytes()) : 0;
    const bool shared = kind != DeviceKind::gpu;
    condition_offset_ = workspace_ + (shared ? 0 : body_bytes);
    workspace_ += shared ? std::max(body_bytes, condition_bytes) : body_bytes + condition_bytes;
  }

  size_t workspace_bytes() const override { return workspace_ + kScalars; }

  bool reads_values() const override { return condition_ || attrs_.counted || body_.reads_values(); }

  void launch(const LaunchArgs& args) const override {
    char* const workspace = static_cast<char*>(args.workspace) + kScalars;
    auto* const index = static_cast<int64_t*>(args.workspace);
    auto* const goes_on = static_cast<bool*>(static_cast<void*>(index + 1));
    body_.start(workspace + arena_offset_, args.stream);
    for (size_t i = 0; i < captured_inputs_; ++i)
      body_.set_parameter(carries_ + elems_ + i, args.inputs[carries_ + elems_ + i]);
    body_.set_parameter(carries_ + elems_ + captured_inputs_, index);
    if (condition_) {
      condition_->start(workspace + condition_offset_, args.stream);
      for (size_t i = 0; i < condition_captured_inputs_; ++i)
        condition_->set_parameter(carries_ + i, args.inputs[carries_ + elems_ + captured_inputs_ + i]);
      condition_->set_output(0, goes_on);
    }
    int64_t bound = attrs_.length;
    if (attrs_.counted) {
      args.stream.read(&bound, args.inputs[carries_ + elems_ + captured_inputs_ + condition_captured_inputs_],
                       sizeof bound);
      bound = std::clamp<int64_t>(bound, 0, attrs_.length);
    }

    // Carries live in two places in turn, the output and a spare, or in the slices of their history. They
    // start where the input is.
    const auto slot = [&](int64_t k) { return attrs_.reverse ? bound - k : k; };
    const auto home = [&](size_t i, int64_t k) -> char* {
      if (history_[i] >= 0)
        return static_cast<char*>(args.outputs[history_[i]]) + static_cast<size_t>(slot(k)) * carry_bytes_[i];
      // Where the number of iterations is known the last value falls into the output.
      const bool spare = condition_ ? k % 2 == 0 : (bound - k) % 2 != 0;
      return spare ? workspace + spare_offset_[i] : static_cast<char*>(args.outputs[i]);
    };
    const auto where_is = [&](size_t i, int64_t k) -> const char* {
      return k == 0 ? static_cast<const char*>(args.inputs[i]) : home(i, k);
    };

    int64_t k = 0;
    InterruptionPoll poll;
    for (; bound < 0 || k < bound; ++k) {
      if (interruptible_) poll();
      args.stream.fill(index, static_cast<uint64_t>(k), sizeof k, 1);
      if (condition_) {
        for (size_t i = 0; i < carries_; ++i) condition_->set_parameter(i, where_is(i, k));
        condition_->run(args.stream);
        bool goes = false;
        args.stream.read(&goes, goes_on, sizeof goes);
        if (!goes) break;
      }
      const auto position = static_cast<size_t>(attrs_.reverse ? bound - 1 - k : k);
      for (size_t i = 0; i < carries_; ++i) {
        body_.set_parameter(i, where_is(i, k));
        body_.set_output(i, home(i, k + 1));
      }
      for (size_t i = 0; i < elems_; ++i)
        body_.set_parameter(carries_ + i,
                            static_cast<const char*>(args.inputs[carries_ + i]) + position * elem_bytes_[i]);
      for (size_t i = 0; i < results_; ++i)
        body_.set_output(carries_ + i,
                         static_cast<char*>(args.outputs[first_stacked_ + i]) + position * result_bytes_[i]);
      body_.run(args.stream);
    }
    finish(args, k, where_is, home, slot);
  }

 private:
  void finish(const LaunchArgs& args, int64_t trips, const auto& where_is, const auto& home,
              const auto& slot) const {
    for (size_t i = 0; i < carries_; ++i) {
      if (const char* last = where_is(i, trips); last != args.outputs[i])
        args.stream.copy(args.outputs[i], last, carry_bytes_[i]);
      if (history_[i] < 0 || carry_bytes_[i] == 0) continue;
      args.stream.copy(home(i, 0), args.inputs[i], carry_bytes_[i]);
      const auto used = static_cast<size_t>(std::max(slot(0), slot(trips))) + 1;
      clear(args, history_[i], used, static_cast<size_t>(attrs_.length) + 1, carry_bytes_[i]);
    }
    if (condition_) args.stream.fill(args.outputs[carries_], static_cast<uint64_t>(trips), sizeof trips, 1);
    for (size_t i = 0; i < results_; ++i)
      clear(args, static_cast<int>(first_stacked_ + i), static_cast<size_t>(trips),
            static_cast<size_t>(attrs_.length), result_bytes_[i]);
  }

  void clear(const LaunchArgs& args, int output, size_t from, size_t to, size_t bytes) const {
    if (to > from)
      args.stream.fill(static_cast<char*>(args.outputs[output]) + from * bytes, 0, 1, (to - from) * bytes);
  }

  // In front of the workspace: the number of the iteration, and the condition.
  static constexpr size_t kScalars = 64;

  LoopAttrs attrs_;
  bool interruptible_;
  mutable BodyRunner body_;
  mutable std::optional<BodyRunner> condition_;
  size_t carries_, elems_, captured_inputs_, condition_captured_inputs_, first_stacked_, results_;
  std::vector<size_t> carry_bytes_, elem_bytes_, result_bytes_;
  std::vector<int> history_;  // of each carry: an output; -1: none
  std::vector<size_t> spare_offset_;
  size_t arena_offset_ = 0, condition_offset_ = 0;
  size_t workspace_ = 0;
};

class CondKernel final : public Kernel {
 public:
  CondKernel(const KernelRequest& request, DeviceKind kind)
      : inputs_(request.inputs.size() - 1),
        outputs_(request.outputs.begin(), request.outputs.end()),
        branches_{BodyRunner(*request.attrs<CondAttrs>().bodies[0], kind, request),
                  BodyRunner(*request.attrs<CondAttrs>().bodies[1], kind, request)} {
    for (const auto& body : request.attrs<CondAttrs>().bodies) {
      auto& left_out = left_out_.emplace_back();
      for (const Value v : body->graph().outputs) left_out.push_back(!v.valid());
    }
  }

  size_t workspace_bytes() const override {
    return std::max(branches_[0].arena_bytes(), branches_[1].arena_bytes());
  }
  bool reads_values() const override { return true; }

  void launch(const LaunchArgs& args) const override {
    bool first = false;
    args.stream.read(&first, args.inputs[0], sizeof first);
    const size_t chosen = first ? 0 : 1;
    BodyRunner& branch = branches_[chosen];
    branch.start(args.workspace, args.stream);
    for (size_t i = 0; i < inputs_; ++i) branch.set_parameter(i, args.inputs[i + 1]);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      branch.set_output(i, args.outputs[i]);
      if (left_out_[chosen][i]) args.stream.fill(args.outputs[i], 0, 1, outputs_[i].spec.bytes());
    }
    branch.run(args.stream);
  }

 private:
  size_t inputs_;
  std::vector<OperandLayout> outputs_;
  mutable std::array<BodyRunner, 2> branches_;
  std::vector<std::vector<bool>> left_out_;
};

template <class K, DeviceKind kind>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request, kind);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kLoop, {.prepare = prepare<LoopKernel, DeviceKind::cpu>}},
    {DeviceKind::cpu, kCond, {.prepare = prepare<CondKernel, DeviceKind::cpu>}},
    {DeviceKind::gpu, kLoop, {.prepare = prepare<LoopKernel, DeviceKind::gpu>}},
    {DeviceKind::gpu, kCond, {.prepare = prepare<CondKernel, DeviceKind::gpu>}}};

}  // namespace
}  // namespace lockstep::execute
