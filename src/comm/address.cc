#include "comm/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/host.h"

namespace lockstep::comm {
namespace {

// The addresses that a name stands for; none, with the reason, where it stands for none now.
struct Resolved {
  addrinfo* list = nullptr;
  std::string failure;
  Resolved(const Address& address, bool passive) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    if (const int code = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list); code != 0) {
      list = nullptr;
      failure = detail::concat("the name ", address.host, " cannot be resolved (", gai_strerror(code), ")");
    }
  }
  ~Resolved() {
    if (list) freeaddrinfo(list);
  }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;
};

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

Address parse_address(const std::string& text, std::source_location where) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0 && colon + 1 < text.size(), ErrorCode::invalid_argument,
          where, "group: an address is host:port, received \"", text, "\"");
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {std::move(host), text.substr(colon + 1)};
}

std::string address_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? detail::concat(host, ":", port)
                                             : detail::concat("[", host, "]:", port);
}

int try_listen(const Address& address, int backlog, int& error, std::string& failure) {
  const Resolved resolved(address, true);
  failure = resolved.failure;
  error = 0;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, backlog) == 0) return fd;
    error = errno;
    failure = std::strerror(error);
    close(fd);
  }
  return -1;
}

int try_connect(const Address& address, Moment until, std::string& failure, bool* refused) {
  const Resolved resolved(address, false);
  failure = resolved.failure;
  if (refused) *refused = false;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    int error = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      // A host that answers nothing must not use up all the time: its other addresses get some too.
      pollfd entry{fd, POLLOUT, 0};
      const int ready = poll(&entry, 1, milliseconds_until(until, 3000));
      socklen_t size = sizeof error;
      if (ready <= 0)
        error = ETIMEDOUT;
      else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return fd;
    if (refused) *refused = error == ECONNREFUSED || error == ECONNRESET;
    failure = error == ECONNREFUSED ? "nobody listens there" : std::strerror(error);
    close(fd);
  }
  return -1;
}

int bind_any_port(const std::string& host, int& port, std::source_location where) {
  const Resolved resolved({host, "0"}, true);
  require(resolved.list != nullptr, ErrorCode::io, where, "rank 0 cannot listen at ", host, ": ",
          resolved.failure);
  int fd = -1;
  for (const addrinfo* a = resolved.list; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) != 0) {
      close(fd);
      fd = -1;
    }
  }
  require(fd >= 0, ErrorCode::io, where, "rank 0 cannot listen at ", host, ": ", std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return fd;
}

std::string host_of_socket(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = {};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(fd, generic, &length) == 0 &&
      getnameinfo(generic, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0)
    return host;
  return "127.0.0.1";
}

std::string own_name() { return detail::concat("process ", getpid(), " on host ", host_name()); }

std::string reachable_host() {
  const std::string name = host_name();
  if (const Resolved resolved({name, "0"}, false); resolved.list && !is_loopback(resolved.list->ai_addr))
    return name;
  std::string host = name;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return host;
  for (const ifaddrs* i = interfaces; i; i = i->ifa_next) {
    char text[INET_ADDRSTRLEN] = {};
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
        is_loopback(i->ifa_addr))
      continue;
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text, sizeof text);
    host = text;
    break;
  }
  freeifaddrs(interfaces);
  return host;
}

}  // namespace lockstep::comm
