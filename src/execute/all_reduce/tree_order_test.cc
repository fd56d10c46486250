#include "execute/all_reduce/tree_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {
namespace {

void sum_into(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
              void* target, int64_t begin, int64_t end) {
  sum_in_tree_order(dtype, leaves, nodes, addends, {&target, 1}, begin, end);
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DType kNumbers[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                              DType::int32,   DType::int64,   DType::uint8};

TEST(SummationTree, DividesAtThePowerOfTwo) {
  EXPECT_EQ(tree_middle({0, 8}), 4);
  EXPECT_EQ(tree_middle({0, 5}), 4);
  EXPECT_EQ(tree_middle({4, 7}), 6);
  EXPECT_EQ(tree_middle({6, 8}), 7);
  for (int n = 2; n <= 33; ++n) {
    const int middle = tree_middle({0, n});
    EXPECT_GT(middle, 0);
    EXPECT_LT(middle, n);
  }
}

TEST(SummationTree, LargestNodesOfARange) {
  EXPECT_THAT(largest_nodes(8, 0, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(largest_nodes(8, 0, 3), ElementsAre(TreeNode{0, 2}, TreeNode{2, 3}));
  EXPECT_THAT(largest_nodes(8, 3, 6), ElementsAre(TreeNode{3, 4}, TreeNode{4, 6}));
  EXPECT_THAT(largest_nodes(8, 6, 8), ElementsAre(TreeNode{6, 8}));
  EXPECT_THAT(largest_nodes(8, 2, 2), IsEmpty());
}

TEST(SummationTree, LargestNodesCoverTheirRangeOnce) {
  for (int leaves = 1; leaves <= 16; ++leaves)
    for (int first = 0; first <= leaves; ++first)
      for (int last = first; last <= leaves; ++last) {
        int next = first;
        for (const TreeNode& node : largest_nodes(leaves, first, last)) {
          ASSERT_EQ(node.first, next);
          ASSERT_GT(node.last, node.first);
          next = node.last;
        }
        ASSERT_EQ(next, last);
      }
}

// Values of every leaf, as bytes of the dtype. Floats of very different sizes, so that every order of
// additions rounds differently.
std::vector<std::vector<char>> random_leaves(DType dtype, int leaves, int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-6, 6);
  std::vector<std::vector<char>> all;
  for (int leaf = 0; leaf < leaves; ++leaf) {
    std::vector<char> bytes(static_cast<size_t>(size) * size_of(dtype));
    dispatch(dtype, [&]<class T>() {
      for (int64_t i = 0; i < size; ++i) {
        T value{};
        if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
          value = T(static_cast<float>(std::ldexp(normal(random), exponent(random))));
        else if constexpr (std::is_floating_point_v<T>)
          value = static_cast<T>(std::ldexp(normal(random), exponent(random)));
        else
          value = static_cast<T>(random() % 1000);
        std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
      }
    });
    all.push_back(std::move(bytes));
  }
  return all;
}

// The sum as `devices` devices make it: each sums its own leaves, then the rest is added in the tree's
// order. Leaves from `used` on are empty.
std::vector<char> sum_over(DType dtype, const std::vector<std::vector<char>>& leaves,
                           const std::vector<int>& boundaries, int used, int64_t size) {
  const int count = static_cast<int>(leaves.size());
  std::vector<TreeNode> nodes;
  std::vector<std::vector<char>> partials;
  for (size_t d = 0; d + 1 < boundaries.size(); ++d)
    for (const TreeNode& node :
         largest_nodes(count, std::min(boundaries[d], used), std::min(boundaries[d + 1], used))) {
      std::vector<TreeNode> own;
      std::vector<const void*> addends;
      for (int leaf = node.first; leaf < node.last; ++leaf) {
        own.push_back({leaf, leaf + 1});
        addends.push_back(leaves[static_cast<size_t>(leaf)].data());
      }
      nodes.push_back(node);
      if (own.size() == 1) {
        partials.push_back(leaves[static_cast<size_t>(node.first)]);
        continue;
      }
      std::vector<char> partial(static_cast<size_t>(size) * partial_size(dtype));
      sum_partially(dtype, count, own, addends.data(), partial.data(), 0, size);
      partials.push_back(std::move(partial));
    }
  std::vector<const void*> addends;
  for (const auto& partial : partials) addends.push_back(partial.data());
  std::vector<char> result(static_cast<size_t>(size) * size_of(dtype));
  sum_into(dtype, count, nodes, addends.data(), result.data(), 0, size);
  return result;
}

// The boundaries of every way to give `leaves` consecutive leaves to 1, 2, 3, ... devices as evenly as
// devices do.
std::vector<std::vector<int>> all_splits(int leaves) {
  std::vector<std::vector<int>> splits;
  for (int devices = 1; devices <= leaves; ++devices) {
    std::vector<int> boundaries = {0};
    for (int d = 0; d < devices; ++d)
      boundaries.push_back(boundaries.back() + leaves / devices + (d < leaves % devices ? 1 : 0));
    splits.push_back(boundaries);
  }
  return splits;
}

TEST(ReplicaSum, TheBitsDoNotDependOnWhoHoldsWhichLeaf) {
  constexpr int64_t kSize = 37;
  for (const DType dtype : kNumbers)
    for (int count = 1; count <= 16; ++count) {
      const auto leaves = random_leaves(dtype, count, kSize, static_cast<unsigned>(count));
      for (int used = 1; used <= count; used += used < 3 ? 1 : 3) {
        std::vector<TreeNode> single;
        std::vector<const void*> addends;
        for (int leaf = 0; leaf < used; ++leaf) {
          single.push_back({leaf, leaf + 1});
          addends.push_back(leaves[static_cast<size_t>(leaf)].data());
        }
        std::vector<char> expected(kSize * size_of(dtype));
        sum_into(dtype, count, single, addends.data(), expected.data(), 0, kSize);
        for (const auto& split : all_splits(count))
          ASSERT_EQ(sum_over(dtype, leaves, split, used, kSize), expected)
              << dtype << ", " << used << " of " << count << " leaves on " << split.size() - 1 << " devices";
      }
    }
}

TEST(ReplicaSum, IsTheSum) {
  constexpr int64_t kSize = 5000;  // more than one block
  for (int count = 1; count <= 16; ++count) {
    const auto leaves = random_leaves(DType::float64, count, kSize, 9);
    const std::vector<char> bytes = sum_over(DType::float64, leaves, {0, count}, count, kSize);
    for (int64_t i = 0; i < kSize; i += 7) {
      double expected = 0, actual = 0, scale = 0;
      for (const auto& leaf : leaves) {
        double value = 0;
        std::memcpy(&value, leaf.data() + i * 8, 8);
        expected += value;
        scale += std::abs(value);
      }
      std::memcpy(&actual, bytes.data() + i * 8, 8);
      ASSERT_NEAR(actual, expected, 1e-14 * scale) << count << " leaves, element " << i;
    }
  }
}

TEST(ReplicaSum, IntegersWrapAround) {
  const std::vector<uint8_t> a = {200, 1}, b = {100, 2};
  const std::vector<TreeNode> nodes = {{0, 1}, {1, 2}};
  const void* addends[] = {a.data(), b.data()};
  std::vector<uint8_t> sum(2);
  sum_into(DType::uint8, 2, nodes, addends, sum.data(), 0, 2);
  EXPECT_THAT(sum, ElementsAre(44, 3));
}

TEST(ReplicaSum, WritesItsRangeAlone) {
  const std::vector<float> a(3000, 1), b(3000, 2);
  const std::vector<TreeNode> nodes = {{0, 1}, {1, 2}};
  const void* addends[] = {a.data(), b.data()};
  std::vector<float> sum(3000, -1);
  sum_into(DType::float32, 2, nodes, addends, sum.data(), 10, 2500);
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], i >= 10 && i < 2500 ? 3 : -1) << i;
  sum_into(DType::float32, 2, nodes, addends, sum.data(), 7, 7);
  EXPECT_EQ(sum[7], -1);
}

TEST(ReplicaSum, TheTargetMayBeAnAddend) {
  std::vector<float> a = {1, 2}, b = {10, 20}, c = {100, 200};
  const std::vector<TreeNode> nodes = {{0, 1}, {1, 2}, {2, 3}};
  const void* addends[] = {a.data(), b.data(), c.data()};
  sum_into(DType::float32, 3, nodes, addends, b.data(), 0, 2);
  EXPECT_THAT(b, ElementsAre(111, 222));
}

TEST(ReplicaSum, BooleansHaveNoSum) {
  try {
    sum_in_tree_order(DType::boolean, 1, {}, nullptr, {}, 0, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::dtype_mismatch);
    EXPECT_THAT(error.message(), HasSubstr("all_reduce_sum"));
  }
}

TEST(ReplicaSum, GoesToEveryTargetAlsoPastTheCaches) {
  constexpr int64_t kSize = 3001;
  const std::vector<TreeNode> nodes = {{0, 1}, {1, 2}};
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64, DType::int64}) {
    const Tensor a = cast(range(kSize, DType::float32), dtype), b = cast(range(kSize, DType::float32), dtype);
    const void* addends[] = {a.impl()->data(), b.impl()->data()};
    const Tensor expected = a + b;
    const Tensor one = zeros_like(a), other = zeros_like(a);
    void* const targets[] = {one.impl()->data(), other.impl()->data()};
    // From the middle of a line on, so that some stores are not aligned.
    sum_in_tree_order(dtype, 2, nodes, addends, targets, 1, 64, Stores::streaming);
    sum_in_tree_order(dtype, 2, nodes, addends, targets, 64, kSize, Stores::streaming);
    for (const Tensor& result : {one, other})
      EXPECT_EQ(std::memcmp(result.impl()->data(), expected.impl()->data(), expected.spec().bytes()), 0)
          << name(dtype);
  }
}

}  // namespace
}  // namespace lockstep::execute
