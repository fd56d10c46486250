// What the callbacks of a run must know again for it to go on.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "keras/training/trainer.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::keras::callbacks {

// The states of all callbacks of the fit under way, as a checkpoint, another worker, or a new chief gets
// them.
class CallbackStates final : public train::TrackedObject {
 public:
  // Which of them are put back. A backup's: those that hear of the run here. Of a run of several workers,
  // between members of it: those that all hear of, or the chief's alone.
  enum class Whose : uint8_t { own, everybodys, chiefs };

  explicit CallbackStates(const Trainer& trainer, Whose whose = Whose::own)
      : trainer_(trainer), whose_(whose) {}
  std::string kind() const override { return "callbacks"; }
  bool has_state() const override { return true; }
  train::NamedTensors save_state() const override;
  void restore_state(const train::NamedTensors& saved) override;

 private:
  bool restores(const CallbackBase& callback) const;
  // "EarlyStopping", "EarlyStopping_2", ...
  std::vector<std::pair<std::string, CallbackBase*>> named() const;

  const Trainer& trainer_;
  const Whose whose_;
};

}  // namespace lockstep::keras::callbacks
