// gather, scatter_add and one_hot on the CPU.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/array/lookup.h"

namespace lockstep {
namespace {

constexpr int64_t kBytesPerThread = 64 << 10;

int threads_for(int64_t bytes, int threads) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kBytesPerThread, 1, threads));
}

// int32 or int64 indices, and how to complain about one.
class Indices {
 public:
  Indices(const KernelRequest& request, int input)
      : wide_(request.dtype(input) == DType::int64),
        input_(input),
        shape_(request.shape(input)),
        count_(shape_.size()),
        op_(request.op.name),
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
        refuse(i, reader[i], limit);
    return reader;
  }

 private:
  [[noreturn]] void refuse(int64_t i, int64_t index, int64_t limit) const {
    Dims position = Dims::filled(shape_.rank(), 0);
    for (int d = shape_.rank() - 1; d >= 0; --d) {
      position[d] = i % shape_[d];
      i /= shape_[d];
    }
    fail(ErrorCode::invalid_argument, where_, op_, ": the index at position ", position, " is ", index,
         ", but there are ", limit, " rows",
         limit > 0 ? detail::concat(": indices run from 0 to ", limit - 1) : "");
  }

  bool wide_;
  int input_;
  Shape shape_;
  int64_t count_;
  std::string_view op_;
  std::source_location where_;
};

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const KernelRequest& request) : indices_(request, 1), threads_(request.threads) {
    const Shape& table = request.shape(0);
    const auto axis = static_cast<int>(request.attrs<GatherAttrs>().axis);
    rows_ = table[axis];
    for (int i = 0; i < axis; ++i) outer_ *= table[i];
    row_bytes_ = static_cast<int64_t>(size_of(request.dtype(0)));
    for (int i = axis + 1; i < table.rank(); ++i) row_bytes_ *= table[i];
  }

  void launch(const LaunchArgs& args) const override {
    if (outer_ * row_bytes_ == 0) return;
    const auto index = indices_.read_checked(args, rows_);
    const auto* table = static_cast<const char*>(args.inputs[0]);
    auto* out = static_cast<char*>(args.outputs[0]);
    const int64_t count = indices_.count();
    const int64_t items = outer_ * count;
    parallel_for(items, 1, threads_for(items * row_bytes_, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end;) {
        const int64_t outer = item / count;
        const int64_t last = std::min(end, (outer + 1) * count);
        const char* from = table + outer * rows_ * row_bytes_;
        switch (row_bytes_) {  // single elements are moved as such
          case 2: move<uint16_t>(from, out, index, item, last, outer * count); break;
          case 4: move<uint32_t>(from, out, index, item, last, outer * count); break;
          case 8: move<uint64_t>(from, out, index, item, last, outer * count); break;
          default:
            for (int64_t i = item; i < last; ++i)
              std::memcpy(out + i * row_bytes_, from + index[i - outer * count] * row_bytes_,
                          static_cast<size_t>(row_bytes_));
        }
        item = last;
      }
    });
  }

 private:
  template <class Element>
  static void move(const char* from, char* out, const Indices::Reader& index, int64_t begin, int64_t end,
                   int64_t first) {
    for (int64_t i = begin; i < end; ++i)
      reinterpret_cast<Element*>(out)[i] = reinterpret_cast<const Element*>(from)[index[i - first]];
  }

  Indices indices_;
  int threads_;
  int64_t outer_ = 1, rows_ = 0, row_bytes_ = 1;
};

// What sums of T are made in. Integers wrap around: unsigned ones have the same bits.
template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float,
                       std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                          std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>>;

template <class T>
class ScatterAddKernel final : public Kernel {
 public:
  explicit ScatterAddKernel(const KernelRequest& request)
      : indices_(request, 1), threads_(request.threads), rows_(request.attrs<ScatterAddAttrs>().rows) {
    const Shape& out = request.outputs[0].spec.shape;
    for (int i = 1; i < out.rank(); ++i) width_ *= out[i];
  }

  size_t workspace_bytes() const override {
    return kDirect ? 0 : static_cast<size_t>(rows_ * width_) * sizeof(A);
  }

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    const auto index = indices_.read_checked(args, rows_);
    const auto* values = static_cast<const T*>(args.inputs[0]);
    A* sums = static_cast<A*>(kDirect ? args.outputs[0] : args.workspace);
    // A thread owns some columns, or else some rows: no two add to one element, and each adds in the given order.
    constexpr int64_t kLine = 64 / sizeof(A);
    const int threads =
        threads_for((indices_.count() + rows_) * width_ * static_cast<int64_t>(sizeof(A)), threads_);
    if (width_ >= kLine * threads)
      parallel_for(width_, kLine, threads,
                   [&](int64_t begin, int64_t end) { add(values, index, sums, 0, rows_, begin, end); });
    else
      parallel_for(rows_, 1, threads,
                   [&](int64_t begin, int64_t end) { add(values, index, sums, begin, end, 0, width_); });
    if constexpr (!kDirect) {
      auto* out = static_cast<T*>(args.outputs[0]);
      parallel_for(rows_ * width_, kLine, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(sums[i]);
      });
    }
  }

 private:
  using A = Accumulator<T>;
  static constexpr bool kDirect = sizeof(A) == sizeof(T);

  void add(const T* values, const Indices::Reader& index, A* sums, int64_t first_row, int64_t last_row,
           int64_t first, int64_t last) const {
    for (int64_t r = first_row; r < last_row; ++r)
      std::fill(sums + r * width_ + first, sums + r * width_ + last, A(0));
    for (int64_t i = 0; i < indices_.count(); ++i) {
      const int64_t row = index[i];
      if (row < first_row || row >= last_row) continue;
      A* to = sums + row * width_;
      const T* from = values + i * width_;
      for (int64_t k = first; k < last; ++k) to[k] = static_cast<A>(to[k] + static_cast<A>(from[k]));
    }
  }

  Indices indices_;
  int threads_;
  int64_t rows_, width_ = 1;
};

class OneHotKernel final : public Kernel {
 public:
  explicit OneHotKernel(const KernelRequest& request)
      : indices_(request, 0),
        threads_(request.threads),
        depth_(request.attrs<OneHotAttrs>().depth),
        dtype_(request.attrs<OneHotAttrs>().dtype) {}

  void launch(const LaunchArgs& args) const override {
    const auto index = indices_.read(args);
    dispatch(dtype_, [&]<class T>() {
      T* out = static_cast<T*>(args.outputs[0]);
      const T one = static_cast<T>(1.0f);
      const int64_t bytes = indices_.count() * depth_ * static_cast<int64_t>(sizeof(T));
      parallel_for(indices_.count(), 1, threads_for(bytes, threads_), [&](int64_t begin, int64_t end) {
        if (depth_ > 0)
          std::memset(static_cast<void*>(out + begin * depth_), 0,
                      static_cast<size_t>((end - begin) * depth_) * sizeof(T));
        for (int64_t i = begin; i < end; ++i)
          if (index[i] >= 0 && index[i] < depth_) out[i * depth_ + index[i]] = one;
      });
    });
  }

 private:
  Indices indices_;
  int threads_;
  int64_t depth_;
  DType dtype_;
};

std::unique_ptr<Kernel> prepare_scatter_add(const KernelRequest& request) {
  return dispatch(request.dtype(0), [&]<class T>() -> std::unique_ptr<Kernel> {
    if constexpr (std::is_same_v<T, bool>)
      fail(ErrorCode::internal, request.where, "scatter_add: no sums of booleans");
    else
      return std::make_unique<ScatterAddKernel<T>>(request);
  });
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kGather, {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
       return std::make_unique<GatherKernel>(request);
     }}},
    {DeviceKind::cpu, kScatterAdd, {.prepare = prepare_scatter_add}},
    {DeviceKind::cpu, kOneHot, {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
       return std::make_unique<OneHotKernel>(request);
     }}}};

}  // namespace
}  // namespace lockstep
