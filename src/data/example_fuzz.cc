// Any bytes as an Example: parsed, or refused by an Error; what was parsed survives being written.
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/example.h"

namespace {

namespace ls = lockstep;

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
  using ls::DType;
  static const ls::data::ExampleParser fixed(
      {{"image", {.dtype = DType::uint8}}, {"weights", {.shape = {2}}}, {"label", {.dtype = DType::int64}}});
  static const ls::data::ExampleParser any({{"weights", {.variable_length = true}},
                                            {"numbers", {.dtype = DType::int64, .variable_length = true}}});
  static const ls::data::ExampleParser strings({{"words", {.dtype = DType::uint8, .variable_length = true}}});
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view twice[] = {bytes, bytes};
  or_refused([&] { fixed.parse(bytes); });
  or_refused([&] { any.parse(bytes); });
  or_refused([&] { strings.parse(bytes); });
  or_refused([&] { fixed.parse_batch(twice); });
  or_refused([&] { any.parse_batch(twice); });
  or_refused([&] {
    const std::string written = ls::data::Example::parse(bytes).serialize();
    if (ls::data::Example::parse(written).serialize() != written) std::abort();
  });
  return 0;
}
