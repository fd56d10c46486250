// How the ranks of a group come together: rank 0 listens until all are there, the others go to it.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "comm/connection.h"
#include "comm/group.h"

namespace lockstep::comm {

// All ranks, when all have come.
struct Meeting {
  std::vector<std::string> names;  // by rank: "process 71 on host b"
  // By rank: of rank 0 all others', of the others rank 0's.
  std::vector<std::unique_ptr<Connection>> connections;
};

// Returns when all are there, and throws what Group's constructor does (comm/group.h).
Meeting meet(const GroupOptions& options, std::source_location where);

}  // namespace lockstep::comm
