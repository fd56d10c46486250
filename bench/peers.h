// Other frameworks, each in a process of its own that takes a reading when asked and is idle in between.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

class Child;

// Starts the peers that can be found, for one thread count; ends their processes when destroyed.
class Peers {
 public:
  explicit Peers(int threads, const std::string& names = ".*");
  ~Peers();
  // The same on the first GPU. Of both only those whose name matches the regular expression.
  static Peers on_gpu(const std::string& names = ".*");
  Peers(Peers&&) noexcept;

  // Lets those that compile before they run do so for these works, in processes side by side, and calls
  // `tell` with a line for each that is ready. Readings need none of it: what was compiled is kept on disk,
  // and found there by the first of them.
  void prepare(const std::vector<std::pair<std::string, int64_t>>& works,
               const std::function<void(const std::string&)>& tell) const;

  // One candidate a peer.
  std::vector<Candidate> candidates(const std::string& work, int64_t batch) const;
  // All let go of what they hold for the works so far.
  void release() const;

  // Commands that make one step of the work in a new process, print a line and end: by the peer's name.
  std::map<std::string, std::vector<std::string>> first_step_commands(const std::string& work,
                                                                      int64_t batch) const;

  // A line for each framework: its version, or why it is missing.
  const std::vector<std::string>& inventory() const { return inventory_; }

 private:
  struct Command {
    std::string name;  // the framework's, or the one peer's that it is for
    std::vector<std::string> words;
    std::vector<std::string> to_serve = {"--serve"};  // further words, that make it answer requests
  };
  struct Process {
    std::unique_ptr<Child> child;
    Command command;
    std::map<std::string, std::vector<std::string>> works;  // of each peer in it
    std::vector<std::string> slow = {};                     // peers that compile before they run
    bool releases = false, once = false;                    // whether it knows that request, that option

    bool has(const std::string& peer, const std::string& work) const;
  };
  Peers(const std::vector<Command>& commands, std::string names);
  static Process started(const Command& command);

  std::string names_;
  std::vector<std::shared_ptr<Process>> processes_;
  std::vector<std::string> inventory_;
};

}  // namespace lockstep::bench
