// The plugin that stands in for a GPU: its memory is the host's and its kernels compute nothing, but the code
// that the library writes for GPUs is written, and compiled by NVRTC, as on a GPU.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/gpu_driver.h"

namespace lockstep::testing {

// What was made since the process began. One thread at a time.
struct Made {
  std::map<std::string, int> launches;  // of kernels that were compiled, by the name in the code
  std::vector<std::vector<std::string>> megakernels;  // of each the ops in it that have rules
  int groups = 0;                                     // launches of several elementwise programs
  int table_updates = 0;                              // launches
};

// The interface of the plugin.
class SourcesDriver : public GpuDriver {
 public:
  virtual const Made& made() const = 0;
  // Ops that have a rule for megakernels.
  virtual std::vector<std::string> ops_with_rules() const = 0;
  // As the library compiles what it has written: throws where it does not compile, or has no such kernel.
  virtual void compile(const std::string& source, const char* kernel) const = 0;
};

}  // namespace lockstep::testing
