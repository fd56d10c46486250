// What the handles of a strategy share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/workers.h"
#include "execute/replicated_runs.h"
#include "lockstep/distribute/strategy.h"
#include "observe/loop.h"

namespace lockstep::distribute {

class Strategy::Impl {
 public:
  Impl(Kind kind, std::string name, std::vector<Device*> devices, StrategyOptions options,
       std::shared_ptr<comm::Workers> workers)
      : kind(kind),
        name(std::move(name)),
        devices(std::move(devices)),
        options(std::move(options)),
        workers(std::move(workers)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // A loop written by hand ends when nobody holds its strategy any more.
  ~Impl();

  // Of the loop over run(), which begins now where there is none.
  observe::Loop& running(const Strategy& self);

  // Replicas that were given the same tensors by every run(), none of which was distributed.
  int replicas_alike() const;

  const Kind kind;
  const std::string name;
  const std::vector<Device*> devices;
  const StrategyOptions options;
  const std::shared_ptr<comm::Workers> workers;  // null: this process alone
  std::shared_ptr<const VariableOwner> owner;
  std::unique_ptr<execute::ReplicatedRuns> runs;
  std::string sums;           // who makes them, of several devices
  std::set<uint64_t> shared;  // variables that have had the chief's value
  std::unique_ptr<observe::Loop> loop;
  std::atomic<int> workers_alike{1};  // that read the same batches
  std::atomic<int64_t> runs_made{0};
  std::atomic<int64_t> undistributed{0};  // of them, with batches that every replica got whole
};

}  // namespace lockstep::distribute
