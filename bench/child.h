// A child process that speaks in lines of JSON: see peers/peers.py.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::bench {

class Child {
 public:
  // `name` is for messages. Throws Error(not_found) where the program cannot be started.
  Child(std::string name, const std::vector<std::string>& command);
  // Closes its input, which ends a child that is well, and kills one that is not.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void ask(const nlohmann::json& request);
  // The next line. Throws Error(io) where the child has ended, or says nothing for so long; it is killed
  // then, for a late answer would be taken for that to a later question.
  nlohmann::json receive(std::chrono::seconds patience);

 private:
  void close_pipes();

  std::string name_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string received_;
};

}  // namespace lockstep::bench
