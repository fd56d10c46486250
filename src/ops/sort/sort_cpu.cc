// Sorting and searching on the CPU, one thread per row.
//
// An element and its place become one integer that is ordered as they are, so that sorting is that of
// integers: by comparison where there are few, by digits where there are many.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/sort/sort.h"

namespace lockstep {
namespace {

constexpr int64_t kElementsPerThread = 4096;
constexpr int64_t kFewest = 512;  // by digits from here on
constexpr int64_t kFew = 16;      // the first of a row are few where it has so many times as many

template <class T>
using Order = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// An unsigned integer that is ordered as x: zeros are equal, NaN is the largest.
template <class T>
Order<T> ordered(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return ordered(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    using U = Order<T>;
    constexpr U kSign = U(1) << (8 * sizeof(U) - 1);
    if (std::isnan(x)) return ~U(0);
    const U bits = std::bit_cast<U>(x + T(0));  // -0 + 0 is 0
    return static_cast<U>(bits & kSign ? ~bits : bits | kSign);
  } else if constexpr (sizeof(T) == 1) {
    return static_cast<uint32_t>(x);
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<U>(static_cast<U>(x) ^ U(1) << (8 * sizeof(U) - 1));
  }
}

// The order in the upper bits and the place in the lower ones; twice as much where the order takes 64.
template <class U>
struct Item;
template <>
struct Item<uint32_t> {
  static constexpr int kDigits = 4;
  uint64_t both;
  Item() = default;
  Item(uint32_t order, uint32_t place) : both(static_cast<uint64_t>(order) << 32 | place) {}
  uint32_t place() const { return static_cast<uint32_t>(both); }
  size_t digit(int i) const { return both >> (32 + 8 * i) & 255; }
  bool operator<(const Item& other) const { return both < other.both; }
};
template <>
struct Item<uint64_t> {
  static constexpr int kDigits = 8;
  uint64_t order, at;
  Item() = default;
  Item(uint64_t o, uint32_t place) : order(o), at(place) {}
  uint32_t place() const { return static_cast<uint32_t>(at); }
  size_t digit(int i) const { return order >> (8 * i) & 255; }
  bool operator<(const Item& other) const {
    return order != other.order ? order < other.order : at < other.at;
  }
};

// Items stand in the order of their places, which sorting by digits keeps among equals. Returns the sorted
// half.
template <class I>
I* sort_by_digits(I* items, I* spare, int64_t n) {
  std::array<std::array<int64_t, 256>, I::kDigits> counts{};
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < I::kDigits; ++d) ++counts[static_cast<size_t>(d)][items[i].digit(d)];
  for (int d = 0; d < I::kDigits; ++d) {
    auto& count = counts[static_cast<size_t>(d)];
    if (count[items[0].digit(d)] == n) continue;  // one digit for all
    int64_t sum = 0;
    for (int64_t& c : count) sum += std::exchange(c, sum);
    for (int64_t i = 0; i < n; ++i) spare[count[items[i].digit(d)]++] = items[i];
    std::swap(items, spare);
  }
  return items;
}

template <class T>
class SortKernel final : public Kernel {
 public:
  explicit SortKernel(const KernelRequest& request)
      : attrs_(request.attrs<SortAttrs>()),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()),
        threads_(static_cast<int>(
            std::clamp<int64_t>(rows_ * n_ / kElementsPerThread, 1,
                                std::min<int64_t>(request.threads, std::max<int64_t>(rows_, 1))))) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_) * 2 * static_cast<size_t>(n_) * sizeof(I);
  }

  void launch(const LaunchArgs& args) const override {
    if (rows_ * n_ * attrs_.k == 0) return;
    parallel(threads_, [&](int thread) {
      I* items = static_cast<I*>(args.workspace) + 2 * n_ * thread;
      for (int64_t row = rows_ * thread / threads_; row < rows_ * (thread + 1) / threads_; ++row)
        sort_row(static_cast<const T*>(args.inputs[0]) + row * n_,
                 static_cast<T*>(args.outputs[0]) + row * attrs_.k,
                 static_cast<int32_t*>(args.outputs[1]) + row * attrs_.k, items);
    });
  }

 private:
  using U = decltype(ordered(std::declval<T>()));
  using I = Item<U>;

  void sort_row(const T* x, T* values, int32_t* places, I* items) const {
    const U flip = attrs_.descending ? ~U(0) : U(0);
    const auto item = [&](int64_t i) {
      return I(static_cast<U>(ordered(x[i]) ^ flip), static_cast<uint32_t>(i));
    };
    const int64_t k = attrs_.k;
    if (n_ >= kFew * k) {
      first_of_row(item, items);
    } else {
      for (int64_t i = 0; i < n_; ++i) items[i] = item(i);
      if (n_ >= kFewest) {
        items = sort_by_digits(items, items + n_, n_);
      } else {
        if (k < n_) std::nth_element(items, items + k, items + n_);
        std::sort(items, items + k);
      }
    }
    for (int64_t i = 0; i < k; ++i) {
      places[i] = static_cast<int32_t>(items[i].place());
      values[i] = x[items[i].place()];
    }
  }

  // The first k items of a row in their order. They are few: most elements are behind k others soon and are
  // read only. Those that are not are collected, and every time there are `most` all but k are dropped.
  template <class F>
  void first_of_row(F item, I* items) const {
    const int64_t k = attrs_.k, most = std::max<int64_t>(2 * k, 64);
    int64_t held = 0;
    I last(~U(0), ~uint32_t(0));  // behind all items
    for (int64_t i = 0; i < n_; ++i) {
      const I next = item(i);
      if (!(next < last)) continue;
      items[held++] = next;
      if (held < most) continue;
      std::nth_element(items, items + k - 1, items + held);
      held = k;
      last = items[k - 1];
    }
    std::nth_element(items, items + k - 1, items + held);
    std::sort(items, items + k);
  }

  SortAttrs attrs_;
  int64_t n_, rows_;
  int threads_;
};

template <class T>
class SearchKernel final : public Kernel {
 public:
  explicit SearchKernel(const KernelRequest& request)
      : right_(request.attrs<SearchsortedAttrs>().right),
        n_(request.shape(0)[-1]),
        m_(request.shape(1)[-1]),
        values_(request.shape(1).size()),
        threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    const auto* sorted = static_cast<const T*>(args.inputs[0]);
    const auto* values = static_cast<const T*>(args.inputs[1]);
    auto* out = static_cast<int32_t*>(args.outputs[0]);
    parallel_for(values_, kElementsPerThread, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = sorted + i / m_ * n_;
        const auto value = ordered(values[i]);
        const T* found = std::partition_point(row, row + n_, [&](const T& element) {
          return right_ ? !(value < ordered(element)) : ordered(element) < value;
        });
        out[i] = static_cast<int32_t>(found - row);
      }
    });
  }

 private:
  bool right_;
  int64_t n_, m_, values_;
  int threads_;
};

template <template <class> class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return dispatch(request.dtype(0), [&]<class T>() -> std::unique_ptr<Kernel> {
    if constexpr (std::is_same_v<T, bool>)
      fail(ErrorCode::internal, request.where, request.op.name, ": no order of booleans");
    else
      return std::make_unique<K<T>>(request);
  });
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kSort, {.prepare = prepare<SortKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kSearchsorted, {.prepare = prepare<SearchKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
