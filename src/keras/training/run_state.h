// The state of a fit, as one worker gives it to another.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "keras/training/trainer.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {

// How far a worker has come. Every worker goes through the same places in the same order.
struct Standing {
  // How far an epoch is: about to begin; `batch` of its steps are made; all of them are, and `logs` are
  // theirs.
  enum class Stage : uint8_t { begins, steps, validation };

  bool begun = false;  // the callbacks know that training has begun
  int epoch = 0;
  Stage stage = Stage::begins;
  int64_t batch = 0;
  Logs logs = {};  // of the epoch, or of the one before it

  bool operator<(const Standing& other) const { return place() < other.place(); }
  bool operator==(const Standing& other) const { return place() == other.place(); }

 private:
  std::tuple<bool, int, Stage, int64_t> place() const { return {begun, epoch, stage, batch}; }
};

// What workers that have formed anew tell each other first.
struct Place {
  bool has_state = true;  // that of the run; newcomers have none
  bool done = true;       // it needs no further step of a fit
  int fit = 0;            // which of its program's
  Standing standing = {};
  bool stop = false;  // training
  int signal = 0;     // that asks the run to end
};
// By rank. All workers have to call it.
std::vector<Place> gather_places(comm::Workers& workers, const Place& own);

// All that a worker must have to go on from where another stands.
struct RunState {
  Standing standing;
  Trainer::Progress progress;     // with the position in the data
  train::NamedTensors callbacks;  // their states
};

// With the values of all variables (Trainer::variables()).
std::string pack(const RunState& state, const Trainer& trainer);
// Puts the values where they belong. Throws Error(failed_precondition) that names what differs where this
// worker's model, optimizer or metrics are others.
RunState unpack(const std::string& bytes, Trainer& trainer);

// What fits that are over have left, for those who come too late to join them: their histories, by their
// numbers.
class PastFits {
 public:
  explicit PastFits(std::string bytes = {}) : bytes_(std::move(bytes)) {}
  void add(int fit, const History& history);
  // Nullopt: nothing is known of that one. Without its time.
  std::optional<History> find(int fit) const;
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Named tensors alone.
std::string pack(const train::NamedTensors& tensors);
train::NamedTensors unpack_tensors(const std::string& bytes);

}  // namespace lockstep::keras
