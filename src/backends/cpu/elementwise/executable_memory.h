// Memory that holds generated code: written once, then readable and executable, never writable
// and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::cpu::jit {

class ExecutableMemory {
 public:
  // Throws Error(out_of_memory) where the system gives no memory or refuses to make it executable.
  explicit ExecutableMemory(std::span<const uint8_t> code);
  ~ExecutableMemory();
  ExecutableMemory(const ExecutableMemory&) = delete;
  ExecutableMemory& operator=(const ExecutableMemory&) = delete;

  // Aligned to a page.
  const void* data() const { return data_; }

 private:
  void* data_;
  size_t size_;
};

}  // namespace lockstep::cpu::jit
