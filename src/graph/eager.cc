#include "graph/eager.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>

#include "base/parallel.h"
#include "device/configuration.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "graph/numerics.h"
#include "lockstep/base/log.h"
#include "lockstep/device/config.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

// What decides which kernel runs: the op, where, what its inputs look like, and the process' settings. A key
// owns these, a view points at them.
struct CallKey {
  const OpDef* op;
  Device* device;
  int threads;
  KernelSettings settings;
  Attrs attrs;
  std::vector<OperandLayout> inputs;
};
struct CallView {
  const OpDef* op;
  Device* device;
  int threads;
  KernelSettings settings;
  const Attrs& attrs;
  std::span<const Tensor> inputs;
};

const TensorSpec& spec_of(const OperandLayout& input) { return input.spec; }
const TensorSpec& spec_of(const Tensor& input) { return input.impl()->spec; }
const Strides& strides_of(const OperandLayout& input) { return input.strides; }
const Strides& strides_of(const Tensor& input) { return input.impl()->strides; }

struct CallHash {
  using is_transparent = void;
  template <class Call>
  size_t operator()(const Call& call) const {
    AttrHasher h;
    h.mix(reinterpret_cast<uintptr_t>(call.op));
    h.mix(reinterpret_cast<uintptr_t>(call.device) + static_cast<uint64_t>(call.threads));
    h.mix(call.attrs.hash());
    for (const auto& in : call.inputs) {
      const TensorSpec& spec = spec_of(in);
      const Strides& strides = strides_of(in);
      h.mix(static_cast<uint64_t>(spec.dtype) << 8 | static_cast<uint64_t>(spec.shape.rank()));
      for (const int64_t size : spec.shape) h.mix(static_cast<uint64_t>(size));
      for (const int64_t stride : strides) h.mix(static_cast<uint64_t>(stride));
    }
    return h.value();
  }
};

struct CallEqual {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a.op == b.op && a.device == b.device && a.threads == b.threads && a.settings == b.settings &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                      [](const auto& x, const auto& y) {
                        return spec_of(x) == spec_of(y) && strides_of(x) == strides_of(y);
                      }) &&
           a.attrs == b.attrs;
  }
};

// What a call needs to run once more: its rules need not be asked again.
struct PreparedCall {
  std::unique_ptr<Kernel> kernel;
  SpecList outputs;
  int64_t flops = 0;
};

// Shapes that keep changing would fill memory with kernels nobody uses again.
constexpr size_t kMaxCachedKernels = 4096;

using PreparedCalls = std::unordered_map<CallKey, PreparedCall, CallHash, CallEqual>;

// Kernels run one launch at a time, so every thread has its own.
PreparedCalls& prepared_calls() {
  thread_local PreparedCalls calls;
  return calls;
}

const PreparedCall& prepared_call(CallKey key, const KernelDef& def, std::span<const TensorSpec> specs,
                                  std::span<const OperandLayout> outputs, std::source_location where) {
  PreparedCalls& calls = prepared_calls();
  if (const auto it = calls.find(key); it != calls.end()) return it->second;
  if (calls.size() >= kMaxCachedKernels) calls.clear();
  PreparedCall made;
  made.kernel = def.prepare(KernelRequest{.op = *key.op,
                                          .attributes = key.attrs,
                                          .inputs = key.inputs,
                                          .outputs = outputs,
                                          .device = key.device,
                                          .threads = key.threads,
                                          .where = where});
  made.outputs.assign(specs.begin(), specs.end());
  SpecList inputs;
  for (const OperandLayout& input : key.inputs) inputs.push_back(input.spec);
  made.flops = op_cost(*key.op, inputs, specs, key.attrs).flops;
  return calls.emplace(std::move(key), std::move(made)).first->second;
}

// The memory of inputs and outputs, on the stack for as many as most ops have.
class Pointers {
 public:
  explicit Pointers(size_t count) : more_(count > few_.size() ? count : 0) {}
  void** data() { return more_.empty() ? few_.data() : more_.data(); }

 private:
  std::array<void*, 8> few_{};
  std::vector<void*> more_;
};

void launch(const PreparedCall& call, Device& device, void** pointers, size_t inputs,
            std::source_location where) {
  DeviceBackend& backend = backend_of(device);
  std::unique_ptr<Storage> workspace;
  if (call.kernel->workspace_bytes() > 0)
    workspace = std::make_unique<Storage>(device, call.kernel->workspace_bytes(), where);
  try {
    call.kernel->launch(
        {pointers, pointers + inputs, workspace ? workspace->data() : nullptr, backend.compute_stream()});
  } catch (const Error& error) {
    // A kernel knows the line for which it was prepared, which may have been another one.
    detail::throw_error(error.code(), error.message(), where, error.notes());
  }
  backend.count_kernels(1, call.flops);
}

// On a device that computes nothing: results of the right shape, and the op's cost.
TensorList account_for(Device& device, const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                       std::span<const TensorSpec> specs, std::source_location where) {
  SpecList input_specs;
  for (const Tensor& input : inputs) input_specs.push_back(input.spec());
  TensorList outputs;
  for (const TensorSpec& spec : specs)
    outputs.push_back(Tensor::empty(spec.dtype, spec.shape, device, where));
  backend_of(device).count_kernels(1, op_cost(op, input_specs, specs, attrs).flops);
  return outputs;
}

Tensor view_of(const OpDef& op, const Tensor& input, const Attrs& attrs, const TensorSpec& spec) {
  const TensorImpl& base = *input.impl();
  const auto layout = op.view(ViewContext{base.spec, base.strides, spec, attrs});
  if (!layout) return {};
  return make_view(base, spec, layout->strides, base.offset + layout->offset);
}

}  // namespace

Tensor contiguous(const Tensor& tensor, std::source_location where) {
  const TensorImpl& impl = *tensor.impl();
  if (is_contiguous(impl.spec.shape, impl.strides)) return tensor;
  const DeviceScope here(tensor.device());
  return run_eager(kIdentity, {&tensor, 1}, {}, {&impl.spec, 1}, where).front();
}

TensorList run_eager(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                     std::span<const TensorSpec> specs, std::source_location where) {
  InputPlace place;
  for (const Tensor& input : inputs) {
    const TensorImpl& impl = *input.impl();
    require(impl.storage != nullptr, ErrorCode::failed_precondition, where, op.name,
            ": an input is a tensor of a traced function that has ended; return it from the function to use "
            "it outside");
    place.add(&impl.storage->device(), impl.spec.shape.rank());
  }
  Device* device = scoped_device();
  if (!device) device = place.device() ? place.device() : &current_device(where);
  if (config::get_log_device_placement()) [[unlikely]]
    log(LogLevel::info, op.name, " -> ", device->name());
  DeviceBackend& backend = backend_of(*device);
  TensorList held(inputs.begin(), inputs.end());
  for (Tensor& input : held) input = input.to(*device, where);

  if (op.view)
    if (Tensor view = view_of(op, held[0], attrs, specs[0]); view.defined()) return {view};

  if (!backend.has_memory()) return account_for(*device, op, held, attrs, specs, where);
  const KernelDef& def = find_kernel(device->kind(), op, where);
  const int threads = std::min(device->threads(), thread_limit());
  CallKey key{&op, device, threads, {}, attrs, {}};
  key.inputs.reserve(held.size());
  for (Tensor& input : held) {
    if (!def.strided_inputs) input = contiguous(input, where);
    key.inputs.push_back({input.spec(), input.impl()->strides});
  }
  TensorList outputs;
  std::vector<OperandLayout> output_layouts;
  Pointers pointers(held.size() + specs.size());
  void** next = pointers.data();
  for (const Tensor& input : held) *next++ = input.impl()->data();
  for (const TensorSpec& spec : specs) {
    outputs.push_back(Tensor::empty(spec.dtype, spec.shape, *device, where));
    output_layouts.push_back({spec, outputs.back().impl()->strides});
    *next++ = outputs.back().impl()->data();
  }
  const bool checked = numerics_checked();
  std::vector<OperandLayout> input_layouts;
  if (checked) [[unlikely]]
    input_layouts = key.inputs;
  backend.bind_thread();  // kernels are prepared for the device of the thread, and for its team
  const TeamScope team(threads);
  const PreparedCall& call = prepared_call(std::move(key), def, specs, output_layouts, where);
  launch(call, *device, pointers.data(), held.size(), where);
  if (checked) [[unlikely]]
    check_numerics(*device, op.name, input_layouts, output_layouts, pointers.data(), where);
  return outputs;
}

Tensor run_again(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                 std::source_location where) {
  if (op.view || inputs.empty() || numerics_checked() || config::get_log_device_placement()) return {};
  Device* device = nullptr;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.impl()->storage) return {};
    Device* own = &input.impl()->storage->device();
    if (device && own != device) return {};
    device = own;
  }
  if (Device* const scoped = scoped_device(); scoped && scoped != device) return {};
  const int threads = std::min(device->threads(), thread_limit());
  const PreparedCalls& calls = prepared_calls();
  const auto found = calls.find(CallView{&op, device, threads, {}, attrs, inputs});
  if (found == calls.end() || found->second.outputs.size() != 1) return {};
  const PreparedCall& call = found->second;
  Tensor output = Tensor::empty(call.outputs[0].dtype, call.outputs[0].shape, *device, where);
  Pointers pointers(inputs.size() + 1);
  void** next = pointers.data();
  for (const Tensor& input : inputs) *next++ = input.impl()->data();
  *next = output.impl()->data();
  backend_of(*device).bind_thread();
  const TeamScope team(threads);
  launch(call, *device, pointers.data(), inputs.size(), where);
  return output;
}

}  // namespace lockstep
