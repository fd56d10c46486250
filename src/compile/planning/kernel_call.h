// A call of a kernel, and where each of its operands lives.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "compile/planning/placement.h"
#include "graph/kernel.h"
#include "ops/elementwise/program.h"

namespace lockstep::compile {

// Where an operand's memory comes from when the program runs.
enum class Space : uint8_t {
  device_arena,   // values that are computed once on each device
  replica_arena,  // values of one replica
  parameter,      // an argument of the function (a replica's slice of it)
  variable,
  captured_input,
  constant,
  example_offset,
  output,
};

struct Operand {
  Space space = Space::device_arena;
  int index = 0;       // of the parameter, variable, captured input, constant or output
  int64_t offset = 0;  // in bytes
  int device = 0;      // of a program that is split over several: in whose memory
};

// A node of the graph as a call of its kernel. Each is a launch of its own, but for those of a group.
struct KernelCall {
  int node = -1;
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<OperandLayout> input_layouts;
  std::vector<OperandLayout> output_layouts;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  size_t workspace_bytes = 0;
  int64_t workspace_offset = 0;  // in the arena of its place
  NodePlace place;
  bool copies = false;  // its input from another device; there is no kernel
  Cost cost;
  std::source_location where;
  int group = -1;  // of calls one behind the other that may run at the same time (launch_groups.h); -1: none
  std::string layer = {};  // whose weights it works with, as far as that can be told

  // The dtype of the numbers that it computes with.
  DType dtype() const {
    const std::vector<OperandLayout>& operands = input_layouts.empty() ? output_layouts : input_layouts;
    return operands.empty() ? DType::float32 : operands[0].spec.dtype;
  }
  // What its kernel is prepared from; refers to this.
  KernelRequest request(Device* device, int threads) const {
    return {.op = *op,
            .attributes = attrs,
            .inputs = input_layouts,
            .outputs = output_layouts,
            .device = device,
            .threads = threads,
            .where = where};
  }
};

// The call of a fused node, for those who have a program and no graph.
KernelCall fused_call(elementwise::ScalarProgram program, std::vector<OperandLayout> inputs,
                      std::vector<OperandLayout> outputs, std::source_location where);

}  // namespace lockstep::compile
