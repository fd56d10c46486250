// Horizontal fusion: elementwise launches that differ in their memory alone, made as one.
//
// A training step updates every weight and, in mixed precision, converts every weight: hundreds of launches
// of a few scalar programs, most of them over before the device has begun the next one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/planning/placement.h"
#include "compile/planning/plan.h"
#include "compile/planning/schedule.h"
#include "graph/graph.h"

namespace lockstep::compile {

// Groups of two or more nodes that run one scalar program in one place, of which none waits for another of
// its group, directly or through what the groups put together. They are found where waiting for each other
// keeps nobody else waiting: among nodes that read sources alone, and among nodes that nobody reads. `order`:
// a schedule; what is near in it is grouped, so that little memory is kept until the last of a group can run.
std::vector<std::vector<int>> group_launches(const Graph& graph, const Placement& placement,
                                             const std::vector<OrderEdge>& edges,
                                             const std::vector<int>& order);

// Whether the operands of a call lie as those of a group must: contiguous, and each input of the outputs'
// shape or one element.
bool can_be_grouped(const KernelCall& call);

struct GroupedCalls {
  std::unique_ptr<Kernel> kernel;  // null: none of them
  size_t count = 0;                // of the first calls: those it computes
};
// One kernel for several calls of one scalar program that may run at the same time. Its launch finds the
// operands of all, of each call the inputs and then the outputs, one behind the other from LaunchArgs::inputs
// on.
using GroupCalls = GroupedCalls (*)(std::span<const KernelCall> calls);

// The rule of a kind of device; null: it knows none, and no groups are made for it.
GroupCalls& group_rule(DeviceKind kind);

class RegisterGroupCalls {
 public:
  RegisterGroupCalls(DeviceKind kind, GroupCalls rule) { group_rule(kind) = rule; }
};

}  // namespace lockstep::compile
