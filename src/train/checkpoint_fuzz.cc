// Any bytes as a checkpoint: refused by an Error, or read. A header whose checksum is wrong is never parsed,
// so the bytes are tried a second time with the right one put in.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"

namespace {

namespace train = lockstep::train;

// A folder in memory is not to be had everywhere: a file in memory, under a name with the right ending.
struct MemoryFile {
  int descriptor = memfd_create("fuzz", 0);
  std::string folder = "/tmp/checkpoint_fuzz_" + std::to_string(getpid());
  std::string path = folder + ".safetensors";

  MemoryFile() {
    lockstep::set_log_level(lockstep::LogLevel::off);
    if (symlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path.c_str()) != 0) std::abort();
  }
  ~MemoryFile() { unlink(path.c_str()); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
};

void try_to_read(const MemoryFile& file, std::string_view bytes) {
  if (ftruncate(file.descriptor, 0) != 0 ||
      pwrite(file.descriptor, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  try {
    const train::CheckpointFile checkpoint(file.path);
    if (checkpoint.objects().dump().empty()) std::abort();
    const bool good = checkpoint.verify().empty();
    const lockstep::Variable v(lockstep::Tensor::from<float>({1, 2}, {2}));
    int64_t step = 0;
    train::Checkpoint({{"v", v}, {"step", step}}).restore(file.path).expect_partial();
    for (const auto& entry : checkpoint.entries())
      if (good && checkpoint.read(entry.name).spec() != entry.spec) std::abort();
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFile file;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_to_read(file, bytes);
  constexpr size_t kDigits = 8 + sizeof(R"({"__metadata__":{"header_crc32c":")") - 1;
  uint64_t length = 0;
  if (size < kDigits + 8) return 0;
  std::memcpy(&length, data, sizeof(length));
  if (length > size - 8) return 0;
  bytes.replace(kDigits, 8, "00000000");
  char text[9];
  std::snprintf(text, sizeof text, "%08x", lockstep::crc32c(std::string_view(bytes).substr(8, length)));
  bytes.replace(kDigits, 8, text, 8);
  try_to_read(file, bytes);
  return 0;
}
