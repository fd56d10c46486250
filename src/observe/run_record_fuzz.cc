// Any bytes as the record of a run: read, or refused by an Error. The mutator changes JSON as JSON, since
// bytes that were changed at random seldom are any.
#include <cstring>
#include <string_view>

#include "observe/record_mutations_test.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string changed = lockstep::observe::RecordMutation(seed)(lockstep::Json::parse(text)).dump();
    if (changed.size() > max_size) return size;
    std::memcpy(data, changed.data(), changed.size());
    return changed.size();
  } catch (const lockstep::Error&) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::observe::read_or_refuse({reinterpret_cast<const char*>(data), size});
  return 0;
}
