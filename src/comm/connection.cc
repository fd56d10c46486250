#include "comm/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/sha256.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr size_t kHead = sizeof(MessageKind) + sizeof(uint32_t);
constexpr uint32_t kLargestBody = 16 << 20;

// In front of a challenge and of a proof: what speaks another language, or another version of this one, shows
// in it.
constexpr std::string_view kGreeting = "lockstep group 2\n";
constexpr size_t kNonce = 32, kDigest = 32;

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t at = 0; at < count;) {
    const ssize_t got = getrandom(bytes.data() + at, count - at, 0);
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ErrorCode::io, std::source_location::current(),
            "group: the system gives no random numbers");
    at += static_cast<size_t>(got);
  }
  return bytes;
}

// In a time that does not depend on where they differ.
bool same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

Moment in_seconds(double s) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(s));
}

int milliseconds_until(Moment moment, int most) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(moment - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, most));
}

std::string MessageReader::get_text() {
  const auto size = std::min<size_t>(get<uint32_t>(), text_.size() - at_);
  at_ += size;
  return text_.substr(at_ - size, size);
}

Connection::Connection(int fd) : fd_(fd) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}
Connection::~Connection() { close(fd_); }

bool Connection::send_bytes(const std::string& bytes, Moment until) {
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent > 0) {
      at += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const int wait = milliseconds_until(until, 1000);
      pollfd entry{fd_, POLLOUT, 0};
      if (wait == 0) return false;
      poll(&entry, 1, wait);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Connection::send(MessageKind kind, const std::string& body, double timeout_s) {
  return send_bytes(MessageWriter().put(kind).put(static_cast<uint32_t>(body.size())).take() + body,
                    in_seconds(timeout_s));
}

std::deque<Message> Connection::take_early() { return std::exchange(early_, {}); }

bool Connection::receive(std::deque<Message>& messages) {
  open_ = open_ && take_arrived(messages);
  return open_;
}

bool Connection::take_arrived(std::deque<Message>& messages) {
  char bytes[32768];
  const ssize_t count = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (count == 0) return false;
  arrived_.append(bytes, static_cast<size_t>(count));
  while (arrived_.size() >= kHead) {
    MessageReader head(arrived_);
    const auto kind = head.get<MessageKind>();
    const auto size = head.get<uint32_t>();
    if (kind < MessageKind::hello || kind > MessageKind::last || size > kLargestBody) return false;
    if (arrived_.size() < kHead + size) break;
    messages.push_back({kind, arrived_.substr(kHead, size)});
    arrived_.erase(0, kHead + size);
  }
  return true;
}

bool Connection::closed() const {
  char byte = 0;
  const ssize_t count = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool Connection::wait_for(Message& message, Moment until) {
  while (early_.empty()) {
    const int wait = milliseconds_until(until, 1000);
    pollfd entry{fd_, POLLIN, 0};
    if (poll(&entry, 1, wait) > 0 ? !receive(early_) : wait == 0) return false;
  }
  message = std::move(early_.front());
  early_.pop_front();
  return true;
}

bool Connection::read_exactly(std::string& bytes, size_t count, Moment until,
                              const std::function<void()>& waiting) {
  bytes.clear();
  while (bytes.size() < count) {
    const int wait = milliseconds_until(until, 1000);
    if (wait == 0) return false;
    pollfd entry{fd_, POLLIN, 0};
    if (poll(&entry, 1, wait) <= 0) {
      if (waiting) waiting();
      continue;
    }
    char part[128];
    const ssize_t got = recv(fd_, part, std::min(sizeof part, count - bytes.size()), MSG_DONTWAIT);
    if (got > 0)
      bytes.append(part, static_cast<size_t>(got));
    else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
      return false;
  }
  return true;
}

// challenge:  greeting, nonce S
// proof:      greeting, nonce C, HMAC(secret, "joins" S C)
// answer:     HMAC(secret, "accepts" C S), or the end of the connection

bool Connection::begin_challenge() {
  nonce_ = random_bytes(kNonce);
  return send_bytes(std::string(kGreeting) + nonce_, in_seconds(1));
}

Connection::Proof Connection::answered(const std::string& secret) {
  constexpr size_t kProof = kGreeting.size() + kNonce + kDigest;
  char bytes[kProof];
  const ssize_t count = recv(fd_, bytes, kProof - arrived_.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
    return Proof::refused;
  if (count > 0) arrived_.append(bytes, static_cast<size_t>(count));
  if (arrived_.size() < kProof) return Proof::pending;
  const std::string proof = std::exchange(arrived_, {});
  const std::string theirs = proof.substr(kGreeting.size(), kNonce);
  if (!same(proof.substr(kGreeting.size() + kNonce), hmac_sha256(secret, "joins" + nonce_ + theirs)))
    return Proof::refused;
  return send_bytes(hmac_sha256(secret, "accepts" + theirs + nonce_), in_seconds(1)) ? Proof::proven
                                                                                     : Proof::refused;
}

std::string Connection::prove(const std::string& secret, Moment until, const std::function<void()>& waiting) {
  std::string challenge;
  if (!read_exactly(challenge, kGreeting.size() + kNonce, until, waiting) ||
      !challenge.starts_with(kGreeting))
    return "what listens there is no run of this version of Lockstep";
  const std::string theirs = challenge.substr(kGreeting.size()), own = random_bytes(kNonce);
  std::string answer;
  if (!send_bytes(std::string(kGreeting) + own + hmac_sha256(secret, "joins" + theirs + own), until) ||
      !read_exactly(answer, kDigest, until, waiting))
    return "rank 0 did not take the secret: all ranks need the same one";
  if (!same(answer, hmac_sha256(secret, "accepts" + own + theirs)))
    return "what listens there does not know the secret of this run";
  return {};
}

}  // namespace lockstep::comm
