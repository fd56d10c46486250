#include "comm/strangers.h"

#include <sys/socket.h>

namespace lockstep::comm {

void Strangers::accept_at(int listening) {
  constexpr size_t kMost = 1024;
  const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  if (strangers_.size() == kMost) strangers_.pop_front();
  Stranger stranger{std::make_unique<Connection>(fd), in_seconds(kProofSeconds)};
  if (stranger.connection->begin_challenge()) strangers_.push_back(std::move(stranger));
}

void Strangers::add_to(std::vector<pollfd>& entries) const {
  for (const Stranger& stranger : strangers_) entries.push_back({stranger.connection->fd(), POLLIN, 0});
}

void Strangers::hear(std::span<const pollfd> entries, const Taker& take) {
  for (size_t i = strangers_.size(); i-- > 0;) {
    const bool speaks = entries[i].revents != 0;
    if ((speaks && !hear(strangers_[i], take)) || SteadyClock::now() > strangers_[i].until)
      strangers_.erase(strangers_.begin() + static_cast<ptrdiff_t>(i));
  }
}

bool Strangers::hear(Stranger& stranger, const Taker& take) const {
  if (!stranger.proven) {
    const Connection::Proof proof = stranger.connection->answered(secret_);
    stranger.proven = proof == Connection::Proof::proven;
    return proof != Connection::Proof::refused;
  }
  std::deque<Message> messages;
  if (!stranger.connection->receive(messages)) return false;
  if (messages.empty()) return true;
  take(std::move(stranger.connection), messages.front());
  return false;
}

}  // namespace lockstep::comm
