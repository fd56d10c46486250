#include "lockstep/plan/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

// The shortest of some tries: whatever else the machine does makes it longer, never shorter.
double shortest_s(int tries, const std::function<void()>& work) {
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < tries; ++i) {
    const int64_t start = Clock::system().now_ns();
    work();
    shortest = std::min(shortest, Clock::system().now_ns() - start);
  }
  return static_cast<double>(shortest) * 1e-9;
}

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {
    require(descriptor >= 0, ErrorCode::io, std::source_location::current(),
            "the loopback device cannot be used: ", std::strerror(errno));
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Socket() { close(descriptor_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int descriptor() const { return descriptor_; }

  // False where the other side is gone.
  bool write(std::vector<char>& data) const {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t count = send(descriptor_, data.data() + done, data.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    return true;
  }
  bool read(std::vector<char>& data) const {
    return recv(descriptor_, data.data(), data.size(), MSG_WAITALL) == static_cast<ssize_t>(data.size());
  }

 private:
  int descriptor_;
};

}  // namespace

Link measure_memory() {
  constexpr size_t kBytes = 64 << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const double seconds = shortest_s(5, [&] { std::memcpy(to.data(), from.data(), kBytes); });
  // An all-reduce over n devices sends 2 (n - 1) / n of the bytes in the accounts of a ring; a device's
  // thread reads and writes all of them once, which is one copy.
  const double copy = static_cast<double>(kBytes) / seconds;
  return {.name = "memory",
          .bytes_per_s = copy,
          .latency_s = 5e-6,
          .source = "a copy by one core, measured here",
          .assumed = "the latency"};
}

Link measure_loopback() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool listens = bind(listener.descriptor(), any, size) == 0 && listen(listener.descriptor(), 1) == 0 &&
                       getsockname(listener.descriptor(), any, &size) == 0;
  require(listens, ErrorCode::io, std::source_location::current(),
          "the loopback device cannot be used: ", std::strerror(errno));
  constexpr size_t kSmall = 64, kLarge = 4 << 20;
  constexpr int kSmallTries = 50, kLargeTries = 5;
  const Socket near(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = connect(near.descriptor(), any, size) == 0;
  require(connected, ErrorCode::io, std::source_location::current(),
          "the loopback device cannot be used: ", std::strerror(errno));
  const Socket far(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  std::jthread echo([&] {
    for (const auto& [bytes, tries] : {std::pair{kSmall, kSmallTries}, std::pair{kLarge, kLargeTries}}) {
      std::vector<char> data(bytes);
      for (int i = 0; i < tries; ++i)
        if (!far.read(data) || !far.write(data)) return;
    }
  });
  const auto there_and_back_s = [&](size_t bytes, int tries) {
    std::vector<char> data(bytes);
    return shortest_s(tries, [&] {
      const bool answered = near.write(data) && near.read(data);
      require(answered, ErrorCode::io, std::source_location::current(),
              "the loopback device stopped to answer: ", std::strerror(errno));
    });
  };
  const double latency = there_and_back_s(kSmall, kSmallTries) / 2;
  const double large = there_and_back_s(kLarge, kLargeTries) / 2;
  return {.name = "loopback",
          .bytes_per_s = static_cast<double>(kLarge) / std::max(large - latency, 1e-9),
          .latency_s = latency,
          .source = "a TCP connection of this machine with itself, measured here"};
}

}  // namespace lockstep::plan
