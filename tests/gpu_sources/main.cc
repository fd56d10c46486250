#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lockstep/device/config.h"

int main(int argc, char** argv) {
  // Before the library looks for plugins. Code that has compiled once is kept in a folder of the build's, so
  // that the next run compiles what was written differently.
  if (const std::string folder = LOCKSTEP_SOURCES_PLUGIN; !folder.empty()) {
    setenv("LOCKSTEP_PLUGIN_PATH", folder.c_str(), 1);
    setenv("XDG_CACHE_HOME", (folder + "/kept").c_str(), 1);
  }
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::config::threading::set_intra_op_parallelism_threads(1);
  return RUN_ALL_TESTS();
}
