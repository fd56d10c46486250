#include "execute/all_reduce/tree_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "device/device_backend.h"
#include "lockstep/device/device.h"

namespace lockstep::execute {
namespace {

constexpr int64_t kSize = 1000;

// Addends whose sum depends on the order of additions, with `T`'s bits.
template <class T>
std::vector<T> addend(int replica) {
  std::vector<T> values;
  for (int64_t i = 0; i < kSize; ++i)
    values.push_back(static_cast<T>((1.0f + 0.37f * static_cast<float>(replica)) *
                                    static_cast<float>((i * 7919 + replica * 104729) % 1000 - 500) * 1e-3f));
  return values;
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& all) {
  std::vector<const void*> list;
  for (const auto& one : all) list.push_back(one.data());
  return list;
}

std::vector<TreeNode> leaves_of(TreeNode node) {
  std::vector<TreeNode> leaves;
  for (int r = node.first; r < node.last; ++r) leaves.push_back({r, r + 1});
  return leaves;
}

// Ranks that hold these numbers of replicas make partial sums, and one of them finishes the tree.
template <class T>
std::vector<T> in_two_stages(DType dtype, const std::vector<int>& held) {
  const int replicas = std::accumulate(held.begin(), held.end(), 0);
  Device& cpu = device_by_name("/CPU:0");
  Stream& stream = backend_of(cpu).compute_stream();
  std::vector<std::vector<float>> partials;
  std::vector<TreeNode> nodes;
  for (int first = 0; const int count : held) {
    for (const TreeNode& node : largest_nodes(replicas, first, first + count)) {
      std::vector<std::vector<T>> addends;
      for (int r = node.first; r < node.last; ++r) addends.push_back(addend<T>(r));
      partials.emplace_back(kSize);
      nodes.push_back(node);
      const TreeSum sum{.dtype = dtype,
                        .target_dtype = DType::float32,
                        .size = kSize,
                        .addends = pointers(addends),
                        .target = partials.back().data()};
      TreeKernels(cpu, {&sum, 1}, replicas, leaves_of(node)).launch(stream);
    }
    first += count;
  }
  std::vector<T> result(kSize);
  const TreeSum rest{.dtype = DType::float32,
                     .target_dtype = dtype,
                     .size = kSize,
                     .addends = pointers(partials),
                     .target = result.data()};
  TreeKernels(cpu, {&rest, 1}, replicas, nodes).launch(stream);
  return result;
}

template <class T>
std::vector<T> at_once(DType dtype, int replicas) {
  std::vector<std::vector<T>> addends;
  for (int r = 0; r < replicas; ++r) addends.push_back(addend<T>(r));
  std::vector<T> result(kSize);
  void* const target = result.data();
  sum_in_tree_order(dtype, replicas, leaves_of({0, replicas}), pointers(addends).data(), {&target, 1}, 0,
                    kSize);
  return result;
}

template <class T>
void expect_same_bits(DType dtype) {
  for (const std::vector<int>& held : {std::vector{8},
                                       {4, 4},
                                       {3, 3, 2},
                                       {2, 2, 2, 2},
                                       {1, 1, 1, 1, 1, 1, 1, 1},
                                       {5, 3},
                                       {0, 8},
                                       {3},
                                       {2, 1}}) {
    const int replicas = std::accumulate(held.begin(), held.end(), 0);
    const std::vector<T> stages = in_two_stages<T>(dtype, held), whole = at_once<T>(dtype, replicas);
    for (size_t i = 0; i < stages.size(); ++i)
      ASSERT_EQ(0, std::memcmp(static_cast<const void*>(&stages[i]), static_cast<const void*>(&whole[i]),
                               sizeof(T)))
          << "element " << i << " of " << held.size() << " ranks";
  }
}

TEST(TreeKernels, PartialSumsMakeTheBitsOfTheWholeTree) {
  expect_same_bits<float>(DType::float32);
  expect_same_bits<BFloat16>(DType::bfloat16);
  expect_same_bits<Float16>(DType::float16);
}

}  // namespace
}  // namespace lockstep::execute
