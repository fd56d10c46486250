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
  const auto look_up = [&]<class F>(F*& function, const char* name) {
    const auto found = result.library->symbol<F>(name);
    function = found.address;
    if (!found && attempt.reason.empty())
      attempt.reason = detail::concat(library.path, " is not NCCL 2: ", found.error);
  };
  look_up(library.get_version, "ncclGetVersion");
  look_up(library.get_unique_id, "ncclGetUniqueId");
  look_up(library.get_error_string, "ncclGetErrorString");
  look_up(library.get_last_error, "ncclGetLastError");
  look_up(library.comm_init_rank, "ncclCommInitRankConfig");
  look_up(library.comm_finalize, "ncclCommFinalize");
  look_up(library.comm_destroy, "ncclCommDestroy");
  look_up(library.comm_abort, "ncclCommAbort");
  look_up(library.comm_get_async_error, "ncclCommGetAsyncError");
  look_up(library.all_reduce, "ncclAllReduce");
  look_up(library.broadcast, "ncclBroadcast");
  look_up(library.all_gather, "ncclAllGather");
  look_up(library.send, "ncclSend");
  look_up(library.receive, "ncclRecv");
  look_up(library.group_start, "ncclGroupStart");
  look_up(library.group_end, "ncclGroupEnd");
  if (!attempt.reason.empty()) return attempt;
  library.get_version(&library.version);
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
