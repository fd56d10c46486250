// The callbacks of one run.
#pragma once

#include <exception>
#include <source_location>
#include <vector>

#include "lockstep/base/errors.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/model.h"
#include "observe/activity.h"

namespace lockstep::keras {

class CallbackList {
 public:
  // The given ones, a progress bar unless the run is silent, and `last`, if any, which sees what the others
  // add to the logs. All are bound to the model. Throws Error(invalid_argument) for an empty one. `chief`:
  // false on the other workers of a run, where those that are the chief's (CallbackBase::chief_only) hear
  // nothing.
  CallbackList(std::vector<Callback> given, Model& model, const RunParams& params, std::source_location where,
               const Callback& last = {}, bool chief = true);

  // Calls this moment of every callback.
  template <class... Parameters, class... Arguments>
  void tell(void (CallbackBase::*moment)(Parameters...), const Arguments&... arguments) const {
    const observe::ActivityScope activity("a callback");
    std::exception_ptr lost;
    for (const Callback& callback : told_) try {
        (callback.base().get()->*moment)(arguments...);
      } catch (const errors::UnavailableError&) {
        // Other workers are lost, which the run may outlive: the other callbacks shall have heard of this
        // moment.
        lost = std::current_exception();
      }
    if (lost) std::rethrow_exception(lost);
  }
  void add_logs(int epoch, Logs& logs) const;

  // This worker is the chief from now on, or is no longer. Returns those that hear of the run from now on.
  std::vector<Callback> set_chief(bool chief);

  const std::vector<Callback>& all() const { return list_; }
  // Whether any of them does.
  bool wants_batch_logs() const;
  bool needs_every_batch() const;

 private:
  std::vector<Callback> list_;
  std::vector<Callback> told_;  // those of them that hear of the run
};

}  // namespace lockstep::keras
