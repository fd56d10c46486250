// Work that may hang or crash, done by a child of this process: what it wrote until then is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

struct ChildResult {
  std::string output;     // all that the child wrote, also where it came to no good end
  bool finished = false;  // the work returned
  bool ended = false;     // it returned, gave up or crashed; not where it was too slow, or never began
  std::string mishap;     // where not: "did not answer within 30 s", "died of signal 11 (Segmentation fault)"
};

// Calls work(write) in a forked child and waits. After `timeout_s` seconds the child is killed. The child has
// no thread but the one that calls `work`, and ends without destructors of statics or exit handlers; what
// `work` changes (the environment, loaded libraries) changes there alone. An exception that leaves `work` is
// a mishap.
ChildResult run_in_child(const std::function<void(const std::function<void(std::string_view)>& write)>& work,
                         double timeout_s);

}  // namespace lockstep
