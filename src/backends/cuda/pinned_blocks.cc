#include "backends/cuda/pinned_blocks.h"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "device/cpu_device.h"

namespace lockstep::cuda {
namespace {

constexpr int kAskedFor = 8;                     // times, before a block is pinned
constexpr size_t kMostPinned = size_t{1} << 30;  // bytes: what is pinned cannot be swapped

struct Block {
  size_t bytes = 0;
  int asked = 0;
  bool pinned = false;
};

struct Blocks {
  std::mutex mutex;
  std::map<void*, Block> all;
  size_t pinned_bytes = 0;
};
// Never destroyed: blocks go back to the system until the very end.
Blocks& blocks() {
  static auto* made = new Blocks;
  return *made;
}

void forget(const HostBlock& leaving) {
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  const auto found = b.all.find(leaving.data);
  if (found == b.all.end()) return;
  if (found->second.pinned) {
    cudaHostUnregister(leaving.data);
    cudaGetLastError();  // the driver may have gone first
    b.pinned_bytes -= found->second.bytes;
  }
  b.all.erase(found);
}

}  // namespace

bool is_pinned(const void* data, size_t bytes) {
  static const bool watching = (watch_host_blocks(forget), true);
  if (!watching) return false;
  const HostBlock found = find_host_block(data, bytes);
  if (!found.data) return false;
  Blocks& b = blocks();
  const std::lock_guard lock(b.mutex);
  Block& block = b.all[found.data];
  if (block.pinned || ++block.asked != kAskedFor || b.pinned_bytes + found.bytes > kMostPinned)
    return block.pinned;
  // Of all GPUs. Where the system pins no more, copies go on as before.
  block.pinned = cudaHostRegister(found.data, found.bytes, cudaHostRegisterPortable) == cudaSuccess;
  if (block.pinned)
    block.bytes = found.bytes, b.pinned_bytes += found.bytes;
  else
    cudaGetLastError();
  return block.pinned;
}

}  // namespace lockstep::cuda
