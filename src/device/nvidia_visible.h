// CUDA_VISIBLE_DEVICES: which GPUs it names, by CUDA's own rules, and why not the others.
//
// Numbers are read as far as they go ("1x" is 1) and count GPUs in CUDA's order; UUIDs may be cut short as
// long as they name one GPU. The first entry decides which of the two the list is of. What is not understood
// ends the list: what stands before it is visible, nothing after it. A GPU that is named twice hides all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::nvidia {

struct VisibleList {
  std::vector<int> gpus;  // positions in `uuids`, in the order in which CUDA numbers them
  // Why the list was not taken as it stands: "entry 2, \"7\": there are 2 GPUs, 0 to 1"; empty: it was.
  std::string fault;
};

// `value`: the variable's; none: it is not set. `uuids`: all GPUs in CUDA's order.
VisibleList visible_by_rule(const std::optional<std::string>& value, const std::vector<std::string>& uuids);

}  // namespace lockstep::nvidia
