#include <gtest/gtest.h>

#include "workers/processes.h"

int main(int argc, char** argv) {
  if (const int status = lockstep::testing::run_as_worker(argc, argv); status >= 0) return status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
