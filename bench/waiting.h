// Whether other processes got in the way of a reading. Stands alone: the peers' programs include it too.
#pragma once

#include <dirent.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace lockstep::bench {

// Nanoseconds that the threads of this process were ready to run but had no core, as the kernel counts
// them; 0 where it does not.
inline int64_t waited_ns() {
  constexpr const char* kTasks = "/proc/self/task/";
  int64_t sum = 0;
  DIR* tasks = opendir(kTasks);
  if (tasks == nullptr) return 0;
  while (const dirent* task = readdir(tasks)) {
    int64_t ran = 0, waited = 0;
    if (std::ifstream(std::string(kTasks) + task->d_name + "/schedstat") >> ran >> waited) sum += waited;
  }
  closedir(tasks);
  return sum;
}

// A reading counts as disturbed where its threads waited for more than this part of it.
inline constexpr double kDisturbed = 0.02;

}  // namespace lockstep::bench
