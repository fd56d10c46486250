#include "backends/cpu/product_threads.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::cpu {
namespace {

TEST(ProductThreads, AsManyAsTheWorkIsWorth) {
  EXPECT_EQ(threads_for_products(0, 8), 1);
  EXPECT_EQ(threads_for_products(16 * 64 * 64, 8), 1);
  EXPECT_EQ(threads_for_products(64 * 64 * 256, 8), 8);
  EXPECT_EQ(threads_for_products(64 * 64 * 128, 8), 4);
  EXPECT_EQ(threads_for_products(64 * 64 * 128, 2), 2);
  EXPECT_EQ(threads_for_products(std::numeric_limits<int64_t>::max(), 16), 16);
}

}  // namespace
}  // namespace lockstep::cpu
