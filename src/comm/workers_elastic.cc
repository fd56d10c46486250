// How the workers of an elastic run go on without those that are lost, and with those that come back.
#include <unistd.h>

#include <utility>

#include "comm/workers.h"
#include "device/plugin.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {

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

void Workers::forget_verdict() {
  const std::lock_guard lock(mutex_);
  verdict_.clear();
  verdict_code_ = ErrorCode::io;
}

// Alone, with an engine that has nobody to exchange with: a newcomer prepares its steps with it.
void Workers::be_alone() {
  newcomer_ = true;
  end_looking();
  const std::lock_guard lives(lives_);
  group_ = std::make_unique<Group>(GroupOptions{.rank = 0, .size = 1});
  engine_ = join_engine(communicator_backend("gloo"), *group_, timeout_s_);
  forget_verdict();
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
  forget_verdict();
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

}  // namespace lockstep::comm
