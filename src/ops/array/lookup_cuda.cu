// gather, scatter_update, one_hot, ravel_multi_index and range on GPUs.
#include <bit>

#include "backends/cuda/elements.h"
#include "ops/array/indices_cuda.h"
#include "ops/array/lookup.h"
#include "ops/array/places.h"
#include "ops/array/range.h"

namespace lockstep::cuda {
namespace {

// --- gather ------------------------------------------------------------------------------------------------

// Results are [batch, outer, count] rows of `row` units; those of one batch read the same `count` indices.
template <class Unit>
__global__ void gather(const Unit* table, Indices::Reader indices, Unit* out, int64_t units, Divider row,
                       Divider count, Divider outer, int64_t rows) {
  for (int64_t u = first_index(); u < units; u += index_step()) {
    const int64_t item = row.quotient(u), group = count.quotient(item), batch = outer.quotient(group);
    const int64_t index = indices[item - (group - batch) * count.divisor()];
    out[u] = index < 0 ? Unit{} : table[(group * rows + index) * row.divisor() + (u - item * row.divisor())];
  }
}

class GatherKernel final : public Kernel {
 public:
  explicit GatherKernel(const KernelRequest& request)
      : indices_(request, 1, request.shape(0)[static_cast<int>(request.attrs<GatherAttrs>().axis)],
                 {request.op.name, request.attrs<GatherAttrs>().labels}) {
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
    const int64_t bytes = batch_ * outer_ * count_ * row_bytes_;
    if (bytes == 0) return;
    const size_t unit = unit_of_rows(row_bytes_, {args.inputs[0], args.outputs[0]});
    const auto width = static_cast<int64_t>(unit);
    dispatch_bytes(unit, [&]<class Unit>() {
      gather<<<blocks_for(bytes / width), kThreads, 0, stream_of(args)>>>(
          static_cast<const Unit*>(args.inputs[0]), indices_.read(args), static_cast<Unit*>(args.outputs[0]),
          bytes / width, Divider(row_bytes_ / width), Divider(count_), Divider(outer_), rows_);
    });
    launched();
  }

 private:
  Indices indices_;
  int64_t batch_ = 1, outer_ = 1, count_ = 1, rows_ = 0, row_bytes_ = 1;
};

// --- scatter_update ----------------------------------------------------------------------------------------

// Of the values for one row the last is kept: winners hold 1 + its number, 0 where there is none.
__global__ void find_winners(Indices::Reader indices, int64_t count, unsigned long long* winners) {
  for (int64_t i = first_index(); i < count; i += index_step())
    if (const int64_t row = indices[i]; row >= 0)
      atomicMax(&winners[row], static_cast<unsigned long long>(i + 1));
}

template <class Unit>
__global__ void replace_rows(const Unit* x, const Unit* values, const unsigned long long* winners, Unit* out,
                             int64_t units, Divider row) {
  for (int64_t u = first_index(); u < units; u += index_step()) {
    const int64_t r = row.quotient(u), winner = static_cast<int64_t>(winners[r]);
    if (winner > 0)
      out[u] = values[(winner - 1) * row.divisor() + (u - r * row.divisor())];
    else if (out != x)
      out[u] = x[u];
  }
}

class ScatterUpdateKernel final : public Kernel {
 public:
  explicit ScatterUpdateKernel(const KernelRequest& request)
      : indices_(request, 2, request.shape(0)[0]), rows_(request.shape(0)[0]) {
    row_bytes_ = static_cast<int64_t>(size_of(request.dtype(0)));
    for (int i = 1; i < request.shape(0).rank(); ++i) row_bytes_ *= request.shape(0)[i];
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(rows_) * sizeof(uint64_t); }
  bool in_place(int input, int) const override { return input == 0; }

  void launch(const LaunchArgs& args) const override {
    if (row_bytes_ == 0) return;
    const cudaStream_t stream = stream_of(args);
    auto* winners = static_cast<unsigned long long*>(args.workspace);
    if (rows_ > 0) check(cudaMemsetAsync(winners, 0, workspace_bytes(), stream), "cudaMemsetAsync");
    if (indices_.count() > 0)
      find_winners<<<blocks_for(indices_.count()), kThreads, 0, stream>>>(indices_.read(args),
                                                                          indices_.count(), winners);
    if (rows_ > 0) {
      const size_t unit = unit_of_rows(row_bytes_, {args.inputs[0], args.inputs[1], args.outputs[0]});
      const auto width = static_cast<int64_t>(unit);
      dispatch_bytes(unit, [&]<class Unit>() {
        replace_rows<<<blocks_for(rows_ * row_bytes_ / width), kThreads, 0, stream>>>(
            static_cast<const Unit*>(args.inputs[0]), static_cast<const Unit*>(args.inputs[1]), winners,
            static_cast<Unit*>(args.outputs[0]), rows_ * row_bytes_ / width, Divider(row_bytes_ / width));
      });
    }
    launched();
  }

 private:
  Indices indices_;
  int64_t rows_, row_bytes_ = 1;
};

// --- one_hot -----------------------------------------------------------------------------------------------

template <class Unit>
__global__ void one_hot(IndexReader indices, Unit* out, int64_t elements, Divider depth, Unit one) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t row = depth.quotient(i);
    out[i] = indices[row] == i - row * depth.divisor() ? one : Unit(0);
  }
}

class OneHotKernel final : public Kernel {
 public:
  explicit OneHotKernel(const KernelRequest& request)
      : wide_(request.dtype(0) == DType::int64),
        depth_(request.attrs<OneHotAttrs>().depth),
        elements_(request.outputs[0].spec.shape.size()),
        dtype_(request.attrs<OneHotAttrs>().dtype) {}

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    dispatch(dtype_, [&]<class T>() {
      using Unit =
          std::conditional_t<sizeof(T) == 8, uint64_t,
                             std::conditional_t<sizeof(T) == 4, uint32_t,
                                                std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
      one_hot<<<blocks_for(elements_), kThreads, 0, stream_of(args)>>>(
          IndexReader{args.inputs[0], wide_}, static_cast<Unit*>(args.outputs[0]), elements_, Divider(depth_),
          std::bit_cast<Unit>(static_cast<T>(1.0f)));
    });
    launched();
  }

 private:
  bool wide_;
  int64_t depth_, elements_;
  DType dtype_;
};

// --- ravel_multi_index -------------------------------------------------------------------------------------

struct Extents {
  int rank;
  int64_t size[kMaxRank];
};

__global__ void ravel(IndexReader indices, int64_t* out, int64_t count, Extents extents,
                      DeferredError* error) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    int64_t number = 0;
    for (int d = 0; d < extents.rank; ++d) {
      const int64_t at = indices[i * extents.rank + d];
      if (at < 0 || at >= extents.size[d])
        defer_error(error, i, extents.rank, [&](int k) { return indices[i * extents.rank + k]; });
      number = number * extents.size[d] + at;
    }
    out[i] = number;
  }
}

class RavelKernel final : public Kernel {
 public:
  explicit RavelKernel(const KernelRequest& request)
      : wide_(request.dtype(0) == DType::int64),
        count_(request.outputs[0].spec.shape.size()),
        errors_([places = request.outputs[0].spec.shape, shape = request.attrs<ShapeAttrs>().shape,
                 where = request.where](const DeferredError& error) {
          Dims place;
          for (int d = 0; d < shape.rank(); ++d) place.push_back(error.values[d]);
          fail(ErrorCode::invalid_argument, where, "ravel_multi_index: the place at position ",
               position_in(places, error.position), " is ", place, ", which is not in ", shape);
        }) {
    static_assert(kMaxRank <= DeferredError::kMost);
    const Shape& shape = request.attrs<ShapeAttrs>().shape;
    extents_.rank = shape.rank();
    for (int d = 0; d < shape.rank(); ++d) extents_.size[d] = shape[d];
  }

  void launch(const LaunchArgs& args) const override {
    if (count_ == 0) return;
    ravel<<<blocks_for(count_), kThreads, 0, stream_of(args)>>>(IndexReader{args.inputs[0], wide_},
                                                                static_cast<int64_t*>(args.outputs[0]),
                                                                count_, extents_, errors_.on(args.stream));
    launched();
  }

 private:
  bool wide_;
  int64_t count_;
  Extents extents_;
  DeferredErrors errors_;
};

// --- range -------------------------------------------------------------------------------------------------

__global__ void range(void* out, DType dtype, double start, double delta, double last, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    // Rounded twice, as on the host.
    const double value = i == count - 1 ? last : __dadd_rn(start, __dmul_rn(static_cast<double>(i), delta));
    const auto whole = static_cast<int64_t>(value);
    const auto single = static_cast<float>(value);
    switch (dtype) {
      case DType::float32: static_cast<float*>(out)[i] = single; break;
      case DType::float64: static_cast<double*>(out)[i] = value; break;
      case DType::bfloat16: static_cast<__nv_bfloat16*>(out)[i] = static_cast<__nv_bfloat16>(single); break;
      case DType::float16: static_cast<__half*>(out)[i] = static_cast<__half>(single); break;
      case DType::int32: static_cast<int32_t*>(out)[i] = static_cast<int32_t>(whole); break;
      case DType::int64: static_cast<int64_t*>(out)[i] = whole; break;
      case DType::uint8: static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(whole); break;
      case DType::boolean: static_cast<bool*>(out)[i] = whole != 0; break;
    }
  }
}

class RangeKernel final : public Kernel {
 public:
  explicit RangeKernel(const KernelRequest& request) : attrs_(request.attrs<RangeAttrs>()) {}
  void launch(const LaunchArgs& args) const override {
    if (attrs_.count == 0) return;
    range<<<blocks_for(attrs_.count), kThreads, 0, stream_of(args)>>>(
        args.outputs[0], attrs_.dtype, attrs_.start, attrs_.delta, attrs_.last, attrs_.count);
    launched();
  }

 private:
  RangeAttrs attrs_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kGather, {.prepare = prepare<GatherKernel>}},
    {DeviceKind::gpu, kScatterUpdate, {.prepare = prepare<ScatterUpdateKernel>}},
    {DeviceKind::gpu, kOneHot, {.prepare = prepare<OneHotKernel>}},
    {DeviceKind::gpu, kRavelMultiIndex, {.prepare = prepare<RavelKernel>}},
    {DeviceKind::gpu, kRange, {.prepare = prepare<RangeKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
