// Any bytes as a run file, models' JSON in it included: carried out, or refused by an Error. The mutator
// changes JSON as JSON, since bytes that were changed at random seldom are any.
#include <cstdio>
#include <cstring>

#include "cli/run_mutations_test.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  // Now and then the bytes themselves.
  if (seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string changed = lockstep::cli::Mutation(seed)(lockstep::Json::parse(text)).dump();
    if (changed.size() > max_size) return size;
    std::memcpy(data, changed.data(), changed.size());
    return changed.size();
  } catch (const lockstep::Error&) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::FILE* const out = std::fopen("/dev/null", "w");
  lockstep::cli::carry_out_or_refuse({reinterpret_cast<const char*>(data), size}, out);
  return 0;
}
