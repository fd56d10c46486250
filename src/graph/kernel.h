// Kernels: prepared once for given specs and layouts, launched many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "graph/op.h"
#include "lockstep/device/device.h"

namespace lockstep {

class Stream;

// A tensor as a kernel sees it before any memory exists.
struct OperandLayout {
  TensorSpec spec;
  Strides strides;
  bool contiguous() const { return is_contiguous(spec.shape, strides); }
};

struct KernelRequest {
  const OpDef& op;
  const Attrs& attributes;
  std::span<const OperandLayout> inputs;
  std::span<const OperandLayout> outputs;  // contiguous
  Device* device = nullptr;                // for which it is prepared; null: any of its kind
  int threads = 1;
  std::source_location where;

  const Shape& shape(int i) const { return inputs[static_cast<size_t>(i)].spec.shape; }
  DType dtype(int i) const { return inputs[static_cast<size_t>(i)].spec.dtype; }
  template <class T>
  const T& attrs() const {
    return attributes.as<T>();
  }
};

struct LaunchArgs {
  void* const* inputs;
  void* const* outputs;  // directly behind the inputs, so that both are one array
  void* workspace;       // workspace_bytes() bytes, 64-byte aligned; contents undefined
  Stream& stream;        // where it happens: of the device for which the calling thread is bound
};

// One launch at a time: a kernel may keep handles that it points at the memory of each launch.
// Threads that run the same op at the same time prepare a kernel each.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual size_t workspace_bytes() const { return 0; }
  // Output `output` may be written over input `input` (the same layout is given).
  virtual bool in_place(int /*input*/, int /*output*/) const { return false; }
  // On a GPU it only enqueues: it neither waits nor allocates.
  virtual void launch(const LaunchArgs& args) const = 0;
  // It looks at values while it is launched, so that its launches cannot be captured in a graph.
  virtual bool reads_values() const { return false; }
};

// Where the launches of this thread belong: kernels that speak to people say so.
struct LaunchPlace {
  int device = -1;   // of the program's devices
  int replica = -1;  // -1: the program has none, or all share what is computed
};
inline LaunchPlace& launch_place() {
  thread_local LaunchPlace place;
  return place;
}

struct KernelDef {
  std::unique_ptr<Kernel> (*prepare)(const KernelRequest&) = nullptr;
  bool strided_inputs = false;    // false: inputs are made contiguous first
  bool thread_invariant = false;  // true: the same bits whatever the number of threads
  // Inputs and outputs (bit i: number i) that may all be of one 16-bit type where the op has float32 there:
  // conversions around the op then happen inside its kernel.
  uint32_t narrow_inputs = 0, narrow_outputs = 0;
};

class RegisterKernel {
 public:
  RegisterKernel(DeviceKind kind, const OpDef& op, KernelDef kernel);
};
// The kernel that serves every op with an `expand` rule on this kind of device.
class RegisterElementwiseKernel {
 public:
  RegisterElementwiseKernel(DeviceKind kind, KernelDef kernel);
};

// Null where there is none.
const KernelDef* registered_kernel(DeviceKind kind, const OpDef& op);
// Throws Error(unsupported) naming op and device kind where there is none.
const KernelDef& find_kernel(DeviceKind kind, const OpDef& op, std::source_location where);

}  // namespace lockstep
