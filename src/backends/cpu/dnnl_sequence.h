// oneDNN primitives as a Kernel: a fixed chain of primitives over inputs, outputs and workspace.
//
// All handles are made when the kernel is prepared; a launch points them at the memory it is given
// and executes, so Lockstep itself allocates nothing there.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "graph/kernel.h"

namespace lockstep::cpu {

// The CPU engine. Caps the instruction set before oneDNN is first used: 2.6 dies with an illegal
// instruction where it picks AMX kernels.
const dnnl::engine& dnnl_engine();

dnnl::memory::data_type dnnl_type(DType dtype, std::source_location where);

// Dimensions in the order of the tensor's shape, with its strides.
dnnl::memory::desc dnnl_desc(const OperandLayout& layout, std::source_location where);

// Attributes of every primitive here: scratchpads come from the launch's workspace.
dnnl::primitive_attr dnnl_attributes();

class DnnlSequence final : public Kernel {
 public:
  // Its launches use so many threads of a team that may have more. Primitives are created in a team of that
  // size, too.
  explicit DnnlSequence(int threads) : threads_(threads) {}

  // Where an argument's memory comes from.
  struct Slot {
    enum class Kind : uint8_t { input, output, workspace } kind;
    int index = 0;      // of the input or output
    size_t offset = 0;  // into the workspace
  };
  static Slot input(int index) { return {Slot::Kind::input, index, 0}; }
  static Slot output(int index) { return {Slot::Kind::output, index, 0}; }
  // A part of the workspace that lives for the whole launch.
  Slot temporary(const dnnl::memory::desc& desc);

  struct Argument {
    int name;  // DNNL_ARG_SRC, ...
    dnnl::memory::desc desc;
    Slot slot;
  };
  // The scratchpad's argument is added here; scratchpads of different primitives share memory.
  void add(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
           const std::vector<Argument>& arguments);
  void add_reorder(const dnnl::memory::desc& from, Slot source, const dnnl::memory::desc& to, Slot target);

  size_t workspace_bytes() const override { return temporaries_ + scratchpad_; }
  void launch(const LaunchArgs& args) const override;

 private:
  struct Binding {
    dnnl::memory memory;
    Slot slot;
    bool scratchpad;
  };
  struct PrimitiveCall {
    dnnl::primitive primitive;
    size_t first_argument;
    size_t argument_count;
  };

  std::vector<PrimitiveCall> calls_;
  std::vector<Binding> bindings_;
  std::vector<dnnl_exec_arg_t> arguments_;  // one for each binding
  int threads_;
  size_t temporaries_ = 0;
  size_t scratchpad_ = 0;
};

}  // namespace lockstep::cpu
