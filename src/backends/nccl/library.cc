#include "backends/nccl/library.h"

#include "base/shared_library.h"
#include "lockstep/base/error.h"

namespace lockstep::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest =
    NCCL_VERSION(2, 18, 0);  // communicators that do not block, and records of collectives

struct Attempt {
  Library library;
  std::string reason;  // why there is none
};

Attempt load() {
  Attempt attempt;
  const std::string file = kFile;
  LoadResult result = load_library(std::span(&file, 1));
  if (!result.library) {
    attempt.reason = detail::concat("NCCL is missing: ", describe(result.failures), "; looked for in");
    for (const std::string& folder : loader_folders()) attempt.reason += " " + folder;
    attempt.reason += "; install NCCL 2 for CUDA 13, or add its folder to LD_LIBRARY_PATH";
    return attempt;
  }
  Library& library = attempt.library;
  library.path = result.library->path();
#define LOCKSTEP_NCCL_LOOK_UP(name)                                                            \
  if (const auto found =                                                                       \
          result.library->symbol<std::remove_pointer_t<decltype(library.name)>>("nccl" #name)) \
    library.name = found.address;                                                              \
  else if (attempt.reason.empty())                                                             \
    attempt.reason = detail::concat(library.path, " is not NCCL 2: ", found.error);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_NCCL_LOOK_UP)
#undef LOCKSTEP_NCCL_LOOK_UP
  if (!attempt.reason.empty()) return attempt;
  library.GetVersion(&library.version);
  if (library.version < kOldest)
    attempt.reason = detail::concat(library.path, " is NCCL ", library.version / 10000, ".",
                                    library.version % 10000 / 100, "; 2.18 or newer is needed");
  result.library->keep_loaded();
  return attempt;
}

}  // namespace

const Library& library() {
  static const auto* attempt = new Attempt(load());
  require(attempt->reason.empty(), ErrorCode::unsupported, std::source_location::current(), attempt->reason);
  return attempt->library;
}

}  // namespace lockstep::nccl
