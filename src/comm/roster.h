// Who takes part in a generation of an elastic run, as its processes tell each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/connection.h"

namespace lockstep::comm {

struct Member {
  uint64_t id = 0;       // of this process and no other
  std::string endpoint;  // host:port
  std::string who;       // "process 71 on host b"
};

void put(MessageWriter& message, const Member& member);
Member take_member(MessageReader& message);

// The processes of one generation, by rank: whoever came later stands behind those who were there.
struct Roster {
  int64_t generation = 0;
  std::vector<Member> members = {};

  int rank_of(uint64_t id) const;  // -1: it is none of them
  std::string text() const;        // for messages
  // As text() wrote it; of a message that ends early, the members that it has.
  static Roster from(MessageReader& reader);
};

}  // namespace lockstep::comm
