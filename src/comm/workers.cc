#include "comm/workers.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/environment.h"
#include "comm/connection.h"
#include "comm/machine_communicator.h"
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

Stream& host_stream() {
  static Stream& stream = backend_of(device_by_name("/CPU:0")).compute_stream();
  return stream;
}

}  // namespace

ErrorCode mistake_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return !known || known->code() == ErrorCode::internal ? ErrorCode::io : known->code();
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

// --- through the group -------------------------------------------------------------------------------------

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

void Workers::require_equal(Group& group, std::string_view what, const std::string& own, double timeout_s,
                            std::source_location where) {
  const std::vector<std::string> all = group.gather(what, own, timeout_s, where);
  std::string different;
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      different += detail::concat("; rank ", r, " has ", all[r].empty() ? "none" : all[r]);
  require(different.empty(), ErrorCode::failed_precondition, where, "the workers differ in ", what,
          ": rank 0 has ", all[0].empty() ? "none" : all[0], different);
}

void Workers::require_equal(std::string_view what, const std::string& own, std::source_location where) {
  through_group([&] { require_equal(*group_, what, own, timeout_s_, where); });
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

// --- with the engine ---------------------------------------------------------------------------------------

std::unique_ptr<Communicator> Workers::join_engine(const CommunicatorBackend& library, Group& group,
                                                   double timeout_s) {
  auto engine = library.join(device_by_name("/CPU:0"), library.make_id(), group.rank(), group.size(),
                             {.timeout_s = timeout_s, .group = &group});
  auto memory = SharedMemory::join(group, timeout_s);
  if (!memory) return engine;
  return std::make_unique<MachineCommunicator>(std::move(engine), std::move(memory));
}

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

// --- looking after it --------------------------------------------------------------------------------------

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
