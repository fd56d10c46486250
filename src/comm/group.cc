#include "comm/group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
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

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Moment = SteadyClock::time_point;

Moment in_seconds(double s) {
  return SteadyClock::now() +
         std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(s));
}

// What goes over a connection: a kind, the length of the rest, the rest.
enum class Kind : uint32_t { hello = 0x4c530001, welcome, refused, shared, progress, lost, goodbye };

struct Message {
  Kind kind;
  std::string body;
};

class Writer {
 public:
  template <class T>
  Writer& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& put_text(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    text_ += text;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  template <class T>
  T get() {
    T value{};
    if (at_ + sizeof value > text_.size()) return value;
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string get_text() {
    const auto size = std::min<size_t>(get<uint32_t>(), text_.size() - at_);
    at_ += size;
    return text_.substr(at_ - size, size);
  }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

// One end of a connection. Sending is thread-safe.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }

  // False where the other end is gone.
  bool send(Kind kind, const std::string& body) {
    std::string bytes = Writer().put(kind).put(static_cast<uint32_t>(body.size())).take() + body;
    const std::lock_guard lock(mutex_);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }

  // What wait_for() received beyond what it was asked for.
  std::deque<Message> take_early() { return std::exchange(early_, {}); }

  // Takes what has arrived; false where the other end is gone.
  bool receive(std::deque<Message>& messages) {
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (count == 0) return false;
    arrived_.append(bytes, static_cast<size_t>(count));
    constexpr size_t kHead = sizeof(Kind) + sizeof(uint32_t);
    while (arrived_.size() >= kHead) {
      Reader head(arrived_);
      const auto kind = head.get<Kind>();
      const auto size = head.get<uint32_t>();
      // Whoever else speaks on this port does not speak like this.
      if (kind < Kind::hello || kind > Kind::goodbye || size > kLargest) return false;
      if (arrived_.size() < kHead + size) break;
      messages.push_back({kind, arrived_.substr(kHead, size)});
      arrived_.erase(0, kHead + size);
    }
    return true;
  }

  // The next message within the time; none where there is none.
  bool wait_for(Message& message, Moment until) {
    while (early_.empty()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
      pollfd entry{fd_, POLLIN, 0};
      if (left <= 0 ||
          (poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000))) > 0 && !receive(early_)))
        return false;
    }
    message = std::move(early_.front());
    early_.pop_front();
    return true;
  }

 private:
  static constexpr uint32_t kLargest = 1 << 20;
  int fd_;
  std::mutex mutex_;
  std::string arrived_;
  std::deque<Message> early_;
};

struct Address {
  std::string host, port;
};

Address parse(const std::string& text, std::source_location where) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0 && colon + 1 < text.size(), ErrorCode::invalid_argument,
          where, "group: an address is host:port, received \"", text, "\"");
  return {text.substr(0, colon), text.substr(colon + 1)};
}

struct Resolved {
  addrinfo* list = nullptr;
  Resolved(const Address& address, bool passive, std::source_location where) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    const int code = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
    require(code == 0, ErrorCode::io, where, "group: ", address.host, ":", address.port,
            " is no address: ", gai_strerror(code));
  }
  ~Resolved() { freeaddrinfo(list); }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;
};

int listen_at(const Address& address, int size, std::source_location where) {
  const Resolved resolved(address, true, where);
  int error = 0;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, size) == 0) return fd;
    error = errno;
    close(fd);
  }
  fail(ErrorCode::io, where, "group: rank 0 cannot listen at ", address.host, ":", address.port, ": ",
       std::strerror(error));
}

// -1: not yet.
int try_connect(const Address& address, std::source_location where) {
  const Resolved resolved(address, false, where);
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

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
      if (connection) connection->send(Kind::goodbye, {});
    wake();
    watcher_.join();
    close(wake_[0]);
    close(wake_[1]);
  }

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  std::string share(const std::string& bytes, std::source_location where) {
    if (rank() == 0) {
      for (const auto& connection : connections_)
        if (connection) connection->send(Kind::shared, bytes);
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

  // Rank 0 until all are there.
  void gather(std::source_location where) {
    const int listening = listen_at(parse(options_.address, where), size(), where);
    const Moment until = in_seconds(options_.timeout_s);
    std::string missing;
    try {
      while (!(missing = missing_ranks()).empty()) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
        require(left > 0, ErrorCode::io, where, "group: rank 0 waited ", options_.timeout_s, " s at ",
                options_.address, " and ", missing, " of ", size(), " did not come");
        pollfd entry{listening, POLLIN, 0};
        if (poll(&entry, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
        const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) admit(std::make_unique<Connection>(fd), where);
      }
    } catch (const Error& error) {
      for (const auto& connection : connections_)
        if (connection) connection->send(Kind::refused, error.message());
      close(listening);
      throw;
    }
    close(listening);
    Writer all;
    for (const Member& m : members_) all.put_text(m.who);
    const std::string body = all.take();
    for (const auto& connection : connections_)
      if (connection) connection->send(Kind::welcome, body);
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

  void admit(std::unique_ptr<Connection> connection, std::source_location where) {
    Message message;
    // Whoever says nothing, or something else, is not one of the run.
    if (!connection->wait_for(message, in_seconds(5)) || message.kind != Kind::hello) return;
    Reader hello(message.body);
    const auto r = hello.get<int32_t>(), of = hello.get<int32_t>();
    const std::string who = hello.get_text();
    const auto refuse = [&](const std::string& why) {
      connection->send(Kind::refused, why);
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
    int fd = -1;
    while ((fd = try_connect(address, where)) < 0) {
      require(SteadyClock::now() < until, ErrorCode::io, where, "group: rank ", rank(), " of ", size(),
              " waited ", options_.timeout_s, " s for rank 0 at ", options_.address,
              ": nobody listens there");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    auto hub = std::make_unique<Connection>(fd);
    hub->send(Kind::hello,
              Writer().put(int32_t{rank()}).put(int32_t{size()}).put_text(member(rank()).who).take());
    Message message;
    const bool answered = hub->wait_for(message, until);
    require(answered && message.kind != Kind::refused, ErrorCode::io, where, "group: rank ", rank(), " of ",
            size(), " at ", options_.address, ": ", answered ? message.body : "rank 0 did not welcome it");
    Reader all(message.body);
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
    Reader body(message.body);
    switch (message.kind) {
      case Kind::shared: {
        const std::lock_guard lock(mutex_);
        shared_.push_back(message.body);
        changed_.notify_all();
        break;
      }
      case Kind::progress: {
        const std::lock_guard lock(mutex_);
        for (auto count = body.get<int32_t>(); count > 0; --count) {
          const auto r = body.get<int32_t>();
          const auto begun = body.get<int64_t>(), ended = body.get<int64_t>();
          if (r < 0 || r >= size() || r == rank()) continue;
          member(r).begun = begun;
          member(r).ended = ended;
          untold_ = untold_ || rank() == 0;
        }
        break;
      }
      case Kind::lost: {
        const auto r = body.get<int32_t>();
        const std::lock_guard lock(mutex_);
        if (r >= 0 && r < size()) member(r).lost = body.get_text();
        changed_.notify_all();
        break;
      }
      case Kind::goodbye: {
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
    const std::string body = Writer().put(static_cast<int32_t>(r)).put_text(why).take();
    for (size_t other = 1; other < connections_.size(); ++other)
      if (other != r && connections_[other]) connections_[other]->send(Kind::lost, body);
  }

  // Rank 0 is told by everybody, and tells everybody of all.
  void tell_progress() {
    Writer body;
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
    for (const auto& connection : connections_)
      if (connection) connection->send(Kind::progress, text);
  }

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
