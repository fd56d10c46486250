#include "comm/unauthenticated_peers.h"

#include <sys/socket.h>

namespace lockstep::comm {

void UnauthenticatedPeers::accept_at(int listening) {
  constexpr size_t kMost = 1024;
  const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  if (peers_.size() == kMost) peers_.pop_front();
  Peer peer{std::make_unique<Connection>(fd), in_seconds(kProofSeconds)};
  if (peer.connection->begin_challenge()) peers_.push_back(std::move(peer));
}

void UnauthenticatedPeers::add_to(std::vector<pollfd>& entries) const {
  for (const Peer& peer : peers_) entries.push_back({peer.connection->fd(), POLLIN, 0});
}

void UnauthenticatedPeers::hear(std::span<const pollfd> entries, const Taker& take) {
  for (size_t i = peers_.size(); i-- > 0;) {
    const bool speaks = entries[i].revents != 0;
    if ((speaks && !hear(peers_[i], take)) || SteadyClock::now() > peers_[i].until)
      peers_.erase(peers_.begin() + static_cast<ptrdiff_t>(i));
  }
}

bool UnauthenticatedPeers::hear(Peer& peer, const Taker& take) const {
  if (!peer.proven) {
    const Connection::Proof proof = peer.connection->answered(secret_);
    peer.proven = proof == Connection::Proof::proven;
    return proof != Connection::Proof::refused;
  }
  std::deque<Message> messages;
  if (!peer.connection->receive(messages)) return false;
  if (messages.empty()) return true;
  take(std::move(peer.connection), messages.front());
  return false;
}

}  // namespace lockstep::comm
