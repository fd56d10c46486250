#include "lockstep/base/host.h"

#include <unistd.h>

#include <array>
#include <chrono>

namespace lockstep {
namespace {

std::chrono::system_clock::duration since_1970() {
  return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};  // the system cuts a longer one without a zero at its end
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

int64_t milliseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_1970()).count();
}

double seconds_since_1970() { return std::chrono::duration<double>(since_1970()).count(); }

}  // namespace lockstep
