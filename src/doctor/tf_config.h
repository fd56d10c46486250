// The environment variable TF_CONFIG: the machines of a run, and this one's place among them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::doctor {

// What is wrong with it, one line each; none: nothing. Addresses are not looked up.
std::vector<std::string> tf_config_faults(std::string_view text);

}  // namespace lockstep::doctor
