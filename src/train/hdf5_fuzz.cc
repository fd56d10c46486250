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

// What libhdf5 itself leaves behind of a damaged file is no leak of ours: all that is opened here is closed by its handle.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5_serial"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    read_all(lockstep::train::Hdf5Reader(bytes, "bytes"), "", 0);
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}
