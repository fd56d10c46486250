#include <algorithm>
#include <cstring>

#include "graph/kernel.h"
#include "graph/numerics.h"
#include "ops/debugging/debugging.h"

namespace lockstep {
namespace {

class PrintKernel final : public Kernel {
 public:
  explicit PrintKernel(const KernelRequest& request) : attrs_(request.attrs<PrintAttrs>()) {
    for (size_t i = 0; i + 1 < attrs_.texts.size(); ++i) {
      specs_.push_back(request.inputs[i].spec);
      strides_.push_back(request.inputs[i].strides);
    }
  }
  void launch(const LaunchArgs& args) const override {
    print_line(attrs_, specs_, strides_, args.inputs);
    *static_cast<bool*>(args.outputs[0]) = true;
  }

 private:
  PrintAttrs attrs_;
  std::vector<TensorSpec> specs_;
  std::vector<Strides> strides_;
};

class AssertKernel final : public Kernel {
 public:
  explicit AssertKernel(const KernelRequest& request)
      : attrs_(request.attrs<MessageAttrs>()), spec_(request.inputs[0].spec), where_(request.where) {}
  void launch(const LaunchArgs& args) const override {
    const auto* conditions = static_cast<const bool*>(args.inputs[0]);
    const auto wrong = std::count(conditions, conditions + spec_.shape.size(), false);
    require(wrong == 0, ErrorCode::failed_precondition, where_, attrs_.message, " (", wrong, " of ",
            spec_.shape.size(), " elements)");
    *static_cast<bool*>(args.outputs[0]) = true;
  }

 private:
  MessageAttrs attrs_;
  TensorSpec spec_;
  std::source_location where_;
};

class CheckNumericsKernel final : public Kernel {
 public:
  explicit CheckNumericsKernel(const KernelRequest& request)
      : attrs_(request.attrs<MessageAttrs>()), layout_(request.inputs[0]), where_(request.where) {}
  void launch(const LaunchArgs& args) const override {
    const NonFinite found = count_non_finite(layout_, args.inputs[0]);
    require(found.nans + found.infs == 0, ErrorCode::invalid_argument, where_,
            "check_numerics: ", attrs_.message, ": ", layout_.spec, " has ", found.nans, " NaN and ",
            found.infs, " Inf");
    if (layout_.spec.bytes() > 0) std::memcpy(args.outputs[0], args.inputs[0], layout_.spec.bytes());
  }

 private:
  MessageAttrs attrs_;
  OperandLayout layout_;
  std::source_location where_;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu,
     kPrint,
     {.prepare = prepare<PrintKernel>, .strided_inputs = true, .thread_invariant = true}},
    {DeviceKind::cpu, kAssert, {.prepare = prepare<AssertKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kCheckNumerics, {.prepare = prepare<CheckNumericsKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
