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
  // `labels`: what errors call them.
  Indices(const KernelRequest& request, int input, bool labels = false)
      : wide_(request.dtype(input) == DType::int64),
        input_(input),
        shape_(request.shape(input)),
        count_(shape_.size()),
        op_(request.op.name),
        where_(request.where),
        labels_(labels) {}

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
        refuse(i, reader[i], limit);
    return reader;
  }

  // Where element number i of `shape` stands.
  static Dims position(const Shape& shape, int64_t i) {
    Dims place = Dims::filled(shape.rank(), 0);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      place[d] = i % shape[d];
      i /= shape[d];
    }
    return place;
  }

 private:
  [[noreturn]] void refuse(int64_t i, int64_t index, int64_t limit) const {
    fail(ErrorCode::invalid_argument, where_, labels_ ? "labels" : op_, ": the ", labels_ ? "label" : "index",
         " at position ", position(shape_, i), " is ", index_text(index), ", but there are ", limit,
         labels_ ? " classes" : " rows",
         limit > 0 ? detail::concat(labels_ ? ": labels" : ": indices", " run from 0 to ", limit - 1) : "");
  }

  bool wide_;
  int input_;
  Shape shape_;
  int64_t count_;
  std::string_view op_;
  std::source_location where_;
  bool labels_;
};

}  // namespace lockstep::cpu
