#include "comm/workers.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/environment.h"
#include "comm/address.h"
#include "comm/connection.h"
#include "comm/machine_communicator.h"
#include "device/plugin.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

constexpr size_t kSmallPart = 32 << 10;  // bytes that go through rank 0
constexpr int64_t kChunk = 1 << 20;      // bytes of one message
constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr auto kFarewell = std::chrono::seconds(1);

Device& host() { return device_by_name("/CPU:0"); }
Stream& host_stream() {
  static Stream& stream = backend_of(host()).compute_stream();
  return stream;
}

std::string secret_of_run(std::source_location where) {
  if (const auto secret = env::read_string("LOCKSTEP_SECRET")) return *secret;
  const auto path = env::read_string("LOCKSTEP_SECRET_FILE");
  if (!path) return {};
  std::ifstream file(*path, std::ios::binary);
  std::string secret((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  require(!secret.empty(), ErrorCode::io, where, "LOCKSTEP_SECRET_FILE: \"", *path,
          "\" cannot be read, or holds nothing");
  return secret;
}

std::string random_secret() {
  unsigned char bytes[16] = {};
  require(getrandom(bytes, sizeof bytes, 0) == static_cast<ssize_t>(sizeof bytes), ErrorCode::io,
          std::source_location::current(), "the system gives no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// At all of them where they differ.
void require_equal(Group& group, std::string_view what, const std::string& own, double timeout_s,
                   std::source_location where) {
  const std::vector<std::string> all = group.gather(what, own, timeout_s, where);
  std::string different;
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      different += detail::concat("; rank ", r, " has ", all[r].empty() ? "none" : all[r]);
  require(different.empty(), ErrorCode::failed_precondition, where, "the workers differ in ", what,
          ": rank 0 has ", all[0].empty() ? "none" : all[0], different);
}

// All processes of the group call it.
std::unique_ptr<Communicator> join_engine(const CommunicatorBackend& library, Group& group,
                                          double timeout_s) {
  auto engine = library.join(host(), library.make_id(), group.rank(), group.size(),
                             {.timeout_s = timeout_s, .group = &group});
  auto memory = SharedMemory::join(group, timeout_s);
  if (!memory) return engine;
  return std::make_unique<MachineCommunicator>(std::move(engine), std::move(memory));
}

// Ranks of mpirun know each other, but no address: rank 0 chooses one and tells it through MPI.
GroupOptions meet_through_mpi(const Cluster& cluster, const WorkersOptions& options,
                              std::source_location where) {
  GroupOptions group{.rank = cluster.rank, .size = cluster.size, .timeout_s = options.join_timeout_s};
  std::string told;
  if (cluster.rank == 0) {
    const bool one_host = variable("OMPI_COMM_WORLD_LOCAL_SIZE") == std::to_string(cluster.size);
    const std::string host = one_host ? "127.0.0.1" : reachable_host();
    int port = 0;
    group.bound_socket = bind_any_port(host, port, where);
    told = detail::concat(host, ":", port, "\n", random_secret());
  }
  told = communicator_backend("mpi", where).share_at_launch(told, cluster.rank, cluster.size);
  const size_t line = told.find('\n');
  group.address = told.substr(0, line);
  group.secret = told.substr(line + 1);
  return group;
}

}  // namespace

ErrorCode mistake_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return !known || known->code() == ErrorCode::internal ? ErrorCode::io : known->code();
}

EngineChoice choose_engine(const Cluster& cluster, const WorkersOptions& options, bool has_pmi,
                           const std::function<std::string(const char*)>& missing,
                           std::source_location where) {
  const auto choose = [&](const char* engine, const std::string& reason) -> EngineChoice {
    const std::string why = missing(engine);
    require(why.empty(), ErrorCode::unsupported, where, "workers cannot be joined by ", engine, ": ", why);
    return {engine, reason};
  };
  if (options.engine == Engine::mpi) return choose("mpi", "it was asked for");
  if (options.engine == Engine::gloo) return choose("gloo", "it was asked for");
  require(options.engine != Engine::nccl || options.devices_are_gpus, ErrorCode::invalid_argument, where,
          "CommunicationImplementation::nccl joins GPUs, and this worker has none; leave it at automatic");
  if (cluster.source == ClusterSource::mpi) return choose("mpi", "mpirun started the workers");
  if (cluster.source == ClusterSource::slurm && has_pmi && missing("mpi").empty())
    return {"mpi", "srun started the workers with MPI's support"};
  const std::string why = missing("gloo");
  if (why.empty()) return {"gloo", "no launcher of MPI's started the workers"};
  require(options.devices_are_gpus, ErrorCode::unsupported, where, "workers cannot be joined: ", why,
          "; without Gloo they can be started by mpirun, and joined by MPI");
  return {"", why};
}

std::shared_ptr<Workers> Workers::meet(const Cluster& cluster, const WorkersOptions& options,
                                       std::source_location where) {
  const bool has_pmi = !variable("PMIX_RANK").empty() || !variable("PMI_RANK").empty();
  const EngineChoice choice = choose_engine(
      cluster, options, has_pmi, [](const char* engine) { return missing_backend(engine); }, where);
  const bool elastic = options.min_workers > 0;
  require(!elastic || choice.engine == "gloo", ErrorCode::unsupported, where,
          "elastic runs are joined by Gloo, and these workers by ",
          choice.engine.empty() ? "NCCL alone" : choice.engine,
          "; start them with lockstep launch, or set communication.implementation to gloo");
  GroupOptions group_options = cluster.address.empty() ? meet_through_mpi(cluster, options, where)
                                                       : GroupOptions{.address = cluster.address,
                                                                      .rank = cluster.rank,
                                                                      .size = cluster.size,
                                                                      .timeout_s = options.join_timeout_s,
                                                                      .secret = secret_of_run(where)};
  group_options.may_be_under_way = elastic;
  std::unique_ptr<Group> group;
  try {
    group = std::make_unique<Group>(group_options, where);
  } catch (const RunGoesOn& run) {
    auto workers = std::make_shared<Workers>(
        std::make_unique<Group>(GroupOptions{.rank = 0, .size = 1}, where), nullptr,
        communicator_backend("gloo", where).description() + ": the run is elastic", options.timeout_s);
    workers->open_rendezvous(cluster, options, run.own_host, group_options.secret);
    workers->endpoints_ = run.endpoints;
    workers->be_alone();
    return workers;
  }
  const auto agree = [&](const char* what, const std::string& own) {
    comm::require_equal(*group, what, own, options.join_timeout_s, where);
  };
  agree("the version of Lockstep", kPluginAbiTag);
  std::string addresses;
  for (const std::string& address : cluster.addresses) addresses += (addresses.empty() ? "" : ", ") + address;
  agree("the addresses of the cluster", addresses);
  agree("the engine that joins them", choice.engine);
  agree("whether they are elastic", detail::concat("min_workers ", options.min_workers));

  std::unique_ptr<Communicator> engine;
  std::string joined_by = "their group alone: " + choice.reason;
  if (!choice.engine.empty()) {
    const CommunicatorBackend& library = communicator_backend(choice.engine, where);
    engine = join_engine(library, *group, options.timeout_s);
    joined_by = library.description() + ": " + choice.reason;
  }
  auto workers =
      std::make_shared<Workers>(std::move(group), std::move(engine), std::move(joined_by), options.timeout_s);
  if (elastic) {
    workers->open_rendezvous(cluster, options, workers->group().own_host(), group_options.secret);
    const Member& self = workers->rendezvous_->self();
    Roster roster{1, {}};
    for (const std::string& one : workers->gather(
             "their endpoints",
             MessageWriter().put(self.id).put_text(self.endpoint).put_text(self.who).take(), where)) {
      MessageReader reader(one);
      Member& member = roster.members.emplace_back();
      member.id = reader.get<uint64_t>();
      member.endpoint = reader.get_text();
      member.who = reader.get_text();
    }
    workers->generation_ = roster.generation;
    workers->rendezvous_->enter(roster);
  }
  return workers;
}

Workers::Workers(std::unique_ptr<Group> group, std::unique_ptr<Communicator> engine, std::string joined_by,
                 double timeout_s)
    : group_(std::move(group)),
      engine_(std::move(engine)),
      joined_by_(std::move(joined_by)),
      timeout_s_(timeout_s) {
  begin_looking();
}

Workers::~Workers() {
  if (rendezvous_ && !broken_ && !gave_up_ && !newcomer_) rendezvous_->end();
  rendezvous_.reset();  // its thread uses the rest
  end_looking();
}

std::string Workers::description() const {
  const bool shares = engine_ && engine_->shares_memory();
  return detail::concat(size(), size() == 1 ? " worker, joined by " : " workers, joined by ", joined_by_,
                        shares ? "; all are on one machine, and sum in shared memory" : "");
}

void Workers::begin_looking() {
  ending_ = false;
  if (engine_) watcher_ = std::thread([this] { look(); });
}

void Workers::end_looking() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

// --- forming anew --------------------------------------------------------------------------------------------------

void Workers::open_rendezvous(const Cluster& cluster, const WorkersOptions& options, const std::string& host,
                              const std::string& secret) {
  launched_ = cluster.size;
  rendezvous_ = std::make_unique<Rendezvous>(RendezvousOptions{.host = host,
                                                               .meeting = cluster.address,
                                                               .secret = secret,
                                                               .version = kPluginAbiTag,
                                                               .most_workers = cluster.size,
                                                               .min_workers = options.min_workers,
                                                               .timeout_s = options.timeout_s,
                                                               .wait_s = options.wait_s},
                                             [this](const std::string& reason) { interrupt(reason); });
}

// Another member forms anew: what this one waits for will not come.
void Workers::interrupt(const std::string& reason) {
  const std::lock_guard lives(lives_);
  if (!group_) return;
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    if (!verdict_.empty()) return;
    verdict_ = reason;
    verdict_code_ = ErrorCode::io;
  }
  group_->give_up(reason);
  if (engine_) engine_->abort(reason);
}

// The generation that was is over.
void Workers::retire() {
  end_looking();
  const std::lock_guard lives(lives_);
  // Whoever has not noticed yet learns it from this.
  if (group_) group_->give_up("the workers form anew");
  if (engine_) engine_->abort("the workers form anew");
  engine_.reset();
  group_.reset();
}

// Alone, with an engine that has nobody to exchange with: a newcomer prepares its steps with it.
void Workers::be_alone() {
  newcomer_ = true;
  end_looking();
  const std::lock_guard lives(lives_);
  group_ = std::make_unique<Group>(GroupOptions{.rank = 0, .size = 1});
  engine_ = join_engine(communicator_backend("gloo"), *group_, timeout_s_);
  verdict_.clear();
  broken_ = gave_up_ = false;
}

bool Workers::enter(const Formation& formation) {
  const auto size = static_cast<int>(formation.roster.members.size());
  try {
    auto group = std::make_unique<Group>(GroupOptions{.address = formation.address,
                                                      .rank = formation.rank,
                                                      .size = size,
                                                      .timeout_s = timeout_s_,
                                                      .secret = formation.secret,
                                                      .bound_socket = size > 1 ? formation.bound_socket : -1,
                                                      .hopeless = formation.hopeless});
    if (size == 1 && formation.bound_socket >= 0) close(formation.bound_socket);
    auto engine = join_engine(communicator_backend("gloo"), *group, timeout_s_);
    group->gather("that all have entered the new generation", {}, timeout_s_);
    const std::lock_guard lives(lives_);
    group_ = std::move(group);
    engine_ = std::move(engine);
  } catch (const Error& error) {
    log(LogLevel::debug, "elastic: generation ", formation.roster.generation,
        " was not entered: ", error.message());
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    verdict_.clear();
  }
  recorder_.number_anew();
  broken_ = gave_up_ = newcomer_ = false;
  generation_ = formation.roster.generation;
  rendezvous_->enter(formation.roster);
  begin_looking();
  return true;
}

void Workers::form_anew(bool done, bool admits) {
  retire();
  try {
    while (!enter(rendezvous_->form(done, admits))) {
    }
  } catch (const Expelled& expelled) {
    endpoints_ = expelled.endpoints;
    be_alone();
  } catch (const TooFew& few) {
    be_alone();
    newcomer_ = !few.leads;
    deserted_ = true;
    throw errors::UnavailableError(ErrorCode::io, few.reason, std::source_location::current());
  } catch (...) {
    be_alone();
    throw;
  }
}

bool Workers::broken() const {
  if (gave_up_) return false;
  return broken_ || !group_->lost().empty();
}

void Workers::join() {
  retire();
  try {
    while (!enter(rendezvous_->join(endpoints_))) {
    }
  } catch (const Passed& passed) {
    be_alone();
    past_ = passed.past;
    throw;
  } catch (const Error&) {
    be_alone();
    throw;
  }
}

void Workers::come_to(int64_t place, std::string past) {
  past_ = std::move(past);
  if (rendezvous_) rendezvous_->come_to(place, past_);
}

// --- through the group ---------------------------------------------------------------------------------------------

template <class Call>
auto Workers::through_group(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const Error& error) {
    // Who does something else has another program; who does not come can be gone on without.
    if (error.code() != ErrorCode::io) throw;
    broken_ = true;
    throw errors::UnavailableError(ErrorCode::io, error.message(), error.where());
  }
}

std::vector<std::string> Workers::gather(std::string_view what, const std::string& part,
                                         std::source_location where) {
  return through_group([&] { return group_->gather(what, part, timeout_s_, where); });
}

void Workers::require_equal(std::string_view what, const std::string& own, std::source_location where) {
  through_group([&] { comm::require_equal(*group_, what, own, timeout_s_, where); });
}

std::vector<std::string> Workers::gather_large(std::string_view what, const std::string& part,
                                               std::source_location where) {
  const bool small = part.size() <= kSmallPart;
  std::vector<std::string> all = gather(
      what,
      MessageWriter().put(static_cast<int64_t>(part.size())).put_text(small ? part : std::string()).take(),
      where);
  std::vector<int64_t> sizes;
  for (std::string& one : all) {
    MessageReader reader(one);
    sizes.push_back(reader.get<int64_t>());
    std::string inside = reader.get_text();
    one = std::move(inside);
  }
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most <= static_cast<int64_t>(kSmallPart)) return all;
  for (std::string& one : all) one.clear();
  if (engine_) {
    std::string padded = part, gathered(static_cast<size_t>(most) * all.size(), '\0');
    padded.resize(static_cast<size_t>(most));
    all_gather(what, padded.data(), gathered.data(), most);
    for (size_t r = 0; r < all.size(); ++r)
      all[r] = gathered.substr(static_cast<size_t>(most) * r, static_cast<size_t>(sizes[r]));
    return all;
  }
  for (int64_t at = 0; at < most; at += kChunk) {
    const std::vector<std::string> parts = gather(
        what,
        at < static_cast<int64_t>(part.size()) ? part.substr(static_cast<size_t>(at), kChunk) : std::string(),
        where);
    for (size_t r = 0; r < all.size(); ++r) all[r] += parts[r];
  }
  return all;
}

std::string Workers::broadcast(std::string_view name, const std::string& roots, int root) {
  const std::vector<std::string> sizes = gather(name, std::to_string(roots.size()));
  std::string bytes = roots;
  bytes.resize(std::stoul(sizes[static_cast<size_t>(root)]));
  broadcast(name, bytes.data(), static_cast<int64_t>(bytes.size()), root);
  return bytes;
}

void Workers::broadcast(std::string_view name, void* data, int64_t bytes, int root) {
  if (engine_) {
    collective("broadcast", name, bytes,
               [&] { engine_->broadcast(data, data, bytes, DType::uint8, root, host_stream()); });
    return;
  }
  require(root == 0, ErrorCode::unsupported, std::source_location::current(), name,
          ": without an engine only the chief's bytes go to all");
  auto* const all = static_cast<char*>(data);
  for (int64_t at = 0; at < bytes; at += kChunk) {
    const auto size = static_cast<size_t>(std::min(kChunk, bytes - at));
    const std::string part =
        through_group([&] { return group_->share(chief() ? std::string(all + at, size) : std::string()); });
    require(part.size() == size, ErrorCode::failed_precondition, std::source_location::current(), name,
            ": the chief has ", part.size(), " bytes where this worker expects ", size);
    std::memcpy(all + at, part.data(), size);
  }
}

// --- with the engine -----------------------------------------------------------------------------------------------

void Workers::need_engine(const char* kind) const {
  require(engine_ != nullptr, ErrorCode::unsupported, std::source_location::current(), kind,
          " of the host's memory: the workers are joined by no engine but NCCL");
}

template <class Call>
void Workers::collective(const char* kind, std::string_view name, int64_t bytes, Call call) {
  check_verdict();
  recorder_.begin(kind, name, bytes);
  try {
    call();
  } catch (const Error& error) {
    stop(error.message());
  }
  recorder_.end();
}

void Workers::check_verdict() {
  std::string verdict;
  ErrorCode code = ErrorCode::io;
  {
    const std::lock_guard lock(mutex_);
    if (verdict_.empty()) return;
    verdict = verdict_;
    code = verdict_code_;
  }
  broken_ = true;
  end_with(verdict, code);
}

void Workers::end_with(const std::string& verdict, ErrorCode code) {
  const auto here = std::source_location::current();
  if (code != ErrorCode::io) fail(code, here, verdict);
  throw errors::UnavailableError(code, verdict, here);
}

// The engine has failed, or was made to: says why, here and to the others.
void Workers::stop(const std::string& engines_words) {
  const FlightRecorder::Last operation = recorder_.last();
  std::string verdict;
  ErrorCode code = ErrorCode::io;
  {
    const std::lock_guard lock(mutex_);
    verdict = verdict_;
    code = verdict_code_;
  }
  if (verdict.empty()) {
    // Where a connection of the engine's breaks, the group's is about to.
    std::string why;
    for (int i = 0; i < 20 && (why = group_->lost()).empty(); ++i) std::this_thread::sleep_for(kLookEvery);
    if (why.empty()) why = group_->missing_from(operation.number, operation.text);
    if (why.empty()) why = group_->left();
    if (why.empty()) why = engines_words;
    verdict = detail::concat(operation.text, " cannot end: ", why);
    const std::lock_guard lock(mutex_);
    if (verdict_.empty()) verdict_ = verdict, verdict_code_ = group_->lost_code();
    verdict = verdict_;
    code = verdict_code_;
  }
  broken_ = true;
  group_->give_up(verdict, code);
  if (elastic())
    log(LogLevel::debug, "worker ", rank(), " of ", size(), ": ", verdict);
  else
    log(LogLevel::error, "worker ", rank(), " of ", size(), ": ", verdict, "\nits last collectives:\n",
        flight_record(8));
  if (const auto folder = env::read_string("LOCKSTEP_FLIGHT_RECORDS")) {
    std::ofstream file(detail::concat(*folder, "/rank_", rank(), "_process_", getpid(), ".txt"));
    file << verdict << "\n" << flight_record();
  }
  end_with(verdict, code);
}

void Workers::all_reduce_sum(std::string_view name, void* data, int64_t count, DType dtype) {
  need_engine("all_reduce");
  collective("all_reduce", name, count * static_cast<int64_t>(size_of(dtype)),
             [&] { engine_->all_reduce_sum(data, data, count, dtype, host_stream()); });
}

void Workers::all_to_all(std::string_view name, const void* source, std::span<const int64_t> send_bytes,
                         void* target, std::span<const int64_t> receive_bytes) {
  need_engine("all_to_all");
  int64_t bytes = 0;
  for (const int64_t each : send_bytes) bytes += each;
  collective("all_to_all", name, bytes,
             [&] { engine_->all_to_all(source, send_bytes, target, receive_bytes, host_stream()); });
}

void Workers::all_gather(std::string_view name, const void* source, void* target, int64_t bytes) {
  need_engine("all_gather");
  collective("all_gather", name, bytes,
             [&] { engine_->all_gather(source, target, bytes, DType::uint8, host_stream()); });
}

// --- looking after it ----------------------------------------------------------------------------------------------

void Workers::give_up(const std::string& reason, const std::exception& error) noexcept {
  try {
    const ErrorCode code = elastic() ? ErrorCode::io : mistake_of(error);
    {
      const std::lock_guard lock(mutex_);
      if (!verdict_.empty()) return;
      verdict_ = reason;
      verdict_code_ = code;
      gave_up_ = true;
    }
    const std::lock_guard lives(lives_);
    if (group_) group_->give_up(reason, code);
    if (engine_) engine_->abort(reason);
  } catch (...) {
    // What cannot be told is seen: the connections close when the process ends.
  }
}

// Tells the group how far this worker is, so that a collective itself need not, and ends one that cannot end.
void Workers::look() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    wake_.wait_for(lock, kLookEvery, [&] { return ending_; });
    if (ending_) return;
    lock.unlock();
    const FlightRecorder::Last seen = recorder_.last();
    group_->progress(seen.number, seen.ended ? seen.number : seen.number - 1, seen.text);
    std::string reason;
    if (!seen.ended) {
      const auto under_way = std::chrono::nanoseconds(monotonic_ns() - seen.begun_ns);
      reason = group_->lost();
      // Who has left may have done its part of this one: only what goes on for long cannot end.
      if (reason.empty() && under_way > kFarewell) reason = group_->left();
      if (reason.empty() && under_way > std::chrono::duration<double>(timeout_s_)) {
        reason = group_->missing_from(seen.number, seen.text);
        reason = reason.empty() ? detail::concat("it has not ended within ", timeout_s_,
                                                 " s, although all workers have come to it")
                                : detail::concat("after ", timeout_s_, " s ", reason);
      }
    }
    lock.lock();
    if (reason.empty() || !verdict_.empty()) continue;
    const FlightRecorder::Last now = recorder_.last();
    if (now.ended || now.number != seen.number) continue;
    const std::string verdict = verdict_ = detail::concat(seen.text, " cannot end: ", reason);
    const ErrorCode code = verdict_code_ = group_->lost_code();
    lock.unlock();
    // The others learn the reason before they see the engine's connections break.
    group_->give_up(verdict, code);
    engine_->abort(reason);
    lock.lock();
  }
}

}  // namespace lockstep::comm
