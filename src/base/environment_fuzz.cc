// Any text as the value of an environment variable: it is read, or refused by an Error.
#include <cstdlib>
#include <string_view>

#include "base/environment.h"
#include "lockstep/base/error.h"

namespace {

template <class F>
void read_or_refuse(F read) {
  try {
    read();
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace env = lockstep::env;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static constexpr std::string_view kChoices[] = {"debug", "info", "off"};
  read_or_refuse([&] {
    const int64_t value = env::parse_int("fuzz", text, -5, 1000);
    if (value < -5 || value > 1000) std::abort();
  });
  read_or_refuse([&] { env::parse_bool("fuzz", text); });
  read_or_refuse([&] {
    const int choice = env::parse_choice("fuzz", text, kChoices);
    if (choice < 0 || choice > 2) std::abort();
  });
  return 0;
}
