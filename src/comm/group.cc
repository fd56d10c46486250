#include "comm/group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/connection.h"
#include "comm/port_owner.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

struct Address {
  std::string host, port;
};

Address parse(const std::string& text, std::source_location where) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0 && colon + 1 < text.size(), ErrorCode::invalid_argument,
          where, "group: an address is host:port, received \"", text, "\"");
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {std::move(host), text.substr(colon + 1)};
}

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

int listen_at(const Address& address, int size, std::source_location where) {
  const Resolved resolved(address, true);
  require(resolved.list != nullptr, ErrorCode::io, where, "group: rank 0 cannot listen at ", address.host,
          ":", address.port, ": ", resolved.failure);
  int error = 0;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, size) == 0) return fd;
    error = errno;
    close(fd);
  }
  std::string reason = std::strerror(error);
  if (error == EADDRINUSE)
    reason = detail::concat("the port is in use by ", port_owner(std::atoi(address.port.c_str())),
                            "; end it, or choose another port");
  if (error == EADDRNOTAVAIL) reason = "this machine does not have that address: rank 0 runs on another host";
  fail(ErrorCode::io, where, "group: rank 0 cannot listen at ", address.host, ":", address.port, ": ",
       reason);
}

// A socket, or -1 and why there is none now.
int try_connect(const Address& address, Moment until, std::string& failure) {
  const Resolved resolved(address, false);
  failure = resolved.failure;
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
    failure = error == ECONNREFUSED ? "nobody listens there" : std::strerror(error);
    close(fd);
  }
  return -1;
}

// Says for whom this process waits, at once after a few seconds and then every few.
class WaitingNotice {
 public:
  template <class Who>
  void say(const Who& who) {
    if (SteadyClock::now() < next_) return;
    next_ = in_seconds(kSeconds);
    log(LogLevel::info, "group: for ",
        std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - began_).count(),
        " s waiting for ", who());
  }

 private:
  static constexpr double kSeconds = 5;
  const Moment began_ = SteadyClock::now();
  Moment next_ = in_seconds(kSeconds);
};

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

}  // namespace

class Group::Impl {
 public:
  Impl(const GroupOptions& options, std::source_location where)
      : options_(options), members_(static_cast<size_t>(options.size)) {
    require(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
            ErrorCode::invalid_argument, where, "group: ranks are from 0 to size - 1, received rank ",
            options.rank, " of ", options.size);
    member(rank()).who = detail::concat("process ", getpid(), " on host ", host_name());
    connections_.resize(members_.size());
    if (size() == 1) return;
    rank() == 0 ? gather(where) : approach(where);
    require(pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0, ErrorCode::io, where, "group: ", std::strerror(errno));
    watcher_ = std::thread([this] { watch(); });
  }

  ~Impl() {
    if (!watcher_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    for (const auto& connection : connections_)
      if (connection) connection->send(MessageKind::goodbye, {});
    wake();
    watcher_.join();
    close(wake_[0]);
    close(wake_[1]);
  }

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  std::string share(const std::string& bytes, std::source_location where) {
    if (rank() == 0) {
      for (size_t r = 1; r < connections_.size(); ++r)
        require(connections_[r]->send(MessageKind::shared, bytes, options_.timeout_s), ErrorCode::io, where,
                "group: rank 0 could not share ", bytes.size(), " bytes with ", name_of(r));
      return bytes;
    }
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_until(lock, in_seconds(options_.timeout_s),
                                          [&] { return !shared_.empty() || !lost_text().empty(); });
    if (!shared_.empty()) {
      std::string first = std::move(shared_.front());
      shared_.pop_front();
      return first;
    }
    fail(ErrorCode::io, where, "group: rank ", rank(), " waited for what rank 0 shares; ",
         came ? lost_text() : detail::concat("nothing came within ", options_.timeout_s, " s"));
  }

  void progress(int64_t begun, int64_t ended) {
    const std::lock_guard lock(mutex_);
    Member& own = member(rank());
    if (own.begun == begun && own.ended == ended) return;
    own.begun = begun;
    own.ended = ended;
    untold_ = true;
  }

  std::string lost() const {
    const std::lock_guard lock(mutex_);
    return lost_text();
  }

  std::string behind(int64_t operation) const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (size_t r = 0; r < members_.size(); ++r)
      if (members_[r].begun < operation)
        text += detail::concat(text.empty() ? "" : "; ", name(r), " has begun ", members_[r].begun);
    return text;
  }

 private:
  struct Member {
    std::string who;
    std::string lost;  // why; empty: it is there
    bool left = false;
    int64_t begun = 0, ended = 0;
  };

  Member& member(int r) { return members_[static_cast<size_t>(r)]; }
  std::string name_of(size_t r) const {
    const std::lock_guard lock(mutex_);
    return name(r);
  }
  std::string name(size_t r) const {
    return members_[r].who.empty() ? detail::concat("rank ", r)
                                   : detail::concat("rank ", r, " (", members_[r].who, ")");
  }
  std::string lost_text() const {
    std::string text;
    for (size_t r = 0; r < members_.size(); ++r)
      if (!members_[r].lost.empty())
        text += detail::concat(text.empty() ? "" : "; ", name(r), " is gone: ", members_[r].lost);
    return text;
  }

  // Whoever has connected and not yet shown that it knows the secret.
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Moment until;
    bool proven = false;
  };

  // Rank 0 until all are there. Strangers are never waited for, and nothing they send ends the run.
  void gather(std::source_location where) {
    const int listening = listen_at(parse(options_.address, where), size(), where);
    const Moment until = in_seconds(options_.timeout_s);
    std::deque<Stranger> strangers;
    std::vector<pollfd> entries;
    std::string missing;
    WaitingNotice notice;
    try {
      while (!(missing = missing_ranks()).empty()) {
        const int wait = milliseconds_until(until, 1000);
        require(wait > 0, ErrorCode::io, where, "group: rank 0 waited ", options_.timeout_s, " s at ",
                options_.address, " and ", missing, " of ", size(), " did not come");
        notice.say([&] { return detail::concat(missing, " of ", size(), " at ", options_.address); });
        entries.assign(1, {listening, POLLIN, 0});
        for (const Stranger& stranger : strangers) entries.push_back({stranger.connection->fd(), POLLIN, 0});
        if (poll(entries.data(), entries.size(), wait) < 0) continue;
        for (size_t i = strangers.size(); i-- > 0;) {
          const bool speaks = entries[i + 1].revents != 0;
          if ((speaks && !hear(strangers[i], where)) || SteadyClock::now() > strangers[i].until)
            strangers.erase(strangers.begin() + static_cast<ptrdiff_t>(i));
        }
        if (entries[0].revents == 0) continue;
        if (const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) {
          if (strangers.size() == kMostStrangers) strangers.pop_front();
          Stranger stranger{std::make_unique<Connection>(fd), in_seconds(kProofSeconds)};
          if (stranger.connection->begin_challenge()) strangers.push_back(std::move(stranger));
        }
      }
    } catch (const Error& error) {
      for (const auto& connection : connections_)
        if (connection) connection->send(MessageKind::refused, error.message());
      close(listening);
      throw;
    }
    close(listening);
    MessageWriter all;
    for (const Member& m : members_) all.put_text(m.who);
    const std::string body = all.take();
    for (const auto& connection : connections_)
      if (connection) connection->send(MessageKind::welcome, body);
  }

  // False: it is done with, admitted or not.
  bool hear(Stranger& stranger, std::source_location where) {
    if (!stranger.proven) {
      const Connection::Proof proof = stranger.connection->answered(options_.secret);
      stranger.proven = proof == Connection::Proof::proven;
      return proof != Connection::Proof::refused;
    }
    std::deque<Message> messages;
    if (!stranger.connection->receive(messages)) return false;
    if (messages.empty()) return true;
    if (messages.front().kind == MessageKind::hello)
      admit(std::move(stranger.connection), messages.front(), where);
    return false;
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
    if (of != size() || r < 1 || r >= size())
      refuse(detail::concat(who, " says that it is rank ", r, " of ", of, ", rank 0 expects ", size(),
                            " ranks"));
    if (connections_[static_cast<size_t>(r)])
      refuse(detail::concat(who, " and ", member(r).who, " both say that they are rank ", r));
    member(r).who = who;
    connections_[static_cast<size_t>(r)] = std::move(connection);
  }

  // Another rank until it is welcome.
  void approach(std::source_location where) {
    const Address address = parse(options_.address, where);
    const Moment until = in_seconds(options_.timeout_s);
    const auto about = [&] { return detail::concat("rank 0 at ", options_.address); };
    std::string failure;
    WaitingNotice notice;
    int fd = -1;
    while ((fd = try_connect(address, until, failure)) < 0) {
      require(SteadyClock::now() < until, ErrorCode::io, where, "group: rank ", rank(), " of ", size(),
              " waited ", options_.timeout_s, " s for ", about(), ": ", failure);
      notice.say([&] { return about() + ": " + failure; });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    auto hub = std::make_unique<Connection>(fd);
    failure = hub->prove(options_.secret, until);
    require(failure.empty(), ErrorCode::io, where, "group: rank ", rank(), " of ", size(), " at ",
            options_.address, ": ", failure);
    hub->send(MessageKind::hello,
              MessageWriter().put(int32_t{rank()}).put(int32_t{size()}).put_text(member(rank()).who).take());
    Message message;
    bool answered = false;
    while (!(answered = hub->wait_for(message, std::min(until, in_seconds(1)))) &&
           SteadyClock::now() < until && hub->open())
      notice.say([&] { return "the other ranks, at " + options_.address; });
    require(answered && message.kind != MessageKind::refused, ErrorCode::io, where, "group: rank ", rank(),
            " of ", size(), " at ", options_.address, ": ",
            answered ? message.body : "rank 0 did not welcome it");
    MessageReader all(message.body);
    for (Member& m : members_) m.who = all.get_text();
    connections_[0] = std::move(hub);
  }

  void wake() const {
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = write(wake_[1], &byte, 1);
  }

  void watch() {
    std::vector<pollfd> entries;
    std::vector<size_t> whose;
    for (size_t r = 0; r < connections_.size(); ++r)
      if (connections_[r])
        for (const Message& message : connections_[r]->take_early()) take(r, message);
    while (true) {
      entries.assign(1, {wake_[0], POLLIN, 0});
      whose.assign(1, 0);
      {
        const std::lock_guard lock(mutex_);
        if (ending_) return;
        for (size_t r = 0; r < connections_.size(); ++r) {
          if (!connections_[r] || members_[r].left || !members_[r].lost.empty()) continue;
          entries.push_back({connections_[r]->fd(), POLLIN, 0});
          whose.push_back(r);
        }
      }
      poll(entries.data(), entries.size(), 100);
      for (size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].revents == 0) continue;
        std::deque<Message> messages;
        const bool there = connections_[whose[i]]->receive(messages);
        for (const Message& message : messages) take(whose[i], message);
        if (!there) miss(whose[i], "it closed the connection");
      }
      tell_progress();
    }
  }

  void take(size_t from, const Message& message) {
    MessageReader body(message.body);
    switch (message.kind) {
      case MessageKind::shared: {
        const std::lock_guard lock(mutex_);
        shared_.push_back(message.body);
        changed_.notify_all();
        break;
      }
      case MessageKind::progress: {
        const std::lock_guard lock(mutex_);
        for (auto count = body.get<int32_t>(); count > 0 && !body.ended(); --count) {
          const auto r = body.get<int32_t>();
          const auto begun = body.get<int64_t>(), ended = body.get<int64_t>();
          if (r < 0 || r >= size() || r == rank()) continue;
          member(r).begun = begun;
          member(r).ended = ended;
          untold_ = untold_ || rank() == 0;
        }
        break;
      }
      case MessageKind::lost: {
        const auto r = body.get<int32_t>();
        const std::lock_guard lock(mutex_);
        if (r >= 0 && r < size()) member(r).lost = body.get_text();
        changed_.notify_all();
        break;
      }
      case MessageKind::goodbye: {
        const std::lock_guard lock(mutex_);
        members_[from].left = true;
        break;
      }
      default: break;
    }
  }

  void miss(size_t r, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (members_[r].left || ending_) return;
      members_[r].lost = why;
      changed_.notify_all();
    }
    if (rank() != 0) return;
    const std::string body = MessageWriter().put(static_cast<int32_t>(r)).put_text(why).take();
    for (size_t other = 1; other < connections_.size(); ++other)
      if (other != r && connections_[other]) connections_[other]->send(MessageKind::lost, body);
  }

  bool gone(size_t r) const {
    const std::lock_guard lock(mutex_);
    return members_[r].left || !members_[r].lost.empty();
  }

  // Rank 0 is told by everybody, and tells everybody of all.
  void tell_progress() {
    MessageWriter body;
    {
      const std::lock_guard lock(mutex_);
      if (!untold_) return;
      untold_ = false;
      const auto put = [&](int r) { body.put(int32_t{r}).put(member(r).begun).put(member(r).ended); };
      body.put(int32_t{rank() == 0 ? size() : 1});
      if (rank() != 0) put(rank());
      for (int r = 0; rank() == 0 && r < size(); ++r) put(r);
    }
    const std::string text = body.take();
    for (size_t r = 0; r < connections_.size(); ++r)
      if (connections_[r] && !gone(r) && !connections_[r]->send(MessageKind::progress, text))
        miss(r, "it takes no messages");
  }

  static constexpr double kProofSeconds = 5;
  static constexpr size_t kMostStrangers = 1024;

  const GroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Connection>>
      connections_;  // by rank; of rank 0 all others', of the others rank 0's
  std::deque<std::string> shared_;
  bool untold_ = false, ending_ = false;
  int wake_[2] = {-1, -1};
  std::thread watcher_;
};

Group::Group(const GroupOptions& options, std::source_location where)
    : impl_(std::make_unique<Impl>(options, where)) {}
Group::~Group() = default;
int Group::rank() const { return impl_->rank(); }
int Group::size() const { return impl_->size(); }
std::string Group::share(const std::string& bytes, std::source_location where) {
  return impl_->share(bytes, where);
}
void Group::progress(int64_t begun, int64_t ended) { impl_->progress(begun, ended); }
std::string Group::lost() const { return impl_->lost(); }
std::string Group::behind(int64_t operation) const { return impl_->behind(operation); }

}  // namespace lockstep::comm
