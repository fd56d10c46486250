#include "comm/meeting.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "comm/address.h"
#include "comm/port_owner.h"
#include "comm/unauthenticated_peers.h"
#include "comm/waiting_notice.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

int listen_at(const Address& address, int bound_socket, int size, std::source_location where) {
  if (bound_socket >= 0) {
    fcntl(bound_socket, F_SETFL, fcntl(bound_socket, F_GETFL) | O_NONBLOCK);
    const bool listens = listen(bound_socket, size) == 0;
    require(listens, ErrorCode::io, where, "group: rank 0 cannot listen at ", address.host, ":", address.port,
            ": ", std::strerror(errno));
    return bound_socket;
  }
  int error = 0;
  std::string reason;
  if (const int fd = try_listen(address, size, error, reason); fd >= 0) return fd;
  if (error == EADDRINUSE)
    reason = detail::concat("the port is in use by ", port_owner(std::atoi(address.port.c_str())),
                            "; end it, or choose another port");
  if (error == EADDRNOTAVAIL) reason = "this machine does not have that address: rank 0 runs on another host";
  fail(ErrorCode::io, where, "group: rank 0 cannot listen at ", address.host, ":", address.port, ": ",
       reason);
}

class Arrivals {
 public:
  explicit Arrivals(const GroupOptions& options)
      : options_(options),
        rank_(options.rank),
        size_(options.size),
        names_(static_cast<size_t>(size_)),
        connections_(names_.size()) {
    names_[static_cast<size_t>(rank_)] = own_name();
  }

  Meeting run(std::source_location where) {
    if (size_ > 1) {
      if (rank_ == 0 && !meets_elsewhere())
        gather(where);
      else
        approach(where);
    }
    return {std::move(names_), std::move(connections_)};
  }

 private:
  // Of rank 0: whether somebody else listens where it should, as the one does who leads a run that is under
  // way.
  bool meets_elsewhere() {
    if (!options_.may_be_under_way || options_.bound_socket >= 0) return false;
    int error = 0;
    std::string failure;
    listening_ =
        try_listen(parse_address(options_.address, std::source_location::current()), size_, error, failure);
    return listening_ < 0 && error == EADDRINUSE;
  }
  bool hopeless() const { return options_.hopeless && options_.hopeless(); }

  // Rank 0 until all are there. Unauthenticated peers are never waited for, and nothing they send ends the
  // run.
  void gather(std::source_location where) {
    const int listening = listening_ >= 0 ? listening_
                                          : listen_at(parse_address(options_.address, where),
                                                      options_.bound_socket, size_, where);
    const Moment until = in_seconds(options_.timeout_s);
    UnauthenticatedPeers peers(options_.secret);
    std::vector<pollfd> entries;
    std::string missing;
    WaitingNotice notice;
    try {
      while (!(missing = missing_ranks()).empty()) {
        const int wait = milliseconds_until(until, options_.hopeless ? 50 : 1000);
        require(wait > 0 && !hopeless(), ErrorCode::io, where, "group: rank 0 waited ", options_.timeout_s,
                " s at ", options_.address, " and ", missing, " of ", size_, " did not come");
        notice.say([&] { return detail::concat(missing, " of ", size_, " at ", options_.address); });
        entries.assign(1, {listening, POLLIN, 0});
        peers.add_to(entries);
        if (poll(entries.data(), entries.size(), wait) < 0) continue;
        peers.hear(std::span(entries).subspan(1),
                   [&](std::unique_ptr<Connection> connection, const Message& message) {
                     take(std::move(connection), message, where);
                   });
        if (entries[0].revents != 0) peers.accept_at(listening);
      }
    } catch (const Error& error) {
      for (const auto& connection : connections_)
        if (connection) connection->send(MessageKind::refused, error.message());
      close(listening);
      throw;
    } catch (const RunGoesOn& elsewhere) {
      for (const auto& connection : connections_)
        if (connection) connection->send(MessageKind::goes_on, elsewhere.endpoints);
      close(listening);
      throw;
    }
    close(listening);
    MessageWriter all;
    for (const std::string& name : names_) all.put_text(name);
    const std::string body = all.take();
    for (const auto& connection : connections_)
      if (connection) connection->send(MessageKind::welcome, body);
  }

  void take(std::unique_ptr<Connection> connection, const Message& message, std::source_location where) {
    if (message.kind == MessageKind::hello)
      admit(std::move(connection), message, where);
    else if (message.kind == MessageKind::goes_on && options_.may_be_under_way)
      throw RunGoesOn{message.body, host_of_socket(connection->fd())};
  }

  std::string missing_ranks() const {
    std::string text;
    int count = 0;
    for (size_t r = 1; r < connections_.size(); ++r)
      if (!connections_[r]) {
        text += detail::concat(text.empty() ? "" : ", ", r);
        ++count;
      }
    return count == 0 ? text : (count == 1 ? "rank " : "ranks ") + text;
  }

  void admit(std::unique_ptr<Connection> connection, const Message& message, std::source_location where) {
    MessageReader hello(message.body);
    const auto r = hello.get<int32_t>(), of = hello.get<int32_t>();
    const std::string who = hello.get_text();
    // Who knows the secret is of this run: where it is told something else, the run cannot begin.
    const auto refuse = [&](const std::string& why) {
      connection->send(MessageKind::refused, why);
      fail(ErrorCode::invalid_argument, where, "group: ", why);
    };
    if (of != size_ || r < 1 || r >= size_)
      refuse(
          detail::concat(who, " says that it is rank ", r, " of ", of, ", rank 0 expects ", size_, " ranks"));
    // One that has died before the others came, and was started again, takes its own place.
    if (connections_[static_cast<size_t>(r)] && !connections_[static_cast<size_t>(r)]->closed())
      refuse(
          detail::concat(who, " and ", names_[static_cast<size_t>(r)], " both say that they are rank ", r));
    names_[static_cast<size_t>(r)] = who;
    connections_[static_cast<size_t>(r)] = std::move(connection);
  }

  // Another rank until it is welcome.
  void approach(std::source_location where) {
    const Address address = parse_address(options_.address, where);
    const Moment until = in_seconds(options_.timeout_s);
    const auto about = [&] { return detail::concat("rank 0 at ", options_.address); };
    std::string failure;
    WaitingNotice notice;
    std::unique_ptr<Connection> hub;
    while (!hub) {
      const int fd = try_connect(address, until, failure);
      if (fd >= 0) {
        hub = std::make_unique<Connection>(fd);
        // What listens there may be stopped, or be gone before it answers: another takes its place then.
        const Moment answer = options_.may_be_under_way
                                  ? std::min(until, in_seconds(UnauthenticatedPeers::kProofSeconds))
                                  : until;
        failure = hub->prove(options_.secret, answer, [&] {
          notice.say([&] { return about() + ": what listens there does not answer"; });
        });
        if (failure.empty()) break;
        require(options_.may_be_under_way && SteadyClock::now() < until && !hopeless(), ErrorCode::io, where,
                "group: rank ", rank_, " of ", size_, " at ", options_.address, ": ", failure);
        hub = nullptr;
      }
      require(SteadyClock::now() < until && !hopeless(), ErrorCode::io, where, "group: rank ", rank_, " of ",
              size_, " waited ", options_.timeout_s, " s for ", about(), ": ", failure);
      notice.say([&] { return about() + ": " + failure; });
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.hopeless ? 5 : 50));
    }
    hub->send(MessageKind::hello,
              MessageWriter().put(int32_t{rank_}).put(int32_t{size_}).put_text(own_name()).take());
    Message message;
    bool answered = false;
    while (!(answered = hub->wait_for(message, std::min(until, in_seconds(options_.hopeless ? 0.05 : 1)))) &&
           SteadyClock::now() < until && hub->open() && !hopeless())
      notice.say([&] { return "the other ranks, at " + options_.address; });
    if (answered && message.kind == MessageKind::goes_on)
      throw RunGoesOn{message.body, host_of_socket(hub->fd())};
    require(answered && message.kind != MessageKind::refused, ErrorCode::io, where, "group: rank ", rank_,
            " of ", size_, " at ", options_.address, ": ",
            answered ? message.body : "rank 0 did not welcome it");
    MessageReader all(message.body);
    for (std::string& name : names_) name = all.get_text();
    connections_[0] = std::move(hub);
  }

  const GroupOptions& options_;
  const int rank_, size_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int listening_ = -1;  // until all have come, where it was tried in advance
};

}  // namespace

Meeting meet(const GroupOptions& options, std::source_location where) {
  require(options.size >= 1 && options.rank >= 0 && options.rank < options.size, ErrorCode::invalid_argument,
          where, "group: ranks are from 0 to size - 1, received rank ", options.rank, " of ", options.size);
  return Arrivals(options).run(where);
}

}  // namespace lockstep::comm
