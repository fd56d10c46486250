// Checkpoints: the state of a training run on disk, complete or not there at all.
//
//   int64_t step = 0;
//   tf::train::Checkpoint checkpoint(
//       {{"model", model}, {"optimizer", optimizer}, {"data", iterator}, {"step", step}});
//   tf::train::CheckpointManager manager(checkpoint, "run", {.max_to_keep = 3});
//   manager.restore_or_initialize();
//   for (; step < steps;) {
//     train_step(iterator.next());
//     if (++step % 100 == 0) manager.save();
//   }
//
// save() copies the state to memory that the checkpoint keeps for this and returns; a thread writes it, syncs
// it and only then gives it its name. Training goes on meanwhile. A save while the one before is still being
// written waits for it, so at most one copy of the state is held. What went wrong in the background is thrown
// by the next save(), restore() or wait().
//
// A checkpoint is one file PREFIX-NUMBER.safetensors (checkpoint_file.h); the file `checkpoint` beside it
// (JSON) names the latest and all that are kept. Tensors are found by object and name, whatever the number of
// replicas or the strategy: a variable is saved once.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/graph/variable.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::data {
class Iterator;
}
namespace lockstep::random {
class Generator;
}

namespace lockstep::train {

class Trackable;
class TrackedObject;
struct Retention;
using GrownCall = std::shared_ptr<const std::function<void(const TrackedObject&)>>;
using NamedVariables = std::vector<std::pair<std::string, Variable>>;
using NamedTrackables = std::vector<std::pair<std::string, Trackable>>;

// What a checkpoint knows of an object. Derive from it to save objects of your own: give their class a member
// std::shared_ptr<TrackedObject> tracked() const.
class TrackedObject {
 public:
  virtual ~TrackedObject() = default;
  virtual std::string kind() const = 0;  // for people

  // Objects inside it and variables it has now. A name may be a path ("dense/kernel"); the empty one is the
  // object's own.
  virtual NamedTrackables children() const;
  virtual NamedVariables variables() const { return {}; }

  // State that is not in variables, of names and shapes that the object alone knows. Where has_state(), all
  // tensors that were saved under the object's name and are no variable's or child's are given to
  // restore_state(), which throws where it cannot use them.
  virtual bool has_state() const { return false; }
  virtual NamedTensors save_state() const { return {}; }
  virtual void restore_state(const NamedTensors& /*state*/) {}

  // Whether all variables exist. Where not, those that were saved are kept until they do: `call` is to be
  // called with this object, or one like it, whenever some have been made, outside of traces. The same one
  // may be given again. It must not keep the object alive.
  virtual bool complete() const { return true; }
  virtual void when_grown(const GrownCall& /*call*/) const {}
  // Throws where there is nothing to save yet.
  virtual void require_savable(const std::string& /*name*/, std::source_location) const {}
};

// Anything a checkpoint can hold. Handles (variables, models, optimizers, generators, checkpoints) are
// shared; iterators and counters are not owned: they must stay where they are as long as the checkpoint is
// used.
class Trackable {
 public:
  Trackable() = default;  // without an object
  // NOLINTBEGIN(google-explicit-constructor): {"step", step} is a member
  Trackable(std::shared_ptr<TrackedObject> object) : object_(std::move(object)) {}
  template <class T>
  requires requires(const T& object) {
    { object.tracked() } -> std::convertible_to<std::shared_ptr<TrackedObject>>;
  }
  Trackable(const T& object, std::source_location where = std::source_location::current())
      : object_((CallSite(where), object.tracked())) {}
  Trackable(const Variable& variable, std::source_location where = std::source_location::current());
  Trackable(const std::vector<Variable>& variables);
  Trackable(const random::Generator& generator);
  Trackable(data::Iterator& iterator);
  Trackable(int64_t& counter);
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return object_ != nullptr; }
  const std::shared_ptr<TrackedObject>& object() const { return object_; }

 private:
  std::shared_ptr<TrackedObject> object_;
};

inline NamedTrackables TrackedObject::children() const { return {}; }

struct SaveOptions {
  bool asynchronous = true;  // false: returns when the checkpoint is on the disk
};

// What a restore did. A handle. Nothing stays unrestored in silence: where neither an assert nor
// expect_partial() was called before the last copy goes, what did not match is logged as a warning.
class RestoreStatus {
 public:
  // False where there was nothing to restore from.
  bool restored() const;
  const std::string& path() const;  // the checkpoint; empty where there was none

  // Objects have it, the checkpoint does not: they keep the values they had.
  std::vector<std::string> missing() const;
  // The checkpoint has it, no object does.
  std::vector<std::string> extra() const;
  // Waits for a model or an optimizer to make its variables.
  std::vector<std::string> deferred() const;

  // Throws Error(failed_precondition), listing names, shapes and what to do, unless every tensor of the
  // checkpoint has found its place and every object its tensor.
  const RestoreStatus& assert_consumed(std::source_location where = std::source_location::current()) const;
  // The same, but what the checkpoint has beyond the objects' variables of now is not looked at.
  const RestoreStatus& assert_existing_objects_matched(
      std::source_location where = std::source_location::current()) const;
  const RestoreStatus& expect_partial() const;

 private:
  friend class Checkpoint;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// The usual objects by name: Checkpoint({.optimizer = optimizer, .model = model}).
struct CheckpointObjects {
  Trackable step = {};
  Trackable optimizer = {};
  Trackable model = {};
  Trackable iterator = {};
};

// A handle; one thread at a time.
class Checkpoint {
 public:
  explicit Checkpoint(const CheckpointObjects& objects,
                      std::source_location where = std::source_location::current());
  // Any objects by name: Checkpoint({{"generator", generator}, {"discriminator", discriminator}}).
  explicit Checkpoint(std::initializer_list<std::pair<std::string, Trackable>> objects,
                      std::source_location where = std::source_location::current())
      : Checkpoint(NamedTrackables(objects), where) {}
  // A template, so that braces are not taken for a list of this type.
  template <std::same_as<NamedTrackables> Objects>
  explicit Checkpoint(const Objects& objects, std::source_location where = std::source_location::current())
      : impl_(made_of(objects, where)) {}

  // Saves as PREFIX-1, PREFIX-2, ... and enters it in the file `checkpoint` of that folder, which is made
  // where it does not exist. Returns the path without its ending.
  std::string save(const std::string& prefix, const SaveOptions& options = {},
                   std::source_location where = std::source_location::current()) const;
  // The same under exactly this name: no number, no entry.
  std::string write(const std::string& path, const SaveOptions& options = {},
                    std::source_location where = std::source_location::current()) const;
  // Waits until the last save is on the disk; throws what went wrong.
  void wait() const;

  // Puts the values back; nothing (as latest_checkpoint() gives where there is none) does nothing. What the
  // checkpoint holds is read and checked before the first variable changes: a damaged file, or a tensor of
  // another shape or dtype than its variable, throws Error(io) or Error(invalid_argument) that lists
  // everything and names the newest good checkpoint of the folder.
  RestoreStatus restore(const std::optional<std::string>& path,
                        std::source_location where = std::source_location::current()) const;

  // The number of the last save; restored with the rest.
  int64_t save_counter() const;

  std::shared_ptr<TrackedObject> tracked() const;

 private:
  friend class CheckpointManager;
  std::string save_numbered(const std::string& prefix, const Retention& retention, const SaveOptions& options,
                            std::source_location where) const;
  struct Impl;
  static std::shared_ptr<Impl> made_of(const NamedTrackables& objects, std::source_location where);

  std::shared_ptr<Impl> impl_;
};

// The path (without its ending) of the latest checkpoint of a folder, by its file `checkpoint`, or where that
// cannot be read by the numbers of the files. Nullopt where there is none.
std::optional<std::string> latest_checkpoint(const std::string& folder);

// The newest checkpoint of a folder that is complete and undamaged. Reads all of it.
std::optional<std::string> newest_good_checkpoint(const std::string& folder);

struct CheckpointManagerOptions {
  int max_to_keep = 5;  // older ones are removed; 0: all are kept
  // A checkpoint that would be removed stays where the last one that stayed is older by so many hours; 0:
  // none stays.
  double keep_checkpoint_every_n_hours = 0;
  std::string checkpoint_name = "ckpt";
  // save() does nothing until the step has gone on by so much since the last one.
  int64_t checkpoint_interval = 0;
  std::function<int64_t()> step_counter = {};
  // What restore_or_initialize() calls where there is no checkpoint.
  std::function<void()> init_fn = {};
  // Where the latest checkpoint is damaged, restore_or_initialize() takes the newest good one and logs a
  // warning.
  bool fall_back = false;
};

// Saves to one folder and keeps the last few. A handle; one thread at a time.
class CheckpointManager {
 public:
  CheckpointManager(const Checkpoint& checkpoint, const std::string& directory,
                    const CheckpointManagerOptions& options = {},
                    std::source_location where = std::source_location::current());

  // The path, or nullopt where the interval has not passed.
  std::optional<std::string> save(const SaveOptions& options = {},
                                  std::source_location where = std::source_location::current()) const;
  void wait() const { checkpoint().wait(); }

  // The checkpoint that was restored; nullopt where there was none and init_fn, if any, was called.
  std::optional<std::string> restore_or_initialize(
      std::source_location where = std::source_location::current()) const;

  // On the disk, oldest first; those kept beyond max_to_keep (every n hours) are not among them.
  std::vector<std::string> checkpoints() const;
  std::optional<std::string> latest_checkpoint() const;
  const std::string& directory() const;
  const Checkpoint& checkpoint() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::train
