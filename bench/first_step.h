// How long it takes from the start of a program to the end of its first training step.
#pragma once

#include <string>
#include <vector>

namespace lockstep::bench {

struct FirstStep {
  double cold_s = 0;   // with nothing compiled before: caches on disk are empty
  double again_s = 0;  // once more, with what the first run has left there
};

// `command` makes one step in a new process, prints a line of JSON and ends. Both runs have a folder of their
// own for what they compile, which is removed. Throws what went wrong.
FirstStep first_step(const std::string& name, const std::vector<std::string>& command);

}  // namespace lockstep::bench
