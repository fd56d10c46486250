#include "keras/training/elastic_fit.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/workers.h"
#include "keras/callbacks/callback_states.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {

void ElasticFit::come() {
  if (fit_.strategy.elastic())
    fit_.strategy.workers()->come_to(2 * int64_t{number_} - 1, fit_.strategy.workers()->past());
}

void ElasticFit::leave(const History& history) {
  if (!fit_.strategy.elastic()) return;
  PastFits past(fit_.strategy.workers()->past());
  past.add(number_, history);
  fit_.strategy.workers()->come_to(2 * int64_t{number_}, past.bytes());
}

History ElasticFit::passed(const std::string& past) const {
  std::optional<History> history = PastFits(past).find(number_);
  require(history.has_value(), ErrorCode::failed_precondition, fit_.where,
          "fit: the run that this worker has come to join is past fit number ", number_,
          " of its program, and knows nothing of it: its program is another");
  fit_.strategy.workers()->come_to(2 * int64_t{number_}, past);
  log(LogLevel::info, "fit: the run is past this fit, number ", number_,
      " of the program; this worker has its history, and joins the others at the next");
  return *std::move(history);
}

void ElasticFit::join() {
  fit_.trainer.make_variables(fit_.data, fit_.batch_size, fit_.where);
  fit_.trainer.forget_steps();
  fit_.strategy.workers()->join();
  fit_.trainer.control().joined = true;
  fit_.tell_begin(true);
  settle(false);
}

void ElasticFit::let_in() {
  fit_.trainer.forget_steps();
  fit_.strategy.workers()->form_anew(false);
  settle(true);
}

bool ElasticFit::may_recover() const {
  const auto& workers = fit_.strategy.workers();
  return workers && workers->elastic() && workers->broken() && !workers->deserted();
}

void ElasticFit::recover(std::string reason) {
  while (!reason.empty()) {
    try {
      form_anew(std::exchange(reason, {}));
    } catch (const std::exception& error) {
      if (!may_recover()) end_with(error);
      reason = error.what();
    }
  }
}

void ElasticFit::form_anew(const std::string& reason) {
  comm::Workers& workers = *fit_.strategy.workers();
  log(LogLevel::warning, "fit: worker ", workers.rank(), " of ", workers.size(),
      " forms anew with those who are "
      "left: ",
      reason);
  fit_.trainer.forget_steps();
  workers.form_anew(closing_);
  if (workers.newcomer()) {
    log(LogLevel::warning,
        "fit: the run has gone on without this worker, which was not heard of for too long; it "
        "joins anew");
    join();
  } else {
    settle(true);
  }
}

void ElasticFit::end_with(const std::exception& error) {
  const auto& workers = fit_.strategy.workers();
  if (!workers) throw;
  if (!workers->broken() && !workers->deserted()) {
    // The other workers would wait for this one.
    workers->give_up(detail::concat("fit failed at worker ", workers->rank(), ": ", error.what()), error);
    throw;
  }
  const auto* const known = dynamic_cast<const Error*>(&error);
  if (!known) throw;
  std::string message = known->message();
  if (workers->chief() && fit_.at.begun && fit_.trainer.control().save_alone) message += save_alone();
  // A mistake stays one, this worker's own or that of another which gave up for it.
  if (const ErrorCode mistake = comm::mistake_of(error); mistake != ErrorCode::io)
    fail(mistake, known->where(), message);
  throw errors::UnavailableError(ErrorCode::io, message, fit_.where);
}

std::string ElasticFit::save_alone() {
  try {
    fit_.stream.put_back();
    const RunState last = state();
    fit_.trainer.control().save_alone(last.progress);
    return detail::concat("; the backup has step ", last.progress.batch, " of epoch ",
                          last.progress.epoch + 1);
  } catch (const std::exception& other) {
    return detail::concat("; the last finished step could not be saved: ", other.what());
  }
}

void ElasticFit::share_chiefs_callbacks() {
  if (!fit_.strategy.elastic()) return;
  comm::Workers& workers = *fit_.strategy.workers();
  chiefs_callbacks_ = workers.broadcast(
      "the states of the chief's callbacks",
      workers.chief() ? pack(callbacks::CallbackStates(fit_.trainer).save_state()) : std::string());
}

void ElasticFit::close() {
  closing_ = true;
  if (fit_.strategy.elastic()) fit_.strategy.workers()->gather("the end of fit", {});
}

void ElasticFit::settle(bool has_state) {
  comm::Workers& workers = *fit_.strategy.workers();
  const std::vector<Place> places = gather_places(workers, {.has_state = has_state,
                                                            .done = closing_,
                                                            .fit = number_,
                                                            .standing = fit_.at,
                                                            .stop = fit_.trainer.stop_training,
                                                            .signal = fit_.trainer.signal()});
  const Place* best = nullptr;
  bool stop = false;
  int signal = 0;
  for (const Place& place : places) {
    if (place.has_state && (!best || best->standing < place.standing)) best = &place;
    stop = stop || place.stop;
    signal = std::max(signal, place.signal);
  }
  require(best != nullptr, ErrorCode::failed_precondition, fit_.where,
          "fit: none of the workers that have formed anew has the state of the run");
  require(has_state || best->fit == number_, ErrorCode::failed_precondition, fit_.where,
          "fit: the run is in fit number ", best->fit,
          " of its program, and this worker, which was started again, in number ", number_,
          ": its program is another");
  // Whoever has made all steps of a fit lacks nothing, however far others are.
  const auto lacks = [&](const Place& place) {
    return !place.has_state || (!place.done && place.standing < best->standing);
  };
  const bool own_lacks = lacks(places[static_cast<size_t>(workers.rank())]);
  // The step of the batch in hand was lost with the workers, unless others have finished it.
  if (!own_lacks) fit_.stream.put_back();
  if (std::any_of(places.begin(), places.end(), lacks)) {
    const auto donor = static_cast<int>(best - places.data());
    const std::string bytes = workers.broadcast(
        "the state of the run", workers.rank() == donor ? pack(state(), fit_.trainer) : std::string(), donor);
    if (own_lacks) take(bytes, has_state);
  }
  if (stop) fit_.trainer.stop_training = true;
  fit_.trainer.set_signal(signal);
  if (workers.chief()) {
    log(LogLevel::info, "fit: ", workers.size(), workers.size() == 1 ? " worker goes" : " workers go",
        " on from step ", fit_.at.batch, " of epoch ", fit_.at.epoch + 1);
    take_chiefs_place();
  } else {
    fit_.callbacks.set_chief(false);
  }
}

RunState ElasticFit::state() {
  RunState state{.standing = fit_.at, .progress = {}, .callbacks = {}};
  if (fit_.trainer.control().resume)
    state.progress = *fit_.trainer.control().resume;
  else if (fit_.at.stage == Standing::Stage::begins)
    state.progress = fit_.trainer.progress_after(fit_.at.epoch - 1);
  else
    state.progress = fit_.trainer.progress(fit_.at.epoch, fit_.at.batch);
  // Validation gathers others with the same variables.
  if (fit_.at.stage == Standing::Stage::validation) state.progress.metrics = fit_.metrics;
  state.callbacks = callbacks::CallbackStates(fit_.trainer).save_state();
  return state;
}

void ElasticFit::take(const std::string& bytes, bool has_state) {
  const RunState given = unpack(bytes, fit_.trainer);
  callbacks::CallbackStates(fit_.trainer, callbacks::CallbackStates::Whose::everybodys)
      .restore_state(given.callbacks);
  fit_.trainer.control().joined = true;
  const bool same_pass =
      has_state && fit_.at.stage != Standing::Stage::begins && fit_.at.epoch == given.standing.epoch;
  fit_.at = given.standing;
  fit_.trainer.control().resume.reset();
  if (fit_.at.stage == Standing::Stage::begins) {
    fit_.trainer.control().resume = given.progress;
    return;
  }
  fit_.metrics = given.progress.metrics;
  if (fit_.at.batch == 0)
    fit_.trainer.reset_metrics();
  else
    fit_.trainer.restore_metrics(given.progress.metrics);
  if (same_pass) {
    // The batch in hand is that of a step which others have finished.
    fit_.stream.used();
    fit_.stream.skip(given.progress.stream.taken - fit_.stream.taken());
  } else {
    fit_.stream.restore(given.progress.stream, given.progress.random);
  }
}

void ElasticFit::take_chiefs_place() {
  const std::vector<Callback> fresh = fit_.callbacks.set_chief(true);
  if (fresh.empty() || !fit_.told_begin) return;
  for (const Callback& callback : fresh) callback.base()->on_train_begin(Logs());
  if (!chiefs_callbacks_.empty())
    callbacks::CallbackStates(fit_.trainer, callbacks::CallbackStates::Whose::chiefs)
        .restore_state(unpack_tensors(chiefs_callbacks_));
  if (fit_.at.stage != Standing::Stage::begins)
    for (const Callback& callback : fresh) callback.base()->on_epoch_begin(fit_.at.epoch, Logs());
}

}  // namespace lockstep::keras
