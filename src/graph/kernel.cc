#include "graph/kernel.h"

#include <map>

namespace lockstep {
namespace {

struct KernelTable {
  std::map<std::pair<DeviceKind, const OpDef*>, KernelDef> by_op;
  std::map<DeviceKind, KernelDef> elementwise;
};

KernelTable& table() {
  static auto* instance = new KernelTable;
  return *instance;
}

}  // namespace

RegisterKernel::RegisterKernel(DeviceKind kind, const OpDef& op, KernelDef kernel) {
  table().by_op[{kind, &op}] = kernel;
}

RegisterElementwiseKernel::RegisterElementwiseKernel(DeviceKind kind, KernelDef kernel) {
  table().elementwise[kind] = kernel;
}

const KernelDef* registered_kernel(DeviceKind kind, const OpDef& op) {
  const KernelTable& t = table();
  if (const auto it = t.by_op.find({kind, &op}); it != t.by_op.end()) return &it->second;
  if (op.expand)
    if (const auto it = t.elementwise.find(kind); it != t.elementwise.end()) return &it->second;
  return nullptr;
}

const KernelDef& find_kernel(DeviceKind kind, const OpDef& op, std::source_location where) {
  if (const KernelDef* kernel = registered_kernel(kind, op)) return *kernel;
  fail(ErrorCode::unsupported, where, op.name, ": no kernel for devices of kind ", name(kind));
}

}  // namespace lockstep
