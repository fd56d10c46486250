#include "backends/cpu/elementwise/executable_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::cpu::jit {

ExecutableMemory::ExecutableMemory(std::span<const uint8_t> code) : size_(code.size()) {
  data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(data_ != MAP_FAILED, ErrorCode::out_of_memory, std::source_location::current(),
          "elementwise: no memory for ", size_, " bytes of generated code: ", std::strerror(errno));
  std::memcpy(data_, code.data(), size_);
  if (mprotect(data_, size_, PROT_READ | PROT_EXEC) == 0) return;
  const int error = errno;
  munmap(data_, size_);
  fail(ErrorCode::out_of_memory, std::source_location::current(),
       "elementwise: the system does not make generated code executable: ", std::strerror(error));
}

ExecutableMemory::~ExecutableMemory() { munmap(data_, size_); }

}  // namespace lockstep::cpu::jit
