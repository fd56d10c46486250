// How a fit and the callbacks that back it up steer each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "keras/training/stream.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::keras {

// Where a run stands, and where a backup wants it to go on.
struct RunProgress {
  int epoch = 0;
  int64_t batch = 0;             // batches of the epoch that are done
  int64_t random = 0;            // random::default_generator()
  BatchStream::Position stream;  // of the data
  TensorList metrics = {};       // what they have gathered of an epoch that is not done
};

struct RunControl {
  // Where the run goes on. Set by BackupAndRestore when training begins, and by the fit where it takes over
  // another worker's state, or the epoch that it went on in was complete; read by RunRecord and the fit,
  // which takes it away when it begins an epoch's data.
  std::optional<RunProgress> resume;
  // All of the run, those of the chief alone among them. Set by the fit, and empty again behind it; read by
  // CallbackStates.
  std::vector<Callback> callbacks;
  // This worker got its state from another worker, not from a backup. Set by the fit; read by
  // BackupAndRestore, which then restores nothing.
  bool joined = false;
  // Writes a backup of a run that SIGTERM breaks off in the midst of an epoch. Set by BackupAndRestore when
  // training begins; called by the fit, which empties it at its beginning and end.
  std::function<void(const RunProgress&)> save_now;
  // Writes one of the last finished step of a run whose other workers are lost, as far as that can be done
  // without them. Set, called and emptied like save_now.
  std::function<void(const RunProgress&)> save_alone;
};

}  // namespace lockstep::keras
