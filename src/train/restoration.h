// How a checkpoint is put back into objects: what it has for them, what is missing on either side, and what
// waits for variables that are yet to be made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"

namespace lockstep::train {

using ObjectPtr = std::shared_ptr<TrackedObject>;
// By their whole names.
using NamedObjects = std::vector<std::pair<std::string, ObjectPtr>>;

// Every object below these; the ones inside an object follow it.
NamedObjects all_objects(const NamedTrackables& roots);

struct Mismatches {
  std::vector<std::string> misshapen, missing, extra, deferred;

  std::string text() const;
};

// What a restore found, and what is left to be put back when its variable is made.
struct Restoration {
  std::string path;
  Mismatches found;                       // `deferred` is not used: see pending
  std::map<std::string, Tensor> pending;  // by whole name
  std::unordered_set<std::string> known;  // names of variables that have been looked at
  std::set<std::string> finished;         // objects of which all variables have been looked at
  bool superseded = false;                // by a later restore
  bool accepted = false;                  // somebody looked, or said that they do not mind

  Restoration() = default;
  // Warns of what was never put back.
  ~Restoration();
  Restoration(const Restoration&) = delete;
  Restoration& operator=(const Restoration&) = delete;

  // Values for variables that an object has made since.
  void continue_with(const std::string& name, const TrackedObject& object);
  void supersede();
  std::vector<std::string> names_of_pending() const;
};

// Goes on whenever the object has made variables, for as long as more may come.
void watch(const std::shared_ptr<Restoration>& restoration, const std::string& name,
           const TrackedObject& object);

// What a checkpoint has for these objects: everything is looked at before anything is read, and everything
// read before anything changes.
class CheckpointMatch {
 public:
  // Notes in the restoration what is missing on either side. Throws Error(invalid_argument) where something
  // does not fit.
  CheckpointMatch(const CheckpointFile& file, const std::string& path, const NamedTrackables& roots,
                  Restoration& restoration, std::source_location where);

  void read(Restoration& restoration, std::source_location where);
  void assign(std::source_location where);
  // Objects whose variables are yet to be made, and wait for what is pending.
  const NamedObjects& growing() const { return growing_; }

 private:
  struct Stateful {
    std::string name;
    ObjectPtr object;
    std::vector<std::string> names;
    NamedTensors state = {};
  };

  void match_variables(Restoration& restoration);
  void match_states(Mismatches& found);
  void match_growing(Mismatches& found);

  const CheckpointFile& file_;
  const std::string& path_;
  const NamedObjects objects_;
  std::set<std::string> unused_;
  std::vector<std::pair<Variable, std::string>> matched_;
  std::vector<std::pair<Variable, Tensor>> values_;
  std::vector<Stateful> stateful_;
  NamedObjects growing_;
  std::vector<std::string> deferred_;
};

struct RestoreStatus::Impl {
  std::shared_ptr<Restoration> restoration = std::make_shared<Restoration>();

  Impl() = default;
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

}  // namespace lockstep::train
