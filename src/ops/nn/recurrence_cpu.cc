// Recurrences on the CPU: a thread takes some examples through the whole sequence, so that threads never wait
// for each other, and the packed kernel stays in the caches.
#include <algorithm>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/nn/recurrence.h"
#include "ops/nn/recurrence_cpu_simd.h"

namespace lockstep {
namespace {

const cpu::RecurrenceCells& cells_for(DType dtype) {
  const auto& table =
      cpu::pick_simd(simd_v2::kRecurrenceTable, simd_v3::kRecurrenceTable, simd_v4::kRecurrenceTable);
  return dtype == DType::float64    ? table.float64
         : dtype == DType::bfloat16 ? table.bfloat16
         : dtype == DType::float16  ? table.float16
                                    : table.float32;
}

class RecurrenceBase : public Kernel {
 public:
  // `states`: (time, batch, units)
  RecurrenceBase(const KernelRequest& request, const Shape& states)
      : attrs_(request.attrs<RecurrenceAttrs>()),
        cells_(cells_for(request.dtype(0))),
        functions_(attrs_.lstm()  ? cells_.lstm
                   : attrs_.gru() ? cells_.gru
                                  : cells_.simple),
        time_(states[0]),
        batch_(states[1]),
        units_(states[2]),
        padded_((units_ + cpu::kRecurrenceLanes - 1) / cpu::kRecurrenceLanes * cpu::kRecurrenceLanes),
        wide_(request.dtype(0) == DType::float64 ? sizeof(double) : sizeof(float)) {
    // Short sequences of few examples are over before a second thread would start.
    constexpr int64_t kProductsPerThread = 1 << 18;
    const int64_t products = time_ * batch_ * units_ * units_ * attrs_.gates();
    threads_ = static_cast<int>(std::clamp<int64_t>(products / kProductsPerThread, 1, request.threads));
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(elements_) * wide_; }

 protected:
  // Room for `elements` of the type that is computed in, on lines of its own.
  int64_t room(int64_t elements) {
    const int64_t place = elements_;
    elements_ += (elements + cpu::kRecurrenceLanes - 1) / cpu::kRecurrenceLanes * cpu::kRecurrenceLanes;
    return place;
  }
  void* at(const LaunchArgs& args, int64_t place) const {
    return static_cast<char*>(args.workspace) + static_cast<size_t>(place) * wide_;
  }
  static const void* input(const LaunchArgs& args, int i) { return i < 0 ? nullptr : args.inputs[i]; }
  static void* output(const LaunchArgs& args, int i) { return i < 0 ? nullptr : args.outputs[i]; }
  const bool* mask(const LaunchArgs& args) const {
    return static_cast<const bool*>(input(args, attrs_.mask_input()));
  }
  void pack(const void* kernel, bool transposed, void* panels) const {
    const int64_t depth = transposed ? attrs_.gates() * units_ : units_;
    const int64_t groups = transposed ? 1 : attrs_.gates();
    parallel_for(groups * padded_ / cpu::kRecurrenceLanes, 1, threads_, [&](int64_t begin, int64_t end) {
      cells_.pack(kernel, transposed, depth, groups * units_, groups, panels, begin, end);
    });
  }

  RecurrenceAttrs attrs_;
  const cpu::RecurrenceCells& cells_;
  const cpu::RecurrenceFunctions& functions_;
  int64_t time_, batch_, units_, padded_;
  int threads_ = 1;

 private:
  size_t wide_;
  int64_t elements_ = 0;
};

class RecurrenceKernel final : public RecurrenceBase {
 public:
  explicit RecurrenceKernel(const KernelRequest& request)
      : RecurrenceBase(request, request.outputs[0].spec.shape),
        panels_(room(attrs_.gates() * units_ * padded_)),
        now_(room(batch_ * padded_)),
        next_(room(batch_ * padded_)),
        cell_states_(room(attrs_.lstm() ? batch_ * padded_ : 0)) {}

  // A step reads the gates that it then writes.
  bool in_place(int input, int output) const override {
    return attrs_.lstm() && input == 0 && output == attrs_.kept_output();
  }

  void launch(const LaunchArgs& args) const override {
    void* panels = at(args, panels_);
    pack(args.inputs[1], false, panels);
    const int c = attrs_.cells_output();
    const cpu::RecurrenceForward run{.time = time_,
                                     .batch = batch_,
                                     .units = units_,
                                     .reverse = attrs_.reverse,
                                     .x = args.inputs[0],
                                     .h0 = args.inputs[2],
                                     .c0 = input(args, attrs_.cell_input()),
                                     .bias = input(args, attrs_.bias_input()),
                                     .mask = mask(args),
                                     .panels = panels,
                                     .h = args.outputs[0],
                                     .last = args.outputs[1],
                                     .c = output(args, c),
                                     .last_cell = output(args, c < 0 ? c : c + 1),
                                     .kept = output(args, attrs_.kept_output()),
                                     .now = at(args, now_),
                                     .next = at(args, next_),
                                     .cells = at(args, cell_states_),
                                     .padded = padded_};
    parallel_for(batch_, 1, threads_,
                 [&](int64_t begin, int64_t end) { functions_.forward(run, begin, end); });
  }

 private:
  int64_t panels_, now_, next_, cell_states_;
};

class RecurrenceGradKernel final : public RecurrenceBase {
 public:
  explicit RecurrenceGradKernel(const KernelRequest& request)
      : RecurrenceBase(request, request.shape(2)),
        panels_(room(attrs_.gates() * units_ * padded_)),
        dh_(room(batch_ * padded_)),
        dc_(room(attrs_.lstm() ? batch_ * padded_ : 0)),
        products_(room(batch_ * attrs_.gates() * units_)) {}

  // A step reads what was kept of it before it writes the gates' gradients.
  bool in_place(int input, int output) const override {
    return attrs_.lstm() && input == attrs_.kept_input() && output == 0;
  }

  void launch(const LaunchArgs& args) const override {
    void* panels = at(args, panels_);
    pack(args.inputs[0], true, panels);
    const cpu::RecurrenceBackward run{.time = time_,
                                      .batch = batch_,
                                      .units = units_,
                                      .reverse = attrs_.reverse,
                                      .s0 = args.inputs[1],
                                      .s = args.inputs[2],
                                      .kept = input(args, attrs_.kept_input()),
                                      .mask = mask(args),
                                      .dsteps = input(args, attrs_.dsteps_input()),
                                      .dlast = input(args, attrs_.dlast_input()),
                                      .dcells = input(args, attrs_.dcells_input()),
                                      .dlast_cell = input(args, attrs_.dlast_cell_input()),
                                      .dkept = input(args, attrs_.dkept_input()),
                                      .panels = panels,
                                      .dp = args.outputs[0],
                                      .dx = args.outputs[attrs_.dx_output()],
                                      .dh0 = args.outputs[attrs_.dfirst_output()],
                                      .dc0 = output(args, attrs_.dfirst_cell_output()),
                                      .dh = at(args, dh_),
                                      .dc = at(args, dc_),
                                      .products = at(args, products_),
                                      .padded = padded_};
    parallel_for(batch_, 1, threads_,
                 [&](int64_t begin, int64_t end) { functions_.backward(run, begin, end); });
  }

 private:
  int64_t panels_, dh_, dc_, products_;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kRecurrence, {.prepare = prepare<RecurrenceKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kRecurrenceGrad, {.prepare = prepare<RecurrenceGradKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
