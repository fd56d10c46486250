// Peers that have connected to a process that listens, until they have authenticated (shown that they know
// the secret) and said what they want.
//
// Unauthenticated peers are never waited for: each has some seconds, and there are never more than some;
// where more come, the oldest goes.
#pragma once

#include <poll.h>

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/connection.h"

namespace lockstep::comm {

class UnauthenticatedPeers {
 public:
  static constexpr double kProofSeconds = 5;

  explicit UnauthenticatedPeers(std::string secret) : secret_(std::move(secret)) {}

  // Accepts one that has connected there, if one has, and challenges it.
  void accept_at(int listening);
  // For poll(): an entry for each, behind those that are there.
  void add_to(std::vector<pollfd>& entries) const;
  // Hears those who have spoken, by their entries, and lets go of those whose time is over. Who has proved
  // that it knows the secret is given to `take` with its first message, and leaves these. What `take` throws
  // is passed on.
  using Taker = std::function<void(std::unique_ptr<Connection>, const Message&)>;
  void hear(std::span<const pollfd> entries, const Taker& take);

 private:
  struct Peer {
    std::unique_ptr<Connection> connection;
    Moment until;
    bool proven = false;
  };
  // False: it is done with, taken or not.
  bool hear(Peer& peer, const Taker& take) const;

  const std::string secret_;
  std::deque<Peer> peers_;
};

}  // namespace lockstep::comm
