// The environment variable TF_CONFIG: the machines of a run, and this one's place among them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

// What is wrong with it, one line each; empty: nothing. Addresses are not looked up.
std::vector<std::string> tf_config_faults(std::string_view text);

// What it says, where it has no faults. TensorFlow takes one without a cluster for a process that is alone:
// so does this.
struct TfConfig {
  std::vector<std::string> addresses;  // the chief's, then the workers'; empty: this process is alone
  std::string task;                    // "worker 1"
  int rank = 0;                        // this task's among the addresses
  bool evaluator = false;              // then it has no rank
};
TfConfig parse_tf_config(std::string_view text);

}  // namespace lockstep::comm
