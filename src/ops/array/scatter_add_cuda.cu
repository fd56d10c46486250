// scatter_add on GPUs. Little work is done directly.
#include <optional>

#include "ops/array/lookup.h"
#include "ops/array/row_sums_cuda.h"

namespace lockstep::cuda {
namespace {

// One thread per element of the result.
template <class T>
__global__ void add_directly(const T* values, Indices::Reader indices, int64_t count, T* out,
                             int64_t elements, Divider width) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t row = width.quotient(i), column = i - row * width.divisor();
    Sum<T> sum = 0;
    for (int64_t k = 0; k < count; ++k)
      if (indices[k] == row) sum += static_cast<Sum<T>>(values[k * width.divisor() + column]);
    out[i] = static_cast<T>(sum);
  }
}

__global__ void note_all(Indices::Reader indices, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) indices[i];
}

class ScatterAddKernel final : public Kernel {
 public:
  explicit ScatterAddKernel(const KernelRequest& request)
      : indices_(request, 1, request.attrs<ScatterAddAttrs>().rows),
        dtype_(request.dtype(0)),
        rows_(request.attrs<ScatterAddAttrs>().rows) {
    const Shape& out = request.outputs[0].spec.shape;
    for (int i = 1; i < out.rank(); ++i) width_ *= out[i];
    const int64_t count = indices_.count();
    constexpr int64_t kFew = 256, kLittle = 1 << 22;
    if (count > 0 && (count > kFew || count * rows_ * width_ > kLittle))
      sums_.emplace(count, rows_, width_, request.where);
  }

  size_t workspace_bytes() const override { return sums_ ? sums_->workspace_bytes() : 0; }

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    if (rows_ == 0 && indices_.count() > 0)  // none of them exists
      note_all<<<1, kThreads, 0, stream_of(args)>>>(indices_.read(args), indices_.count());
    if (rows_ == 0) return launched();
    dispatch_elements(dtype_, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>) sums_ ? add_by_row<T>(args) : add_directly<T>(args);
    });
    launched();
  }

 private:
  template <class T>
  void add_directly(const LaunchArgs& args) const {
    cuda::add_directly<<<blocks_for(rows_ * width_), kThreads, 0, stream_of(args)>>>(
        static_cast<const T*>(args.inputs[0]), indices_.read(args), indices_.count(),
        static_cast<T*>(args.outputs[0]), rows_ * width_, Divider(width_));
  }

  template <class T>
  void add_by_row(const LaunchArgs& args) const {
    const cudaStream_t stream = stream_of(args);
    auto* workspace = static_cast<char*>(args.workspace);
    auto* out = static_cast<T*>(args.outputs[0]);
    check(cudaMemsetAsync(out, 0, static_cast<size_t>(rows_ * width_) * sizeof(T), stream),
          "cudaMemsetAsync");
    const RowSums::Sorted sorted = sums_->sort(indices_.read(args), workspace, stream);
    sums_->add<AmongAllRows>(sorted, static_cast<const T*>(args.inputs[0]), out, workspace, stream);
  }

  Indices indices_;
  DType dtype_;
  int64_t rows_, width_ = 1;
  std::optional<RowSums> sums_;  // none: added directly
};

const RegisterKernel registered(DeviceKind::gpu, kScatterAdd, {.prepare = prepare<ScatterAddKernel>});

}  // namespace
}  // namespace lockstep::cuda
