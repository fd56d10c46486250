#include "comm/group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/address.h"
#include "comm/connection.h"
#include "comm/port_owner.h"
#include "comm/unauthenticated_peers.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "observe/activity.h"

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

}  // namespace

class Group::Impl {
 public:
  Impl(const GroupOptions& options, std::source_location where)
      : options_(options), members_(static_cast<size_t>(options.size)) {
    require(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
            ErrorCode::invalid_argument, where, "group: ranks are from 0 to size - 1, received rank ",
            options.rank, " of ", options.size);
    member(rank()).who = own_name();
    connections_.resize(members_.size());
    parts_.resize(members_.size());
    if (size() == 1) return;
    if (rank() == 0 && !meets_elsewhere())
      gather(where);
    else
      approach(where);
    const bool piped = pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0;
    require(piped, ErrorCode::io, where, "group: ", std::strerror(errno));
    for (Member& m : members_) m.heard = SteadyClock::now();
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
    fail(lost_code_locked(), where, "group: rank ", rank(), " waited for what rank 0 shares; ",
         came ? lost_text() : detail::concat("nothing came within ", options_.timeout_s, " s"));
  }

  std::string own_host() const {
    for (const auto& connection : connections_)
      if (connection) return host_of_socket(connection->fd());
    return "127.0.0.1";
  }

  std::vector<std::string> gather(std::string_view what, const std::string& part, double timeout_s,
                                  std::source_location where) {
    if (size() == 1) return {part};
    const std::string name(what);
    int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++member(rank()).gathers;
      untold_ = true;
    }
    if (rank() != 0) {
      require(connections_[0]->send(MessageKind::gathered,
                                    MessageWriter().put_text(name).put_text(part).take(), timeout_s),
              lost_code(), where, "group: rank ", rank(), " could not send its part of ", name, "; ",
              lost_or("rank 0 takes no messages"));
      // Rank 0 knows best who is missing: it gets a little more time to say so.
      return parts_of(await_all(name, number, timeout_s + kPatience, where), where);
    }
    std::vector<Part> parts = await_parts(name, number, part, timeout_s, where);
    std::string disagreement;
    for (size_t r = 1; r < parts.size(); ++r)
      if (parts[r].name != name)
        disagreement += detail::concat(disagreement.empty() ? "" : "; ", "rank 0 is at ", name, ", ",
                                       name_of(r), " at ", parts[r].name);
    MessageWriter all;
    all.put_text(disagreement);
    for (const Part& each : parts) all.put_text(each.bytes);
    const std::string body = all.take();
    for (size_t r = 1; r < connections_.size(); ++r)
      require(connections_[r]->send(MessageKind::gathered_all, body, timeout_s), ErrorCode::io, where,
              "group: ", name_of(r), " does not take what the others gave for ", name);
    return parts_of(body, where);
  }

  void post(std::string bytes) {
    const std::lock_guard lock(mutex_);
    unsent_post_ = std::move(bytes);
  }

  std::vector<Post> posts() const {
    const std::lock_guard lock(mutex_);
    std::vector<Post> all;
    for (const Member& m : members_)
      all.push_back({m.post, std::chrono::duration<double>(SteadyClock::now() - m.posted).count()});
    return all;
  }

  void progress(int64_t begun, int64_t ended, std::string_view operation) {
    const std::lock_guard lock(mutex_);
    Member& own = member(rank());
    if (own.begun == begun && own.ended == ended) return;
    own.begun = begun;
    own.ended = ended;
    own.operation.assign(operation);
    untold_ = true;
  }

  void give_up(const std::string& reason, ErrorCode code) {
    {
      const std::lock_guard lock(mutex_);
      if (!verdict_.empty()) return;
      verdict_code_ = code;
      verdict_ = detail::concat(name(static_cast<size_t>(rank())), " gave up: ", reason);
      changed_.notify_all();
    }
    tell_verdict(static_cast<size_t>(rank()));
  }

  std::string left() const {
    const std::lock_guard lock(mutex_);
    return left_text();
  }

  std::string missing_from(int64_t operation, std::string_view called) const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (size_t r = 0; r < members_.size(); ++r) {
      const Member& m = members_[r];
      if (static_cast<int>(r) == rank()) continue;
      if (m.begun < operation)
        add_sentence(text, absent(r, detail::concat(called)));
      else if (m.begun == operation && !m.operation.empty() && m.operation != called)
        add_sentence(text, detail::concat(name(r), " is at ", m.operation, " instead of ", called));
    }
    return text;
  }

  std::string lost() const {
    const std::lock_guard lock(mutex_);
    return lost_text();
  }
  ErrorCode lost_code() const {
    const std::lock_guard lock(mutex_);
    return lost_code_locked();
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
    int64_t begun = 0, ended = 0;  // collectives
    int64_t gathers = 0;           // begun
    std::string operation;         // the collective begun last
    // What it was doing when it was last heard of, for how long, and when that was.
    std::string activity;
    double active_s = 0;
    Moment heard = SteadyClock::now();
    // Known to rank 0: what it said of itself last, and when that came.
    std::string post;
    Moment posted{};
  };
  // What a rank gives to a gathering.
  struct Part {
    std::string name, bytes;
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
  static void add_sentence(std::string& text, const std::string& sentence) {
    text += (text.empty() ? "" : "; ") + sentence;
  }
  std::string lost_text() const {
    std::string text = verdict_;
    for (size_t r = 0; r < members_.size(); ++r)
      if (!members_[r].lost.empty())
        add_sentence(text, detail::concat(name(r), " is gone: ", members_[r].lost));
    return text;
  }
  ErrorCode lost_code_locked() const { return verdict_.empty() ? ErrorCode::io : verdict_code_; }
  std::string left_text() const {
    std::string text;
    for (size_t r = 0; r < members_.size(); ++r)
      if (members_[r].left)
        add_sentence(text, detail::concat(name(r), " has left: its program let go of the run"));
    return text;
  }
  std::string lost_or(const std::string& otherwise) const {
    const std::lock_guard lock(mutex_);
    const std::string text = lost_text();
    return text.empty() ? otherwise : text;
  }
  // What a rank does instead of coming to `what`.
  std::string absent(size_t r, const std::string& what) const {
    const Member& m = members_[r];
    const double silent_s = std::chrono::duration<double>(SteadyClock::now() - m.heard).count();
    std::string text = detail::concat(name(r), " has not come to ", what);
    if (m.left) return text + ": its program has let go of the run";
    if (silent_s > kSilence)
      return detail::concat(text, "; for ", std::llround(silent_s),
                            " s nothing was heard of it: it is stopped, or cut off from the network");
    if (!m.activity.empty())
      text += detail::concat("; for ", std::llround(m.active_s + silent_s), " s it is in ", m.activity);
    return text;
  }

  // Waits for `ready`, which is asked with the lock held, and names in the log and in the error who is missing.
  template <class Ready, class Missing>
  void await(std::unique_lock<std::mutex>& lock, const std::string& what, double timeout_s, Ready ready,
             Missing missing, std::source_location where) {
    const Moment until = in_seconds(timeout_s);
    WaitingNotice notice;
    while (!changed_.wait_until(lock, std::min(until, in_seconds(1)),
                                [&] { return ready() || !lost_text().empty() || !left_text().empty(); })) {
      const std::string who = missing();
      if (SteadyClock::now() >= until) {
        lock.unlock();
        const std::string reason = detail::concat(what, " did not happen within ", timeout_s, " s: ", who);
        give_up(reason, ErrorCode::io);
        fail(ErrorCode::io, where, reason);
      }
      notice.say([&] { return who; });
    }
    if (ready()) return;
    std::string gone = lost_text();
    if (gone.empty()) gone = left_text();
    fail(lost_code_locked(), where, what, " cannot happen: ", gone);
  }

  std::vector<Part> await_parts(const std::string& what, int64_t number, const std::string& own,
                                double timeout_s, std::source_location where) {
    std::unique_lock lock(mutex_);
    await(
        lock, what, timeout_s,
        [&] {
          return std::all_of(parts_.begin() + 1, parts_.end(), [](const auto& q) { return !q.empty(); });
        },
        [&] {
          std::string text;
          for (size_t r = 1; r < parts_.size(); ++r)
            if (parts_[r].empty()) add_sentence(text, absent(r, detail::concat(what, " (", number, ")")));
          return text;
        },
        where);
    std::vector<Part> all{{what, own}};
    for (size_t r = 1; r < parts_.size(); ++r) {
      all.push_back(std::move(parts_[r].front()));
      parts_[r].pop_front();
    }
    return all;
  }

  std::string await_all(const std::string& what, int64_t number, double timeout_s,
                        std::source_location where) {
    std::unique_lock lock(mutex_);
    await(
        lock, what, timeout_s, [&] { return !gathered_.empty(); },
        [&] {
          std::string text;
          for (size_t r = 0; r < members_.size(); ++r)
            if (static_cast<int>(r) != rank() && members_[r].gathers < number)
              add_sentence(text, absent(r, detail::concat(what, " (", number, ")")));
          return text.empty() ? absent(0, what) : text;
        },
        where);
    std::string first = std::move(gathered_.front());
    gathered_.pop_front();
    return first;
  }

  std::vector<std::string> parts_of(const std::string& body, std::source_location where) const {
    MessageReader reader(body);
    const std::string disagreement = reader.get_text();
    require(disagreement.empty(), ErrorCode::failed_precondition, where,
            "the workers do not do the same: ", disagreement);
    std::vector<std::string> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(reader.get_text());
    return parts;
  }

  // Rank 0 tells everybody but `except`, the others tell rank 0.
  void tell(MessageKind kind, const std::string& body, size_t except) {
    for (size_t r = 0; r < connections_.size(); ++r)
      if (r != except && connections_[r] && !gone(r)) connections_[r]->send(kind, body, 1);
  }
  void tell_verdict(size_t from) {
    MessageWriter body;
    {
      const std::lock_guard lock(mutex_);
      body.put(static_cast<int32_t>(verdict_code_)).put_text(verdict_);
    }
    tell(MessageKind::gave_up, body.take(), from);
  }

  // Of rank 0: whether somebody else listens where it should, as the one does who leads a run that is under way.
  bool meets_elsewhere() {
    if (!options_.may_be_under_way || options_.bound_socket >= 0) return false;
    int error = 0;
    std::string failure;
    listening_ =
        try_listen(parse_address(options_.address, std::source_location::current()), size(), error, failure);
    return listening_ < 0 && error == EADDRINUSE;
  }
  bool hopeless() const { return options_.hopeless && options_.hopeless(); }

  // Rank 0 until all are there. Unauthenticated peers are never waited for, and nothing they send ends the run.
  void gather(std::source_location where) {
    const int listening = listening_ >= 0 ? listening_
                                          : listen_at(parse_address(options_.address, where),
                                                      options_.bound_socket, size(), where);
    const Moment until = in_seconds(options_.timeout_s);
    UnauthenticatedPeers peers(options_.secret);
    std::vector<pollfd> entries;
    std::string missing;
    WaitingNotice notice;
    try {
      while (!(missing = missing_ranks()).empty()) {
        const int wait = milliseconds_until(until, options_.hopeless ? 50 : 1000);
        require(wait > 0 && !hopeless(), ErrorCode::io, where, "group: rank 0 waited ", options_.timeout_s,
                " s at ", options_.address, " and ", missing, " of ", size(), " did not come");
        notice.say([&] { return detail::concat(missing, " of ", size(), " at ", options_.address); });
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
    for (const Member& m : members_) all.put_text(m.who);
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
    if (of != size() || r < 1 || r >= size())
      refuse(detail::concat(who, " says that it is rank ", r, " of ", of, ", rank 0 expects ", size(),
                            " ranks"));
    // One that has died before the others came, and was started again, takes its own place.
    if (connections_[static_cast<size_t>(r)] && !connections_[static_cast<size_t>(r)]->closed())
      refuse(detail::concat(who, " and ", member(r).who, " both say that they are rank ", r));
    member(r).who = who;
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
                "group: rank ", rank(), " of ", size(), " at ", options_.address, ": ", failure);
        hub = nullptr;
      }
      require(SteadyClock::now() < until && !hopeless(), ErrorCode::io, where, "group: rank ", rank(), " of ",
              size(), " waited ", options_.timeout_s, " s for ", about(), ": ", failure);
      notice.say([&] { return about() + ": " + failure; });
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.hopeless ? 5 : 50));
    }
    hub->send(MessageKind::hello,
              MessageWriter().put(int32_t{rank()}).put(int32_t{size()}).put_text(member(rank()).who).take());
    Message message;
    bool answered = false;
    while (!(answered = hub->wait_for(message, std::min(until, in_seconds(options_.hopeless ? 0.05 : 1)))) &&
           SteadyClock::now() < until && hub->open() && !hopeless())
      notice.say([&] { return "the other ranks, at " + options_.address; });
    if (answered && message.kind == MessageKind::goes_on)
      throw RunGoesOn{message.body, host_of_socket(hub->fd())};
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

  void drain_wakes() const {
    char bytes[64];
    while (read(wake_[0], bytes, sizeof bytes) > 0) {
    }
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
      poll(entries.data(), entries.size(), static_cast<int>(kBetweenWords * 1000));
      drain_wakes();
      for (size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].revents == 0) continue;
        std::deque<Message> messages;
        const bool there = connections_[whose[i]]->receive(messages);
        for (const Message& message : messages) take(whose[i], message);
        if (!there) miss(whose[i], "it closed the connection");
      }
      tell_progress();
      send_post();
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
      case MessageKind::gathered: {
        const std::lock_guard lock(mutex_);
        Part& part = parts_[from].emplace_back();
        part.name = body.get_text();
        part.bytes = body.get_text();
        changed_.notify_all();
        break;
      }
      case MessageKind::gathered_all: {
        const std::lock_guard lock(mutex_);
        gathered_.push_back(message.body);
        changed_.notify_all();
        break;
      }
      case MessageKind::progress: {
        const std::lock_guard lock(mutex_);
        for (auto count = body.get<int32_t>(); count > 0 && !body.ended(); --count) take_progress(body);
        break;
      }
      case MessageKind::posted: {
        const std::lock_guard lock(mutex_);
        members_[from].post = message.body;
        members_[from].posted = SteadyClock::now();
        break;
      }
      case MessageKind::gave_up: {
        const auto code = body.get<int32_t>();
        {
          const std::lock_guard lock(mutex_);
          if (!verdict_.empty()) break;
          if (code >= 0 && code < static_cast<int32_t>(ErrorCode::internal))
            verdict_code_ = static_cast<ErrorCode>(code);
          verdict_ = body.get_text();
          changed_.notify_all();
        }
        if (rank() == 0) tell_verdict(from);
        break;
      }
      case MessageKind::left: {
        const auto r = body.get<int32_t>();
        const std::lock_guard lock(mutex_);
        if (r >= 0 && r < size()) member(r).left = true;
        changed_.notify_all();
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
        {
          const std::lock_guard lock(mutex_);
          members_[from].left = true;
          changed_.notify_all();
        }
        if (rank() == 0)
          tell(MessageKind::left, MessageWriter().put(static_cast<int32_t>(from)).take(), from);
        break;
      }
      default: break;
    }
  }

  void put_progress(MessageWriter& body, int r) const {
    const Member& m = members_[static_cast<size_t>(r)];
    const double silent_s =
        r == rank() ? 0 : std::chrono::duration<double>(SteadyClock::now() - m.heard).count();
    body.put(int32_t{r}).put(m.begun).put(m.ended).put(m.gathers).put(m.active_s).put(silent_s);
    body.put_text(m.operation).put_text(m.activity);
  }
  void take_progress(MessageReader& body) {
    const auto r = body.get<int32_t>();
    Member m;
    m.begun = body.get<int64_t>();
    m.ended = body.get<int64_t>();
    m.gathers = body.get<int64_t>();
    m.active_s = body.get<double>();
    const auto silent_s = body.get<double>();
    m.operation = body.get_text();
    m.activity = body.get_text();
    if (r < 0 || r >= size() || r == rank()) return;
    Member& known = member(r);
    untold_ = untold_ || (rank() == 0 && known.begun != m.begun);
    known.begun = m.begun;
    known.ended = m.ended;
    known.gathers = m.gathers;
    known.active_s = m.active_s;
    known.operation = std::move(m.operation);
    known.activity = std::move(m.activity);
    known.heard = in_seconds(-std::max(0.0, silent_s));
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
      // What is told wakes the others, who tell in turn: without a pause they would do nothing else while collectives go on.
      const Moment now = SteadyClock::now();
      if (now < next_word_ || (!untold_ && now < next_sign_)) return;
      untold_ = false;
      next_word_ = in_seconds(kBetweenWords);
      next_sign_ = in_seconds(kSignOfLife);
      const observe::Activity activity = observe::current_activity();
      member(rank()).activity = activity.what;
      member(rank()).active_s =
          activity.since_ns == 0 ? 0
                                 : static_cast<double>(Clock::system().now_ns() - activity.since_ns) * 1e-9;
      body.put(int32_t{rank() == 0 ? size() : 1});
      if (rank() != 0) put_progress(body, rank());
      for (int r = 0; rank() == 0 && r < size(); ++r) put_progress(body, r);
    }
    const std::string text = body.take();
    for (size_t r = 0; r < connections_.size(); ++r)
      if (connections_[r] && !gone(r) && !connections_[r]->send(MessageKind::progress, text))
        miss(r, "it takes no messages");
  }

  void send_post() {
    if (rank() == 0) return;
    std::string post;
    {
      const std::lock_guard lock(mutex_);
      post.swap(unsent_post_);
    }
    if (!post.empty() && !gone(0) && !connections_[0]->send(MessageKind::posted, post))
      miss(0, "it takes no messages");
  }

  static constexpr double kSignOfLife = 1;      // seconds between two, where nothing else is told
  static constexpr double kBetweenWords = 0.1;  // seconds at least between two words on progress
  static constexpr double kSilence = 3;         // seconds without any that are worth a word
  static constexpr double kPatience = 2;        // seconds for rank 0 to say who is missing

  const GroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Connection>>
      connections_;  // by rank; of rank 0 all others', of the others rank 0's
  std::deque<std::string> shared_;
  std::vector<std::deque<Part>> parts_;  // of rank 0, by rank: of gatherings to come
  std::deque<std::string> gathered_;     // of the others: those that are complete
  std::string unsent_post_;              // of the others
  std::string verdict_;                  // why the run ends; empty: it goes on
  ErrorCode verdict_code_ = ErrorCode::io;
  Moment next_sign_ = SteadyClock::now();
  Moment next_word_{};
  bool untold_ = false, ending_ = false;
  int listening_ = -1;  // until all have come, where it was tried in advance
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
std::string Group::own_host() const { return impl_->own_host(); }
std::vector<std::string> Group::gather(std::string_view what, const std::string& part, double timeout_s,
                                       std::source_location where) {
  return impl_->gather(what, part, timeout_s, where);
}
void Group::post(std::string bytes) { impl_->post(std::move(bytes)); }
std::vector<Group::Post> Group::posts() const { return impl_->posts(); }
void Group::progress(int64_t begun, int64_t ended, std::string_view operation) {
  impl_->progress(begun, ended, operation);
}
void Group::give_up(const std::string& reason, ErrorCode code) { impl_->give_up(reason, code); }
std::string Group::lost() const { return impl_->lost(); }
ErrorCode Group::lost_code() const { return impl_->lost_code(); }
std::string Group::left() const { return impl_->left(); }
std::string Group::behind(int64_t operation) const { return impl_->behind(operation); }
std::string Group::missing_from(int64_t operation, std::string_view name) const {
  return impl_->missing_from(operation, name);
}

}  // namespace lockstep::comm
