// Any bytes as a safetensors file: refused by an Error, or read; what was read survives being written.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/safetensors.h"

namespace {

// A file in memory, and its name.
struct MemoryFile {
  int descriptor = memfd_create("fuzz", 0);
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace train = lockstep::train;
  static const MemoryFile file;
  static const std::string copy = "/tmp/safetensors_fuzz_" + std::to_string(getpid());
  if (ftruncate(file.descriptor, 0) != 0 ||
      pwrite(file.descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  train::NamedTensors tensors;
  train::Metadata metadata;
  try {
    tensors = train::load_safetensors(file.path);
    metadata = train::SafetensorsFile(file.path).metadata();
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
    return 0;
  }
  train::save_safetensors(copy, tensors, {.metadata = metadata});
  const train::NamedTensors again = train::load_safetensors(copy);
  unlink(copy.c_str());
  if (again.size() != tensors.size()) std::abort();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (again[i].first != name || again[i].second.spec() != tensor.spec()) std::abort();
  }
  return 0;
}
