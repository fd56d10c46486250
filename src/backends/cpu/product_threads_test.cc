#include "backends/cpu/product_threads.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::cpu {
namespace {

TEST(ProductThreads, AllOrOne) {
  EXPECT_EQ(threads_for_products(0, 8), 1);
  EXPECT_EQ(threads_for_products(16 * 64 * 64, 8), 1);
  EXPECT_EQ(threads_for_products(64 * 64 * 64, 8), 8);
  EXPECT_EQ(threads_for_products(std::numeric_limits<int64_t>::max(), 16), 16);
  EXPECT_EQ(threads_for_products(std::numeric_limits<int64_t>::max(), 1), 1);
}

}  // namespace
}  // namespace lockstep::cpu
