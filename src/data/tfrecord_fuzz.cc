// Any bytes as a TFRecord file, compressed or not: its records are read and survive being written, or it is
// refused by Errors; whatever is wrong with it, reading ends.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "data/tfrecord.h"
#include "lockstep/base/error.h"

namespace {

namespace ls = lockstep;

// f() unless it is refused.
template <class F>
void or_refused(F f) {
  try {
    f();
  } catch (const ls::Error& error) {
    if (error.message().empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (size == 0) return 0;
  const auto compression = static_cast<ls::data::Compression>(data[0] % 4);
  ++data;
  --size;
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  or_refused([&] {
    // What zlib makes of a few bytes may be long, but not much longer than this.
    const size_t most = 2000 * size + 2;
    ls::data::RecordReader reader(path, compression, 1);
    std::string records;
    size_t tries = 0;
    bool intact = true;
    for (bool more = true; more;) {
      if (++tries > most) std::abort();
      const uint64_t before = reader.offset();
      try {
        const auto record = reader.next();
        more = record.has_value();
        if (more) ls::data::append_record(records, *record);
      } catch (const ls::Error&) {
        intact = false;
        if (!reader.ended() && reader.offset() <= before) std::abort();
      }
    }
    // Read from the start, they are the same bytes.
    if (intact && compression == ls::data::Compression::none &&
        records != std::string_view(reinterpret_cast<const char*>(data), size))
      std::abort();
  });
  return 0;
}
