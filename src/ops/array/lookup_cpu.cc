// gather, scatter_add and one_hot on the CPU.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/array/indices_cpu.h"
#include "ops/array/lookup.h"

namespace lockstep {
namespace {

using cpu::Accumulator;
using cpu::Indices;
using cpu::threads_for;

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const KernelRequest& request)
      : indices_(request, 1, {request.op.name, request.attrs<GatherAttrs>().labels}),
        threads_(request.threads) {
    const Shape &table = request.shape(0), &indices = request.shape(1);
    const auto axis = static_cast<int>(request.attrs<GatherAttrs>().axis);
    const auto batch_dims = static_cast<int>(request.attrs<GatherAttrs>().batch_dims);
    rows_ = table[axis];
    for (int i = 0; i < axis; ++i) (i < batch_dims ? batch_ : outer_) *= table[i];
    for (int i = batch_dims; i < indices.rank(); ++i) count_ *= indices[i];
    row_bytes_ = static_cast<int64_t>(size_of(request.dtype(0)));
    for (int i = axis + 1; i < table.rank(); ++i) row_bytes_ *= table[i];
  }

  void launch(const LaunchArgs& args) const override {
    if (batch_ * outer_ * row_bytes_ == 0) return;
    const auto index = indices_.read_checked(args, rows_);
    const auto* table = static_cast<const char*>(args.inputs[0]);
    auto* out = static_cast<char*>(args.outputs[0]);
    const int64_t items = batch_ * outer_ * count_;
    parallel_for(items, 1, threads_for(items * row_bytes_, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end;) {
        const int64_t group = item / count_;  // of results that read one table with one list of indices
        const int64_t last = std::min(end, (group + 1) * count_);
        const char* from = table + group * rows_ * row_bytes_;
        const int64_t first = (group - group / outer_) * count_;  // item i reads index i - first
        switch (row_bytes_) {                                     // single elements are moved as such
          case 2: move<uint16_t>(from, out, index, item, last, first); break;
          case 4: move<uint32_t>(from, out, index, item, last, first); break;
          case 8: move<uint64_t>(from, out, index, item, last, first); break;
          default:
            for (int64_t i = item; i < last; ++i)
              std::memcpy(out + i * row_bytes_, from + index[i - first] * row_bytes_,
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
  int64_t batch_ = 1, outer_ = 1, count_ = 1, rows_ = 0, row_bytes_ = 1;
};

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
    // A thread owns some columns, or else some rows: no two add to one element, and each adds in the given
    // order.
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
