// Any bytes as an IDX file, a CSV file and a tar archive, compressed or not: read, or refused by an Error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "keras/datasets/tar.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/datasets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace datasets = lockstep::keras::datasets;
  static const int descriptor = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  const auto read_or_refuse = [](auto read) {
    try {
      read();
    } catch (const lockstep::Error& error) {
      if (error.message().empty()) std::abort();
    }
  };
  read_or_refuse([] { datasets::read_idx(path); });
  read_or_refuse([] { datasets::read_csv(path, {.label_column = "-1", .header = false}); });
  read_or_refuse([] { datasets::read_tar(path, {"a"}, std::source_location::current()); });
  return 0;
}
