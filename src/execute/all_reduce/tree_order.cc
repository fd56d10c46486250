#include "execute/all_reduce/tree_order.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::execute {

int tree_middle(TreeNode node) {
  return node.first + static_cast<int>(std::bit_ceil(static_cast<unsigned>(node.last - node.first)) / 2);
}

namespace {

void collect(TreeNode node, int first, int last, std::vector<TreeNode>& out) {
  if (node.first >= last || node.last <= first) return;
  if (node.first >= first && node.last <= last) {
    out.push_back(node);
    return;
  }
  const int middle = tree_middle(node);
  collect({node.first, middle}, first, last, out);
  collect({middle, node.last}, first, last, out);
}

constexpr int64_t kBlock = 1024;  // elements added at a time: stays in the first cache

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

template <class T>
struct TreeSum {
  std::span<const TreeNode> nodes;
  const void* const* addends;
  bool all_partial = false;

  // The sum below `node` for `n` elements from `begin`: in `buffer`, or where it lies already. Null where no
  // addend lies there.
  const Accumulator<T>* sum(TreeNode node, int64_t begin, int64_t n, Accumulator<T>* buffer) const {
    const auto held = std::find(nodes.begin(), nodes.end(), node);
    if (held != nodes.end()) {
      const void* addend = addends[held - nodes.begin()];
      if (std::is_same_v<T, Accumulator<T>> || all_partial || node.last - node.first > 1)
        return static_cast<const Accumulator<T>*>(addend) + begin;
      const T* source = static_cast<const T*>(addend) + begin;
      for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<Accumulator<T>>(source[i]);
      return buffer;
    }
    if (node.last - node.first <= 1) return nullptr;
    const int middle = tree_middle(node);
    const Accumulator<T>* left = sum({node.first, middle}, begin, n, buffer);
    if (!left) return sum({middle, node.last}, begin, n, buffer);
    Accumulator<T> other[kBlock];
    const Accumulator<T>* right = sum({middle, node.last}, begin, n, other);
    if (!right) return left;
    for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<Accumulator<T>>(left[i] + right[i]);
    return buffer;
  }
};

void store(char* target, const char* block, size_t bytes, Stores stores) {
#if defined(__x86_64__)
  constexpr size_t kWidth = sizeof(__m128i);
  if (stores == Stores::streaming && reinterpret_cast<uintptr_t>(target) % kWidth == 0) {
    for (; bytes >= kWidth; bytes -= kWidth, block += kWidth, target += kWidth)
      _mm_stream_si128(reinterpret_cast<__m128i*>(target),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
  }
#else
  static_cast<void>(stores);
#endif
  std::memcpy(target, block, bytes);
}

// `Target`: what the sum is stored as.
template <class T, class Target>
void sum_blocks(int leaves, const TreeSum<T>& tree, std::span<void* const> targets, int64_t begin,
                int64_t end, Stores stores) {
  alignas(64) Accumulator<T> block[kBlock];
  alignas(64) Target rounded[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const Accumulator<T>* sum = tree.sum({0, leaves}, at, n, block);
    const void* values = sum;
    if constexpr (!std::is_same_v<Target, Accumulator<T>>) {
      for (int64_t i = 0; i < n; ++i) rounded[i] = static_cast<Target>(sum[i]);
      values = rounded;
    }
    for (void* target : targets)
      store(reinterpret_cast<char*>(static_cast<Target*>(target) + at), static_cast<const char*>(values),
            static_cast<size_t>(n) * sizeof(Target), stores);
  }
#if defined(__x86_64__)
  if (stores == Stores::streaming) _mm_sfence();
#endif
}

void check_has_sum(DType dtype) {
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, std::source_location::current(),
          "all_reduce_sum: booleans have no sum; cast() them first");
}

}  // namespace

size_t partial_size(DType dtype) {
  return dispatch(dtype, []<class T>() { return sizeof(Accumulator<T>); });
}

std::vector<TreeNode> largest_nodes(int leaves, int first, int last) {
  std::vector<TreeNode> result;
  collect({0, leaves}, first, last, result);
  return result;
}

void sum_in_tree_order(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                       std::span<void* const> targets, int64_t begin, int64_t end, Stores stores) {
  check_has_sum(dtype);
  dispatch(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      sum_blocks<T, T>(leaves, {nodes, addends}, targets, begin, end, stores);
  });
}

void sum_of_partials(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                     std::span<void* const> targets, int64_t begin, int64_t end) {
  check_has_sum(dtype);
  dispatch(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      sum_blocks<T, T>(leaves, {nodes, addends, true}, targets, begin, end, Stores::cached);
  });
}

void sum_partially(DType dtype, int leaves, std::span<const TreeNode> nodes, const void* const* addends,
                   void* target, int64_t begin, int64_t end) {
  check_has_sum(dtype);
  dispatch(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      sum_blocks<T, Accumulator<T>>(leaves, {nodes, addends}, {&target, 1}, begin, end, Stores::cached);
  });
}

}  // namespace lockstep::execute
