// ravel_multi_index and scatter_update on the CPU.
#include <cstring>

#include "base/parallel.h"
#include "ops/array/indices_cpu.h"
#include "ops/array/places.h"

namespace lockstep {
namespace {

using cpu::Indices;
using cpu::threads_for;

class RavelKernel final : public Kernel {
 public:
  explicit RavelKernel(const KernelRequest& request)
      : indices_(request, 0),
        shape_(request.attrs<ShapeAttrs>().shape),
        places_(request.outputs[0].spec.shape),
        count_(places_.size()),
        threads_(request.threads),
        where_(request.where) {}

  void launch(const LaunchArgs& args) const override {
    const auto index = indices_.read(args);
    auto* out = static_cast<int64_t*>(args.outputs[0]);
    const int dims = shape_.rank();
    parallel_for(count_, 1, threads_for(count_ * dims * 8, threads_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t number = 0;
        for (int d = 0; d < dims; ++d) {
          const int64_t at = index[i * dims + d];
          if (at < 0 || at >= shape_[d]) [[unlikely]]
            refuse(i, index);
          number = number * shape_[d] + at;
        }
        out[i] = number;
      }
    });
  }

 private:
  [[noreturn]] void refuse(int64_t i, const Indices::Reader& index) const {
    Dims place;
    for (int d = 0; d < shape_.rank(); ++d) place.push_back(index[i * shape_.rank() + d]);
    fail(ErrorCode::invalid_argument, where_, "ravel_multi_index: the place at position ",
         position_in(places_, i), " is ", place, ", which is not in ", shape_);
  }

  Indices indices_;
  Shape shape_, places_;
  int64_t count_;
  int threads_;
  std::source_location where_;
};

class ScatterUpdateKernel final : public Kernel {
 public:
  explicit ScatterUpdateKernel(const KernelRequest& request)
      : indices_(request, 2), threads_(request.threads) {
    const Shape& shape = request.shape(0);
    rows_ = shape[0];
    row_bytes_ = static_cast<int64_t>(size_of(request.dtype(0)));
    for (int i = 1; i < shape.rank(); ++i) row_bytes_ *= shape[i];
  }

  bool in_place(int input, int) const override { return input == 0; }

  void launch(const LaunchArgs& args) const override {
    if (row_bytes_ == 0) return;
    const auto index = indices_.read_checked(args, rows_);
    const auto* values = static_cast<const char*>(args.inputs[1]);
    auto* out = static_cast<char*>(args.outputs[0]);
    // A thread owns some rows: each of them is written in the given order.
    parallel_for(rows_, 1, threads_for((rows_ + indices_.count()) * row_bytes_, threads_),
                 [&](int64_t begin, int64_t end) {
                   if (args.outputs[0] != args.inputs[0])
                     std::memcpy(out + begin * row_bytes_,
                                 static_cast<const char*>(args.inputs[0]) + begin * row_bytes_,
                                 static_cast<size_t>((end - begin) * row_bytes_));
                   for (int64_t i = 0; i < indices_.count(); ++i)
                     if (index[i] >= begin && index[i] < end)
                       std::memcpy(out + index[i] * row_bytes_, values + i * row_bytes_,
                                   static_cast<size_t>(row_bytes_));
                 });
  }

 private:
  Indices indices_;
  int threads_;
  int64_t rows_ = 0, row_bytes_ = 0;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kRavelMultiIndex, {.prepare = prepare<RavelKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kScatterUpdate, {.prepare = prepare<ScatterUpdateKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
