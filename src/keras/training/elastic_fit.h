// What a fit does where its workers come and go.
//
// In an elastic run, where workers are lost, all who are left form anew, and settle: they agree on the
// farthest place that one of them has reached, and whoever is not there gets the state from one who is.
// Workers that are started again are let in between two steps, and settle like the others.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <source_location>
#include <string>

#include "keras/training/callback_list.h"
#include "keras/training/run_state.h"
#include "keras/training/stream.h"
#include "keras/training/trainer.h"
#include "lockstep/distribute/strategy.h"

namespace lockstep::keras {

class ElasticFit {
 public:
  // What another worker's state changes of the fit, whose own it is.
  struct Fit {
    Trainer& trainer;
    const distribute::Strategy& strategy;
    const Data& data;  // that it trains on
    int64_t batch_size;
    CallbackList& callbacks;
    BatchStream& stream;
    Standing& at;
    TensorList& metrics;
    const bool& told_begin;
    std::function<void(bool joins)> tell_begin;
    std::source_location where;
  };
  // `number`: of the fits of this process. The fit has to outlive this.
  ElasticFit(Fit fit, int number) : fit_(std::move(fit)), number_(number) {}

  // Where other workers can join: in this fit, and behind it.
  void come();
  void leave(const History& history);
  // Of a fit that the run was past when this worker came to join it.
  History passed(const std::string& past) const;

  // Of a worker that is not in the run: waits until it is let in.
  void join();
  // Between two steps: lets those in who wait.
  void let_in();
  // Whether what was thrown is the loss of other workers, and the run can go on without them.
  bool may_recover() const;
  // Goes on with those who are left, also where more of them are lost meanwhile.
  void recover(std::string reason);
  // To be called in a catch, where the run cannot go on: tells the others or, where it is they who are lost,
  // saves what it has.
  [[noreturn]] void end_with(const std::exception& error);
  // Others may have to take the chief's place.
  void share_chiefs_callbacks();
  // All steps are made. No worker leaves the run while another lacks what it has.
  void close();

 private:
  void form_anew(const std::string& reason);
  // All workers that have formed anew come here. `has_state`: this one's is of the run.
  void settle(bool has_state);
  RunState state();
  void take(const std::string& bytes, bool has_state);
  void take_chiefs_place();
  // What became of it, for a message that goes on.
  std::string save_alone();

  Fit fit_;
  const int number_;
  bool closing_ = false;  // all steps are made
  // The states of those callbacks that are the chief's alone, as of the last epoch's end.
  std::string chiefs_callbacks_;
};

}  // namespace lockstep::keras
