#include <algorithm>

#include "comm/workers.h"
#include "distribute/strategy_impl.h"
#include "graph/tensor_bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/ops/random.h"

namespace lockstep::distribute {
namespace {

constexpr int64_t kNoState = -1;  // of a loop by hand, in the place of the steps that a worker has finished

// Of a worker that is not in the run.
void join_loop(comm::Workers& workers, const char* what, std::source_location where) {
  try {
    workers.join();
  } catch (const comm::Passed&) {
    fail(ErrorCode::failed_precondition, where, what,
         ": the run is past this loop, and how that went is known to nobody; a program whose workers are to "
         "join at any time has one loop by hand, or trains with fit");
  }
}

}  // namespace

int64_t Strategy::recover(int64_t steps, const std::vector<Variable>& variables,
                          std::source_location where) const {
  require(elastic(), ErrorCode::failed_precondition, where, "recover: ", description(),
          " is not elastic; make it with {.elastic = {.min_workers = 2}}");
  comm::Workers& workers = *impl_->workers;
  while (true) {
    // Newcomers wait in admit(), and what they do next is what is done behind that.
    workers.form_anew(false, false);
    if (workers.newcomer()) {
      log(LogLevel::warning,
          "recover: the run has gone on without this worker, which was not heard of for too long; it waits "
          "until it is let in");
      steps = kNoState;
      join_loop(workers, "recover", where);
    }
    try {
      return go_on_from_farthest(steps, variables, where);
    } catch (const errors::UnavailableError&) {
      // Another has gone meanwhile.
      if (!workers.broken()) throw;
    }
  }
}

int64_t Strategy::admit(int64_t steps, const std::vector<Variable>& variables,
                        std::source_location where) const {
  if (!elastic()) return steps;
  comm::Workers& workers = *impl_->workers;
  // Whenever they have formed anew all come to the question: those who were in a step come here from
  // recover().
  while (true) try {
      if (workers.newcomer()) {
        steps = kNoState;
        join_loop(workers, "admit", where);
      } else {
        const std::vector<std::string> all =
            workers.gather("whether workers wait to join", workers.newcomers_waiting() > 0 ? "yes" : "no");
        if (std::find(all.begin(), all.end(), "yes") == all.end()) return steps;
        workers.form_anew(false);
        if (workers.newcomer()) continue;
      }
      steps = go_on_from_farthest(steps, variables, where);
    } catch (const errors::UnavailableError&) {
      if (!workers.broken()) throw;
      steps = recover(steps, variables, where);
    }
}

int64_t Strategy::go_on_from_farthest(int64_t steps, const std::vector<Variable>& variables,
                                      std::source_location where) const {
  comm::Workers& workers = *impl_->workers;
  int64_t most = steps;
  int donor = workers.rank();
  const std::vector<std::string> all = workers.gather("the steps that are finished", std::to_string(steps));
  for (size_t r = 0; r < all.size(); ++r)
    if (const int64_t theirs = std::stoll(all[r]);
        theirs > most || (theirs == most && static_cast<int>(r) < donor))
      most = theirs, donor = static_cast<int>(r);
  require(most != kNoState, ErrorCode::failed_precondition, where,
          "none of the workers that are left has the state of the loop");
  std::vector<Variable> shared = variables;
  shared.push_back(random::default_generator().state());
  std::string bytes;
  for (const Variable& variable : shared) bytes += bytes_of(variable.value());
  workers.broadcast("the values of variables", bytes.data(), static_cast<int64_t>(bytes.size()), donor);
  size_t at = 0;
  for (const Variable& variable : shared) {
    const TensorSpec spec{variable.dtype(), variable.shape()};
    if (steps < most)
      variable.assign(tensor_of(spec, bytes.substr(at, spec.bytes())).to(variable.value().device()));
    at += spec.bytes();
    // run() gives all workers the chief's values of what it has not seen: these they have.
    impl_->shared.insert(variable.id());
  }
  return most;
}

}  // namespace lockstep::distribute
