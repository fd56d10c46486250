// Other frameworks, each in a process of its own that takes a reading when asked and is idle in between.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

// Starts the peers that can be found, for one thread count; ends their processes when destroyed.
class Peers {
 public:
  explicit Peers(int threads);
  ~Peers();
  // The same on the first GPU: those whose name matches the regular expression.
  static Peers on_gpu(const std::string& names = ".*");
  Peers(Peers&&) noexcept;

  // Lets those that compile before they run do so for these works, all at the same time, and calls `tell` with a line for each
  // that is ready. Readings need none of it; the first of such a peer takes minutes without.
  void prepare(const std::vector<std::pair<std::string, int64_t>>& works,
               const std::function<void(const std::string&)>& tell) const;

  // One candidate a peer.
  std::vector<Candidate> candidates(const std::string& work, int64_t batch) const;

  // A line for each framework: its version, or why it is missing.
  const std::vector<std::string>& inventory() const { return inventory_; }

 private:
  class Process;
  using Command = std::pair<std::string, std::vector<std::string>>;  // framework, words
  explicit Peers(const std::vector<Command>& commands);

  std::vector<std::shared_ptr<Process>> processes_;
  std::vector<std::string> inventory_;
};

}  // namespace lockstep::bench
