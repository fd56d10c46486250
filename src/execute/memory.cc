#include "execute/memory.h"

#include "device/copy.h"

namespace lockstep::execute {
namespace {

std::shared_ptr<Storage> copy_on(Device& device, const Storage& from, const void* data, size_t bytes) {
  auto copy = std::make_shared<Storage>(device, bytes, std::source_location::current());
  copy_across(from.device(), data, device, copy->data(), bytes);
  return copy;
}

Tensor elements_on(Device& device, const TensorImpl& impl) {
  return make_tensor(copy_on(device, *impl.storage, impl.data(), impl.spec.bytes()), impl.spec);
}

Tensor with_storage_on(Device& device, const TensorImpl& impl) {
  const Storage& all = *impl.storage;
  const auto bytes = static_cast<int64_t>(all.bytes());
  const Tensor whole = make_tensor(copy_on(device, all, all.data(), all.bytes()), {DType::uint8, {bytes}});
  return make_view(*whole.impl(), impl.spec, impl.strides, impl.offset);
}

}  // namespace

Memory::Memory(const Plan& plan, Device& on) : device(&on) {
  parameters.resize(plan.parameters.size());
  variables.resize(plan.variables.size());
  captured_inputs.resize(plan.captured_inputs.size());
  constants.resize(plan.constants.size());
  outputs.resize(plan.outputs.size());
}

void* Memory::at(const Operand& operand) const {
  const auto from = [&](const std::vector<void*>& list) -> char* {
    return static_cast<char*>(list[static_cast<size_t>(operand.index)]);
  };
  char* base = nullptr;
  switch (operand.space) {
    case Space::device_arena: base = device_arena; break;
    case Space::replica_arena: base = replica_arena; break;
    case Space::parameter: base = from(parameters); break;
    case Space::variable: base = from(variables); break;
    case Space::captured_input: base = from(captured_inputs); break;
    case Space::constant: base = from(constants); break;
    case Space::example_offset: base = static_cast<char*>(example_offset); break;
    case Space::output: base = from(outputs); break;
  }
  return base + operand.offset;
}

void* HeldSources::hold(const Tensor& captured) {
  const TensorImpl& impl = *captured.impl();
  // A plan knows a captured input by its strides, so a strided one stays where it is, or moves with all of its
  // memory to a device that cannot read it there.
  const bool strided = !is_contiguous(impl.spec.shape, impl.strides);
  const bool here =
      &impl.storage->device() == &device_ || (strided && impl.storage->device().kind() == device_.kind());
  // Memory that was lent may be given back, and written to, while the plan lives.
  const bool copied = !here || impl.storage->borrowed();
  held_.push_back(!copied   ? captured
                  : strided ? with_storage_on(device_, impl)
                  : here    ? elements_on(device_, impl)
                            : captured.to(device_));
  return held_.back().impl()->data();
}

void* HeldSources::hold(const TensorSpec& spec, double constant) {
  held_.push_back(Tensor::full(spec.dtype, spec.shape, constant, device_));
  return held_.back().impl()->data();
}

}  // namespace lockstep::execute
