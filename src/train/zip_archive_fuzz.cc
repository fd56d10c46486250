// Any bytes as a zip archive: refused by an Error, or read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "train/zip_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const lockstep::train::ZipReader zip("/proc/self/fd/" + std::to_string(file));
    for (const std::string& name : zip.names()) zip.read(name);
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}
