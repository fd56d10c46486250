// libnccl, loaded when it is first needed: a program on one card never pays for it.
#pragma once

#include <nccl.h>

#include <string>

namespace lockstep::nccl {

// The functions that the plugin calls.
struct Library {
  std::string path;
  int version = 0;  // NCCL_VERSION_CODE of what was loaded

#define LOCKSTEP_NCCL_FUNCTIONS(X)                                                                    \
  X(GetVersion)                                                                                       \
  X(GetUniqueId)                                                                                      \
  X(GetErrorString) X(GetLastError) X(CommInitRankConfig) X(CommFinalize) X(CommDestroy) X(CommAbort) \
      X(CommGetAsyncError) X(AllReduce) X(Broadcast) X(AllGather) X(GroupStart) X(GroupEnd)
#define LOCKSTEP_NCCL_MEMBER(name) decltype(&nccl##name) name = nullptr;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_NCCL_MEMBER)
#undef LOCKSTEP_NCCL_MEMBER
};

// Throws Error(unsupported) that says what is missing and where it was looked for. Thread-safe.
const Library& library();

}  // namespace lockstep::nccl
