// What the CPU kernels that read rows by index share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "graph/kernel.h"
#include "ops/array/lookup.h"

namespace lockstep::cpu {

inline constexpr int64_t kBytesPerThread = 64 << 10;

inline int threads_for(int64_t bytes, int threads) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kBytesPerThread, 1, threads));
}

// What sums of T are made in. Integers wrap around: unsigned ones have the same bits.
template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
                       std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                          std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>>;

// int32 or int64 indices, and how to complain about one.
class Indices {
 public:
  Indices(const KernelRequest& request, int input) : Indices(request, input, {request.op.name}) {}
  Indices(const KernelRequest& request, int input, IndexName name)
      : wide_(request.dtype(input) == DType::int64),
        input_(input),
        shape_(request.shape(input)),
        count_(shape_.size()),
        name_(name),
        where_(request.where) {}

  int64_t count() const { return count_; }

  struct Reader {
    const void* data;
    bool wide;
    int64_t operator[](int64_t i) const {
      return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    }
  };
  Reader read(const LaunchArgs& args) const { return {args.inputs[input_], wide_}; }

  // All of them in [0, limit), or an Error for the first that is not.
  Reader read_checked(const LaunchArgs& args, int64_t limit) const {
    const Reader reader = read(args);
    for (int64_t i = 0; i < count_; ++i)
      if (reader[i] < 0 || reader[i] >= limit) [[unlikely]]
        refuse_index(name_, shape_, i, reader[i], limit, where_);
    return reader;
  }

 private:
  bool wide_;
  int input_;
  Shape shape_;
  int64_t count_;
  IndexName name_;
  std::source_location where_;
};

}  // namespace lockstep::cpu
