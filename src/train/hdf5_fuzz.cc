// Any bytes as an HDF5 file: refused by an Error, or read.
#include <cstdint>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "train/hdf5.h"

namespace {

void read_all(const lockstep::train::Hdf5Reader& file, const std::string& group, int depth) {
  if (depth > 4) return;
  file.texts(group, "weight_names");
  for (const std::string& name : file.names(group)) {
    const std::string path = group.empty() ? name : group + "/" + name;
    try {
      if (file.has_array(path))
        file.read(path);
      else
        read_all(file, path, depth + 1);
    } catch (const lockstep::Error& error) {
      if (error.message().empty()) std::abort();
    }
  }
}

}  // namespace

// What is looked for is in this tree. Of a damaged file libhdf5 itself leaves memory behind, asks for as much
// as the file claims, and copies from beyond what it has (1.10 does), where it does not crash, which a child
// does first. All that is opened here is closed by its handle.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5_serial"; }
extern "C" const char* __asan_default_suppressions() { return "interceptor_via_lib:libhdf5_serial"; }
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    read_all(lockstep::train::Hdf5Reader(bytes, "bytes"), "", 0);
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}
