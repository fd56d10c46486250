#include "backends/cuda/kept_code.h"

#include <filesystem>
#include <system_error>

#include "base/environment.h"
#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {
namespace {

// Nothing where there is no home to have one in.
std::optional<std::filesystem::path> folder() {
  static const auto found = []() -> std::optional<std::filesystem::path> {
    std::filesystem::path base;
    if (const auto cache = env::read_string("XDG_CACHE_HOME"))
      base = *cache;
    else if (const auto home = env::read_string("HOME"))
      base = std::filesystem::path(*home) / ".cache";
    else
      return std::nullopt;
    base = base / "lockstep" / "kernels";
    std::error_code error;
    std::filesystem::create_directories(base, error);
    if (error) {
      log_once(LogLevel::info, "compiled kernels are not kept: ", base.string(), ": ", error.message());
      return std::nullopt;
    }
    return base;
  }();
  return found;
}

}  // namespace

std::optional<std::string> find_kept_code(const std::string& name) {
  const auto in = folder();
  std::error_code error;
  if (!in || !std::filesystem::exists(*in / name, error)) return std::nullopt;
  try {
    return read_file(*in / name);
  } catch (const Error& e) {
    log_once(LogLevel::info, "a compiled kernel cannot be read: ", e.message());
    return std::nullopt;
  }
}

void keep_code(const std::string& name, const std::string& code) {
  const auto in = folder();
  if (!in) return;
  try {
    AtomicFile file(*in / name);
    file.write(code);
    file.commit();
  } catch (const Error& e) {
    log_once(LogLevel::info, "compiled kernels are not kept: ", e.message());
  }
}

}  // namespace lockstep::cuda
