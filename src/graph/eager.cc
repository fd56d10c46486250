#include "graph/eager.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>

#include "base/parallel.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "graph/numerics.h"
#include "lockstep/base/log.h"
#include "lockstep/device/config.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

struct KernelKey {
  const OpDef* op;
  Device* device;
  int threads;
  Attrs attrs;
  std::vector<OperandLayout> inputs;

  bool operator==(const KernelKey& other) const {
    if (op != other.op || device != other.device || threads != other.threads ||
        inputs.size() != other.inputs.size())
      return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!(inputs[i].spec == other.inputs[i].spec) || !(inputs[i].strides == other.inputs[i].strides))
        return false;
    return attrs == other.attrs;
  }
};

struct KernelKeyHash {
  size_t operator()(const KernelKey& key) const {
    AttrHasher h;
    h.mix(reinterpret_cast<uintptr_t>(key.op));
    h.mix(reinterpret_cast<uintptr_t>(key.device));
    h.mix(static_cast<uint64_t>(key.threads));
    h.mix(key.attrs.hash());
    for (const OperandLayout& in : key.inputs) {
      h("", in.spec.dtype);
      h("", in.spec.shape);
      h("", in.strides);
    }
    return h.value();
  }
};

// Shapes that keep changing would fill memory with kernels nobody uses again.
constexpr size_t kMaxCachedKernels = 4096;

Kernel& prepared_kernel(KernelKey key, const KernelDef& def, std::span<const OperandLayout> outputs,
                        std::source_location where) {
  // Kernels run one launch at a time, so every thread has its own.
  thread_local std::unordered_map<KernelKey, std::unique_ptr<Kernel>, KernelKeyHash> cache;
  if (const auto it = cache.find(key); it != cache.end()) return *it->second;
  if (cache.size() >= kMaxCachedKernels) cache.clear();
  auto kernel = def.prepare(KernelRequest{.op = *key.op,
                                          .attributes = key.attrs,
                                          .inputs = key.inputs,
                                          .outputs = outputs,
                                          .device = key.device,
                                          .threads = key.threads,
                                          .where = where});
  return *(cache[std::move(key)] = std::move(kernel));
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
  KernelKey key{&op, device, threads, attrs, {}};
  key.inputs.reserve(held.size());
  for (Tensor& input : held) {
    if (!def.strided_inputs) input = contiguous(input, where);
    key.inputs.push_back({input.spec(), input.impl()->strides});
  }
  TensorList outputs;
  std::vector<OperandLayout> output_layouts;
  std::vector<void*> pointers;
  pointers.reserve(held.size() + specs.size());
  for (const Tensor& input : held) pointers.push_back(input.impl()->data());
  for (const TensorSpec& spec : specs) {
    outputs.push_back(Tensor::empty(spec.dtype, spec.shape, *device, where));
    output_layouts.push_back({spec, outputs.back().impl()->strides});
    pointers.push_back(outputs.back().impl()->data());
  }
  backend.bind_thread();
  const TeamScope team(threads);
  const bool checked = numerics_checked();
  std::vector<OperandLayout> input_layouts;
  if (checked) [[unlikely]]
    input_layouts = key.inputs;
  Kernel& kernel = prepared_kernel(std::move(key), def, output_layouts, where);
  std::unique_ptr<Storage> workspace;
  if (kernel.workspace_bytes() > 0)
    workspace = std::make_unique<Storage>(*device, kernel.workspace_bytes(), where);
  try {
    kernel.launch({pointers.data(), pointers.data() + held.size(), workspace ? workspace->data() : nullptr,
                   backend.compute_stream()});
  } catch (const Error& error) {
    // A kernel knows the line for which it was prepared, which may have been another one.
    detail::throw_error(error.code(), error.message(), where, error.notes());
  }
  if (checked) [[unlikely]]
    check_numerics(*device, op.name, input_layouts, output_layouts, pointers.data(), where);
  SpecList input_specs;
  for (const Tensor& input : held) input_specs.push_back(input.spec());
  backend.count_kernels(1, op_cost(op, input_specs, specs, attrs).flops);
  return outputs;
}

}  // namespace lockstep
