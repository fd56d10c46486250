#include "comm/group.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/address.h"
#include "comm/connection.h"
#include "comm/meeting.h"
#include "comm/membership.h"
#include "comm/waiting_notice.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "observe/activity.h"

namespace lockstep::comm {

class Group::Impl {
 public:
  Impl(const GroupOptions& options, std::source_location where)
      : Impl(options, meet(options, where), where) {}

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
                                          [&] { return !shared_.empty() || !membership_.lost().empty(); });
    if (!shared_.empty()) {
      std::string first = std::move(shared_.front());
      shared_.pop_front();
      return first;
    }
    fail(membership_.lost_code(), where, "group: rank ", rank(), " waited for what rank 0 shares; ",
         came ? membership_.lost() : detail::concat("nothing came within ", options_.timeout_s, " s"));
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
      number = membership_.begin_gathering();
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
    for (const Posted& last : posted_)
      all.push_back({last.bytes, std::chrono::duration<double>(SteadyClock::now() - last.came).count()});
    return all;
  }

  void progress(int64_t begun, int64_t ended, std::string_view operation) {
    const std::lock_guard lock(mutex_);
    untold_ = membership_.set_progress(begun, ended, operation) || untold_;
  }

  void give_up(const std::string& reason, ErrorCode code) {
    {
      const std::lock_guard lock(mutex_);
      const std::string own = membership_.name(static_cast<size_t>(rank()));
      if (!membership_.end(detail::concat(own, " gave up: ", reason), code)) return;
      changed_.notify_all();
    }
    tell_verdict(static_cast<size_t>(rank()));
  }

  std::string left() const {
    const std::lock_guard lock(mutex_);
    return membership_.left();
  }

  std::string missing_from(int64_t operation, std::string_view called) const {
    const std::lock_guard lock(mutex_);
    return membership_.missing_from(operation, called);
  }

  std::string lost() const {
    const std::lock_guard lock(mutex_);
    return membership_.lost();
  }
  ErrorCode lost_code() const {
    const std::lock_guard lock(mutex_);
    return membership_.lost_code();
  }

  std::string behind(int64_t operation) const {
    const std::lock_guard lock(mutex_);
    return membership_.behind(operation);
  }

 private:
  Impl(const GroupOptions& options, Meeting met, std::source_location where)
      : options_(options),
        membership_(options.rank, met.names),
        connections_(std::move(met.connections)),
        parts_(connections_.size()),
        posted_(connections_.size()) {
    if (size() == 1) return;
    const bool piped = pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0;
    require(piped, ErrorCode::io, where, "group: ", std::strerror(errno));
    watcher_ = std::thread([this] { watch(); });
  }

  // What a rank gives to a gathering.
  struct Part {
    std::string name, bytes;
  };
  // What a rank said of itself last.
  struct Posted {
    std::string bytes;
    Moment came{};
  };

  std::string name_of(size_t r) const {
    const std::lock_guard lock(mutex_);
    return membership_.name(r);
  }
  std::string lost_or(const std::string& otherwise) const {
    const std::lock_guard lock(mutex_);
    const std::string text = membership_.lost();
    return text.empty() ? otherwise : text;
  }

  // Waits for `ready`, which is asked with the lock held, and names in the log and in the error who is
  // missing.
  template <class Ready, class Missing>
  void await(std::unique_lock<std::mutex>& lock, const std::string& what, double timeout_s, Ready ready,
             Missing missing, std::source_location where) {
    const Moment until = in_seconds(timeout_s);
    WaitingNotice notice;
    while (!changed_.wait_until(lock, std::min(until, in_seconds(1)), [&] {
      return ready() || !membership_.lost().empty() || !membership_.left().empty();
    })) {
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
    std::string gone = membership_.lost();
    if (gone.empty()) gone = membership_.left();
    fail(membership_.lost_code(), where, what, " cannot happen: ", gone);
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
            if (parts_[r].empty())
              add_sentence(text, membership_.absent(r, detail::concat(what, " (", number, ")")));
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
          const std::string text = membership_.missing_from_gathering(number, what);
          return text.empty() ? membership_.absent(0, what) : text;
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
      body.put(static_cast<int32_t>(membership_.lost_code())).put_text(membership_.verdict());
    }
    tell(MessageKind::gave_up, body.take(), from);
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
          if (!connections_[r] || membership_.gone(r)) continue;
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
        untold_ = (membership_.take_told(message.body) && rank() == 0) || untold_;
        break;
      }
      case MessageKind::posted: {
        const std::lock_guard lock(mutex_);
        posted_[from] = {message.body, SteadyClock::now()};
        break;
      }
      case MessageKind::gave_up: {
        const auto code = body.get<int32_t>();
        {
          const std::lock_guard lock(mutex_);
          const bool known = code >= 0 && code < static_cast<int32_t>(ErrorCode::internal);
          if (!membership_.end(body.get_text(), known ? static_cast<ErrorCode>(code) : ErrorCode::io)) break;
          changed_.notify_all();
        }
        if (rank() == 0) tell_verdict(from);
        break;
      }
      case MessageKind::left: {
        const auto r = body.get<int32_t>();
        const std::lock_guard lock(mutex_);
        if (r >= 0 && r < size()) membership_.set_left(static_cast<size_t>(r));
        changed_.notify_all();
        break;
      }
      case MessageKind::lost: {
        const auto r = body.get<int32_t>();
        const std::lock_guard lock(mutex_);
        if (r >= 0 && r < size()) membership_.set_lost(static_cast<size_t>(r), body.get_text());
        changed_.notify_all();
        break;
      }
      case MessageKind::goodbye: {
        {
          const std::lock_guard lock(mutex_);
          membership_.set_left(from);
          changed_.notify_all();
        }
        if (rank() == 0)
          tell(MessageKind::left, MessageWriter().put(static_cast<int32_t>(from)).take(), from);
        break;
      }
      default: break;
    }
  }

  void miss(size_t r, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (membership_.has_left(r) || ending_) return;
      membership_.set_lost(r, why);
      changed_.notify_all();
    }
    if (rank() != 0) return;
    const std::string body = MessageWriter().put(static_cast<int32_t>(r)).put_text(why).take();
    for (size_t other = 1; other < connections_.size(); ++other)
      if (other != r && connections_[other]) connections_[other]->send(MessageKind::lost, body);
  }

  bool gone(size_t r) const {
    const std::lock_guard lock(mutex_);
    return membership_.gone(r);
  }

  // Rank 0 is told by everybody, and tells everybody of all.
  void tell_progress() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      // What is told wakes the others, who tell in turn: without a pause they would do nothing else while
      // collectives go on.
      const Moment now = SteadyClock::now();
      if (now < next_word_ || (!untold_ && now < next_sign_)) return;
      untold_ = false;
      next_word_ = in_seconds(kBetweenWords);
      next_sign_ = in_seconds(kSignOfLife);
      membership_.set_activity(observe::current_activity(), Clock::system().now_ns());
      text = membership_.told();
    }
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
  static constexpr double kPatience = 2;        // seconds for rank 0 to say who is missing

  const GroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Membership membership_;
  // By rank; of rank 0 all others', of the others rank 0's.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<std::string> shared_;
  std::vector<std::deque<Part>> parts_;  // of rank 0, by rank: of gatherings to come
  std::deque<std::string> gathered_;     // of the others: those that are complete
  std::string unsent_post_;              // of the others
  std::vector<Posted> posted_;           // of rank 0, by rank
  Moment next_sign_ = SteadyClock::now();
  Moment next_word_{};
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
