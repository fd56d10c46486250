#include "execute/all_reduce/choice.h"

#include <algorithm>

#include "comm/communicator.h"
#include "device/device_backend.h"
#include "lockstep/base/error.h"

namespace lockstep::execute {

AllReduceChoice choose_all_reduce(std::span<const AllReduceDevice> devices, bool reproducible,
                                  CrossDeviceOps asked, const std::function<std::string()>& missing,
                                  std::source_location where) {
  const bool wanted = asked == CrossDeviceOps::nccl;
  const bool on_side_streams =
      std::all_of(devices.begin(), devices.end(), [](const AllReduceDevice& d) { return d.queues_launches; });
  if (!on_side_streams) {
    require(!wanted, ErrorCode::invalid_argument, where, "CrossDeviceOps::nccl joins GPUs; ", devices[0].name,
            " is none. Leave cross_device_ops at automatic");
    return {AllReduceMethod::host_threads, "the threads of the CPU devices sum the replicas"};
  }
  // Two devices of one GPU.
  const AllReduceDevice *a = nullptr, *b = nullptr;
  for (size_t i = 0; i < devices.size() && !b; ++i)
    for (size_t j = 0; j < i && !b; ++j)
      if (devices[i].physical == devices[j].physical) a = &devices[j], b = &devices[i];

  const bool readable =
      std::all_of(devices.begin(), devices.end(), [](const AllReduceDevice& d) { return d.reads_all; });
  const auto own = [&](const std::string& why) -> AllReduceChoice {
    return {
        readable ? AllReduceMethod::tree_kernels : AllReduceMethod::copied_tree_kernels,
        why + (readable ? "a kernel on each GPU sums from the memory of all"
                        : "a kernel on each GPU sums copies of what all hold, for not all GPUs can read the "
                          "others' memory")};
  };
  if (devices.size() == 1) return {AllReduceMethod::tree_kernels, "one GPU sums its own replicas"};
  if (b) {
    require(!wanted, ErrorCode::invalid_argument, where, "CrossDeviceOps::nccl: ", a->name, " and ", b->name,
            " are logical devices of one GPU, and NCCL wants a GPU for each. Leave cross_device_ops at "
            "automatic: kernels sum in its memory");
    return own(detail::concat(a->name, " and ", b->name, " are parts of one GPU: "));
  }
  if (reproducible) {
    require(
        !wanted, ErrorCode::invalid_argument, where,
        "CrossDeviceOps::nccl and reproducible exclude each other: NCCL adds in an order that depends on the "
        "number of GPUs");
    return own("reproducible, and the order in which NCCL adds depends on the number of GPUs: ");
  }
  const std::string reason = missing();
  require(reason.empty() || !wanted, ErrorCode::unsupported, where, "CrossDeviceOps::nccl: ", reason);
  if (!reason.empty()) return own(reason + ". Without it ");
  return {AllReduceMethod::nccl, "NCCL: every device is a GPU of its own"};
}

namespace {

AllReduceChoice choose_between_workers(std::span<const AllReduceDevice> devices, bool reproducible,
                                       CrossDeviceOps asked, std::source_location where) {
  if (!devices[0].queues_launches) {
    require(asked != CrossDeviceOps::nccl, ErrorCode::invalid_argument, where,
            "CrossDeviceOps::nccl joins GPUs; ", devices[0].name,
            " is none. Leave cross_device_ops at automatic");
    return {AllReduceMethod::processes,
            reproducible
                ? "each worker sums its own replicas; reduce-scatter and all-gather between workers, in a "
                  "fixed order"
                : "each worker sums its own replicas, and the engine's all-reduce the workers' sums"};
  }
  const std::string reason = comm::missing_backend("nccl");
  require(reason.empty(), ErrorCode::unsupported, where,
          "GPUs of several workers are joined by NCCL: ", reason);
  if (reproducible)
    return {AllReduceMethod::nccl_tree,
            "kernels on the GPUs of all workers, in a fixed order: NCCL moves the addends, for its own order "
            "depends on the number of GPUs"};
  return {AllReduceMethod::nccl, "NCCL: between the GPUs of all workers"};
}

}  // namespace

AllReduceChoice choose_all_reduce(std::span<Device* const> devices, bool reproducible, CrossDeviceOps asked,
                                  bool between_workers, std::source_location where) {
  std::vector<AllReduceDevice> described;
  for (const Device* device : devices)
    described.push_back({.name = device->name(),
                         .queues_launches = backend_of(*device).compute_stream().asynchronous(),
                         .physical = backend_of(*device).physical(),
                         .reads_all = std::all_of(devices.begin(), devices.end(), [&](const Device* other) {
                           return backend_of(*device).reads(backend_of(*other));
                         })});
  if (between_workers) return choose_between_workers(described, reproducible, asked, where);
  return choose_all_reduce(
      described, reproducible, asked, [] { return comm::missing_backend("nccl"); }, where);
}

}  // namespace lockstep::execute
