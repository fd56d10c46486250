#include "comm/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "comm/address.h"
#include "comm/connection.h"
#include "comm/unauthenticated_peers.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

constexpr double kPatienceEvery = 0.2;  // seconds between two signs to those who wait
constexpr double kMeetingEvery = 1;     // seconds between two looks at the meeting address
constexpr int kBacklog = 128;

uint64_t random_id() {
  uint64_t id = 0;
  require(getrandom(&id, sizeof id, 0) == static_cast<ssize_t>(sizeof id), ErrorCode::io,
          std::source_location::current(), "the system gives no random numbers");
  return id;
}

std::vector<std::string> endpoints_of(const std::string& text) {
  std::vector<std::string> endpoints;
  for (MessageReader reader(text); !reader.ended();) endpoints.push_back(reader.get_text());
  return endpoints;
}

// A connection whose other end has proved that it knows the secret, or null and why. `refused`: its machine
// says that nobody listens there.
std::unique_ptr<Connection> connect_authenticated(const std::string& endpoint, const std::string& secret,
                                                  double seconds, bool& refused) {
  std::string failure;
  const Moment until = in_seconds(seconds);
  const int fd =
      try_connect(parse_address(endpoint, std::source_location::current()), until, failure, &refused);
  if (fd < 0) return nullptr;
  auto connection = std::make_unique<Connection>(fd);
  if (!connection->prove(secret, until).empty()) {
    // One that dies with the connection in its queue resets it.
    refused = connection->closed();
    return nullptr;
  }
  return connection;
}

}  // namespace

class Rendezvous::Impl {
 public:
  Impl(const RendezvousOptions& options, std::function<void(const std::string&)> interrupt)
      : options_(options), interrupt_(std::move(interrupt)), unauthenticated_(options.secret) {
    const std::source_location here = std::source_location::current();
    int port = 0;
    listening_ = bind_any_port(options_.host, port, here);
    fcntl(listening_, F_SETFL, fcntl(listening_, F_GETFL) | O_NONBLOCK);
    const bool listens = listen(listening_, kBacklog) == 0;
    require(listens, ErrorCode::io, here, "this process cannot listen at ", options_.host, ": ",
            std::strerror(errno));
    self_ = {random_id(), address_text(options_.host, port), own_name()};
    const bool piped = pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0;
    require(piped, ErrorCode::io, here, "rendezvous: ", std::strerror(errno));
    thread_ = std::thread([this] { keep(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake();
    thread_.join();
    close(listening_);
    if (meeting_ >= 0) close(meeting_);
    close(wake_[0]);
    close(wake_[1]);
  }

  const Member& self() const { return self_; }

  void enter(const Roster& roster) {
    const std::lock_guard lock(mutex_);
    roster_ = roster;
    state_ = State::inside;
    for (const Caller& caller : returners_) {
      const bool left_behind = roster_.rank_of(caller.member.id) < 0;
      if (left_behind) caller.connection->send(MessageKind::expelled, endpoints(), 1);
    }
    returners_.clear();
    if (!leads()) {
      for (const Caller& caller : newcomers_) caller.connection->send(MessageKind::goes_on, endpoints(), 1);
      newcomers_.clear();
    }
    wake();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    for (const Caller& caller : newcomers_) caller.connection->send(MessageKind::ended, {}, 1);
    newcomers_.clear();
    ended_ = true;
  }

  int newcomers() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::inside && leads() ? static_cast<int>(newcomers_.size()) : 0;
  }

  void come_to(int64_t place, const std::string& past) {
    const std::lock_guard lock(mutex_);
    place_ = place;
    past_ = past;
    std::erase_if(newcomers_, [&](const Caller& caller) {
      if (caller.place < place_) caller.connection->send(MessageKind::passed, past_, 1);
      return caller.place < place_;
    });
  }

  Formation form(bool done, bool admits) {
    Roster reference;
    {
      const std::lock_guard lock(mutex_);
      state_ = State::forming;
      forms_ = false;
      reference = roster_;
    }
    for (const Member& candidate : reference.members) {
      if (candidate.id == self_.id) break;
      if (std::optional<Formation> formed = follow(candidate, reference, done)) return std::move(*formed);
    }
    return lead(std::move(reference), done, admits);
  }

  Formation join(const std::string& endpoints) {
    {
      const std::lock_guard lock(mutex_);
      state_ = State::outside;
      roster_ = {};
      newcomers_.clear();
      returners_.clear();
    }
    std::deque<std::string> candidates;
    for (std::string& endpoint : endpoints_of(endpoints)) candidates.push_back(std::move(endpoint));
    Moment until = in_seconds(options_.wait_s);
    while (SteadyClock::now() < until) {
      if (candidates.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (!options_.meeting.empty()) candidates.push_back(options_.meeting);
        for (std::string& endpoint : endpoints_of(endpoints)) candidates.push_back(std::move(endpoint));
      }
      const std::string endpoint = candidates.front();
      candidates.pop_front();
      bool refused = false;
      const double patience = std::min(options_.timeout_s, UnauthenticatedPeers::kProofSeconds);
      std::shared_ptr<Connection> connection =
          connect_authenticated(endpoint, options_.secret, patience, refused);
      if (!connection) continue;
      MessageWriter message;
      put(message, self_);
      message.put_text(options_.version).put(place());
      connection->send(MessageKind::join, message.take());
      Moment silent_at = in_seconds(options_.timeout_s);
      Message answer;
      while (connection->open() && SteadyClock::now() < silent_at) {
        if (!connection->wait_for(answer, in_seconds(kPatienceEvery))) continue;
        silent_at = in_seconds(options_.timeout_s);
        until = in_seconds(options_.wait_s);
        if (answer.kind == MessageKind::formed) return formation(answer.body, {connection});
        if (answer.kind == MessageKind::passed) throw Passed{answer.body};
        require(answer.kind != MessageKind::ended, ErrorCode::io, std::source_location::current(),
                "the run has ended without this worker, which had come to join it");
        require(answer.kind != MessageKind::refused, ErrorCode::failed_precondition,
                std::source_location::current(), "the run at ", endpoint,
                " does not let this worker in: ", answer.body);
        if (answer.kind != MessageKind::goes_on) continue;
        candidates.clear();
        for (std::string& other : endpoints_of(answer.body)) candidates.push_back(std::move(other));
        break;
      }
    }
    fail(ErrorCode::io, std::source_location::current(),
         "the run that this worker had come to join was not "
         "found within ",
         options_.wait_s, " s at any of its endpoints, nor at ", options_.meeting);
  }

 private:
  enum class State : uint8_t { outside, inside, forming };

  // Who has asked to be in the next generation.
  struct Caller {
    Member member;
    std::shared_ptr<Connection> connection;
    Roster roster = {};  // the generation that it was in last
    bool done = false;
    int64_t place = 0;  // of a newcomer
  };
  using Connections = std::vector<std::shared_ptr<Connection>>;

  int64_t place() const {
    const std::lock_guard lock(mutex_);
    return place_;
  }

  // --- forming, on the caller's thread ---

  Formation formation(const std::string& body, Connections kept) const {
    MessageReader reader(body);
    Formation formed;
    formed.roster = Roster::from(reader);
    formed.address = reader.get_text();
    formed.rank = formed.roster.rank_of(self_.id);
    formed.secret = secret_of(formed.roster.generation);
    formed.hopeless = [kept = std::move(kept)] {
      return std::any_of(kept.begin(), kept.end(), [](const auto& one) { return one->closed(); });
    };
    require(formed.rank >= 0, ErrorCode::internal, std::source_location::current(),
            "rendezvous: the generation ", formed.roster.generation,
            " was formed with this process, but it is none of it");
    return formed;
  }

  // Processes of another generation cannot come in: they do not know its secret.
  std::string secret_of(int64_t generation) const {
    return detail::concat(options_.secret, "\ngeneration ", generation);
  }

  // Asks this member for the next generation. None: it is dead or silent.
  std::optional<Formation> follow(const Member& leader, const Roster& reference, bool done) {
    const Moment too_late = in_seconds(options_.timeout_s);
    bool refused = false;
    std::shared_ptr<Connection> connection =
        connect_authenticated(leader.endpoint, options_.secret, options_.timeout_s, refused);
    if (!connection) return {};
    MessageWriter message;
    put(message, self_);
    message.put(done).put_text(reference.text());
    connection->send(MessageKind::rejoin, message.take());
    Moment silent_at = in_seconds(options_.timeout_s);
    Message answer;
    while (connection->open() && SteadyClock::now() < silent_at) {
      if (!connection->wait_for(answer, in_seconds(kPatienceEvery))) continue;
      silent_at = in_seconds(options_.timeout_s);
      if (answer.kind == MessageKind::formed) return formation(answer.body, {connection});
      if (answer.kind == MessageKind::expelled) throw Expelled{answer.body};
      if (answer.kind == MessageKind::refused) throw TooFew{answer.body, false};
      // Alive, but it has not noticed that it is asked for a new generation: busy for too long.
      const bool forms = answer.kind == MessageKind::patience && MessageReader(answer.body).get<bool>();
      if (!forms && SteadyClock::now() > too_late) return {};
    }
    return {};
  }

  // What has become of a member that does not come: dead, where nobody listens at its endpoint; or it has
  // gone on with others.
  class Probe {
   public:
    void look(const std::string& endpoint, const std::string& secret, const std::string& question) {
      if (dead_) return;
      if (connection_ && !connection_->closed()) return;
      connection_ = connect_authenticated(endpoint, secret, kPatienceEvery, dead_);
      if (connection_) connection_->send(MessageKind::missed, question, 1);
    }
    bool dead() const { return dead_; }
    // Throws Expelled where that is the answer.
    void hear() {
      Message answer;
      if (connection_ && connection_->wait_for(answer, in_seconds(0)) && answer.kind == MessageKind::expelled)
        throw Expelled{answer.body};
    }

   private:
    std::unique_ptr<Connection> connection_;
    bool dead_ = false;
  };

  Formation lead(Roster reference, bool done, bool admits) {
    const Moment silent_at = in_seconds(options_.timeout_s);
    const Moment until = in_seconds(std::max(options_.timeout_s, options_.wait_s));
    std::map<uint64_t, Probe> probes;
    MessageWriter own;
    put(own, self_);
    const std::string question = own.put(done).put_text(reference.text()).take();
    Moment next_notice = in_seconds(5);
    std::unique_lock lock(mutex_);
    forms_ = true;
    wake();
    while (true) {
      // Some may have been in a generation that this one has not entered before it failed.
      for (const Caller& caller : returners_)
        if (caller.roster.generation > reference.generation && caller.roster.rank_of(self_.id) >= 0)
          reference = caller.roster;
      std::vector<Member> missing = missing_of(reference);
      lock.unlock();
      for (const Member& member : missing) {
        probes[member.id].look(member.endpoint, options_.secret, question);
        probes[member.id].hear();
      }
      lock.lock();
      missing = missing_of(reference);
      std::erase_if(missing, [&](const Member& member) { return probes[member.id].dead(); });
      size_t present = 1;
      bool all_done = done;
      for (const Member& member : reference.members)
        if (const Caller* caller = find(member.id)) {
          ++present;
          all_done = all_done && caller->done;
        }
      if (missing.empty() || SteadyClock::now() > silent_at) {
        const size_t alive = present + missing.size();
        const bool first = missing.empty() || reference.rank_of(self_.id) < reference.rank_of(missing[0].id);
        const bool quorum = 2 * present > alive || (2 * present == alive && first);
        const auto most = static_cast<size_t>(options_.most_workers);
        // Who needs no further step has nothing to give to a newcomer.
        const size_t let_in =
            all_done || !admits ? 0 : std::min(most > present ? most - present : 0, newcomers_.size());
        if (quorum && (all_done || present + let_in >= least())) return announce(reference, let_in);
      }
      if (SteadyClock::now() > until) break;
      if (SteadyClock::now() > next_notice) {
        next_notice = in_seconds(5);
        log(LogLevel::info, "elastic: ", present, " of ", options_.most_workers,
            " workers are there; it takes ", least(), " to go on, and ", missing.size(),
            " are neither here nor known to be dead");
      }
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    const TooFew end{
        detail::concat("elastic: ", returners_.size() + 1, " of ", options_.most_workers,
                       " workers are left, and no more have come within ", options_.wait_s,
                       " s; to go on it takes ", least(),
                       " (min_workers), and more than half of those that are not known to be dead"),
        true};
    for (const Caller& caller : returners_) caller.connection->send(MessageKind::refused, end.reason, 1);
    throw end;
  }

  size_t least() const { return static_cast<size_t>(std::max(1, options_.min_workers)); }
  std::vector<Member> missing_of(const Roster& reference) const {
    std::vector<Member> missing;
    for (const Member& member : reference.members)
      if (member.id != self_.id && !find(member.id)) missing.push_back(member);
    return missing;
  }
  const Caller* find(uint64_t id) const {
    for (const Caller& caller : returners_)
      if (caller.member.id == id && !caller.connection->closed()) return &caller;
    return nullptr;
  }

  // With the lock held.
  Formation announce(const Roster& reference, size_t let_in) {
    int port = 0;
    const int socket = bind_any_port(options_.host, port, std::source_location::current());
    listen(socket, kBacklog);
    Roster roster{std::max(reference.generation, attempted_) + 1, {}};
    attempted_ = roster.generation;
    Connections kept;
    for (const Member& member : reference.members) {
      const Caller* caller = member.id == self_.id ? nullptr : find(member.id);
      if (member.id != self_.id && !caller) continue;
      roster.members.push_back(member);
      if (caller) kept.push_back(caller->connection);
    }
    for (size_t i = 0; i < let_in; ++i) {
      roster.members.push_back(newcomers_[i].member);
      kept.push_back(newcomers_[i].connection);
    }
    newcomers_.erase(newcomers_.begin(), newcomers_.begin() + static_cast<ptrdiff_t>(let_in));
    std::erase_if(returners_, [&](const Caller& caller) { return roster.rank_of(caller.member.id) >= 0; });
    const std::string body =
        roster.text() + MessageWriter().put_text(address_text(options_.host, port)).take();
    for (const auto& connection : kept) connection->send(MessageKind::formed, body, 1);
    Formation formed = formation(body, std::move(kept));
    formed.bound_socket = socket;
    return formed;
  }

  // --- the rendezvous' own thread ---

  // The generation under way, or the next.
  bool leads() const {
    if (state_ == State::forming) return forms_;
    return state_ == State::inside && roster_.members[0].id == self_.id;
  }

  // The leader's first.
  std::string endpoints() const {
    MessageWriter message;
    if (leads()) message.put_text(self_.endpoint);
    for (const Member& member : roster_.members)
      if (!leads() || member.id != self_.id) message.put_text(member.endpoint);
    return message.take();
  }

  void keep() {
    Moment next_sign = SteadyClock::now(), next_look = in_seconds(kMeetingEvery);
    std::vector<pollfd> entries;
    while (true) {
      bool is_member = false, leads_run = false;
      entries.assign({{wake_[0], POLLIN, 0}, {listening_, POLLIN, 0}});
      {
        const std::lock_guard lock(mutex_);
        if (ending_) return;
        is_member = state_ != State::outside && !options_.meeting.empty();
        leads_run = is_member && leads();
        if (!is_member && meeting_ >= 0) close(std::exchange(meeting_, -1));
      }
      // Of several on one machine the first gets it, and the next when that is gone.
      if (is_member && meeting_ < 0) {
        int error = 0;
        std::string failure;
        meeting_ = try_listen(parse_address(options_.meeting, std::source_location::current()), kBacklog,
                              error, failure);
      }
      entries.push_back({meeting_, POLLIN, 0});
      unauthenticated_.add_to(entries);
      poll(entries.data(), entries.size(), static_cast<int>(kPatienceEvery * 1000 / 2));
      for (char bytes[64]; read(wake_[0], bytes, sizeof bytes) > 0;) {
      }
      unauthenticated_.hear(std::span(entries).subspan(3),
                            [this](std::unique_ptr<Connection> connection, const Message& message) {
                              take(std::move(connection), message);
                            });
      for (const size_t which : {size_t{1}, size_t{2}})
        if (entries[which].revents != 0) unauthenticated_.accept_at(entries[which].fd);
      if (SteadyClock::now() >= next_sign) {
        next_sign = in_seconds(kPatienceEvery);
        sign();
      }
      if (leads_run && meeting_ < 0 && SteadyClock::now() >= next_look) {
        look_at_meeting();
        next_look = in_seconds(kMeetingEvery);
      }
    }
  }

  void take(std::shared_ptr<Connection> connection, const Message& message) {
    std::string interruption;
    {
      const std::lock_guard lock(mutex_);
      MessageReader body(message.body);
      if (message.kind == MessageKind::hello) {
        if (state_ != State::outside) connection->send(MessageKind::goes_on, endpoints(), 1);
      } else if (message.kind == MessageKind::join) {
        if (state_ == State::outside) return;
        if (!leads() && state_ == State::inside) {
          connection->send(MessageKind::goes_on, endpoints(), 1);
          return;
        }
        Caller caller{.member = take_member(body), .connection = std::move(connection)};
        if (const std::string version = body.get_text(); version != options_.version)
          caller.connection->send(
              MessageKind::refused,
              detail::concat("it is of Lockstep ", options_.version, ", this worker of ", version), 1);
        else if (ended_)
          caller.connection->send(MessageKind::ended, {}, 1);
        else if (caller.place = body.get<int64_t>(); caller.place < place_)
          caller.connection->send(MessageKind::passed, past_, 1);
        else
          newcomers_.push_back(std::move(caller));
      } else if (message.kind == MessageKind::rejoin || message.kind == MessageKind::missed) {
        if (state_ == State::outside) return;
        Caller caller{.member = take_member(body), .connection = std::move(connection)};
        caller.done = body.get<bool>();
        const std::string text = body.get_text();
        MessageReader reader(text);
        caller.roster = Roster::from(reader);
        if (roster_.rank_of(caller.member.id) < 0 && roster_.generation > caller.roster.generation) {
          caller.connection->send(MessageKind::expelled, endpoints(), 1);
          return;
        }
        if (state_ == State::inside) interruption = caller.member.who + " forms anew with those who are left";
        if (message.kind == MessageKind::missed) {
          missing_us_ = std::move(caller.connection);
        } else {
          std::erase_if(returners_, [&](const Caller& one) { return one.member.id == caller.member.id; });
          returners_.push_back(std::move(caller));
        }
      }
      changed_.notify_all();
    }
    if (!interruption.empty()) interrupt_(interruption);
  }

  void sign() {
    const std::lock_guard lock(mutex_);
    const std::string body = MessageWriter().put(state_ == State::forming).take();
    for (std::deque<Caller>* list : {&newcomers_, &returners_})
      std::erase_if(*list, [&](const Caller& caller) {
        return caller.connection->closed() || !caller.connection->send(MessageKind::patience, body, 0.1);
      });
    changed_.notify_all();
  }

  // A rank 0 that was started again on another machine waits there for all others.
  void look_at_meeting() {
    bool refused = false;
    const std::unique_ptr<Connection> connection =
        connect_authenticated(options_.meeting, options_.secret, 0.5, refused);
    if (!connection) return;
    const std::lock_guard lock(mutex_);
    connection->send(MessageKind::goes_on, endpoints(), 1);
  }

  void wake() const {
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = write(wake_[1], &byte, 1);
  }

  const RendezvousOptions options_;
  const std::function<void(const std::string&)> interrupt_;
  Member self_;
  int listening_ = -1;
  int wake_[2] = {-1, -1};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  State state_ = State::outside;
  bool forms_ = false;  // it leads the next generation
  Roster roster_;
  std::deque<Caller> newcomers_, returners_;
  // Of whoever leads and misses this one, which sees by it that this one lives.
  std::shared_ptr<Connection> missing_us_;
  bool ending_ = false, ended_ = false;
  int64_t place_ = 0;
  std::string past_;

  int64_t attempted_ = 0;  // the last generation that this process has announced

  // The rendezvous' own thread alone uses these.
  UnauthenticatedPeers unauthenticated_;
  int meeting_ = -1;
  std::thread thread_;
};

Rendezvous::Rendezvous(const RendezvousOptions& options, std::function<void(const std::string&)> interrupt)
    : impl_(std::make_unique<Impl>(options, std::move(interrupt))) {}
Rendezvous::~Rendezvous() = default;
const Member& Rendezvous::self() const { return impl_->self(); }
void Rendezvous::enter(const Roster& roster) { impl_->enter(roster); }
void Rendezvous::end() { impl_->end(); }
Formation Rendezvous::form(bool done, bool admits) { return impl_->form(done, admits); }
Formation Rendezvous::join(const std::string& endpoints) { return impl_->join(endpoints); }
void Rendezvous::come_to(int64_t place, const std::string& past) { impl_->come_to(place, past); }
int Rendezvous::newcomers() const { return impl_->newcomers(); }

}  // namespace lockstep::comm
