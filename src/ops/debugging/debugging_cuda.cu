// Printing and checking on GPUs. Printing copies to the host, in the stream's order, and calls it back.
#include <vector>

#include "backends/cuda/defer_error.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/debugging/debugging.h"

namespace lockstep::cuda {
namespace {

void set_token(const LaunchArgs& args) {
  check(cudaMemsetAsync(args.outputs[0], 1, sizeof(bool), stream_of(args)), "cudaMemsetAsync");
}

// What a callback of the stream prints. It may be called after the kernel is gone, where a captured graph
// lives longer: it then belongs to nobody, and stays.
struct Printed {
  PrintAttrs attrs;
  std::vector<TensorSpec> specs = {};
  std::vector<Strides> strides = {};
  std::vector<void*> data = {};  // in pinned memory
  LaunchPlace place = {};

  static void print(void* printed) {
    const auto& p = *static_cast<Printed*>(printed);
    const LaunchPlace before = launch_place();
    launch_place() = p.place;
    try {
      print_line(p.attrs, p.specs, p.strides, p.data.data());
    } catch (...) {  // nothing may leave a callback; what cannot be printed is lost
    }
    launch_place() = before;
  }
};

class PrintKernel final : public Kernel {
 public:
  explicit PrintKernel(const KernelRequest& request) : printed_(new Printed{request.attrs<PrintAttrs>()}) {
    for (size_t i = 0; i + 1 < printed_->attrs.texts.size(); ++i) {
      const TensorSpec& spec = request.inputs[i].spec;
      printed_->specs.push_back(spec);
      printed_->strides.push_back(contiguous_strides(spec.shape));
      printed_->data.push_back(nullptr);
      if (spec.bytes() > 0)
        check(cudaHostAlloc(&printed_->data.back(), spec.bytes(), cudaHostAllocPortable), "cudaHostAlloc");
    }
  }
  ~PrintKernel() override {
    if (stream_ && cudaDeviceSynchronize() != cudaSuccess) return;
    for (void* data : printed_->data) cudaFreeHost(data);
    delete printed_;
  }

  void launch(const LaunchArgs& args) const override {
    stream_ = stream_of(args);
    printed_->place = launch_place();
    for (size_t i = 0; i < printed_->data.size(); ++i)
      if (printed_->data[i])
        check(cudaMemcpyAsync(printed_->data[i], args.inputs[i], printed_->specs[i].bytes(),
                              cudaMemcpyDeviceToHost, stream_),
              "cudaMemcpyAsync");
    check(cudaLaunchHostFunc(stream_, Printed::print, printed_), "cudaLaunchHostFunc");
    set_token(args);
  }

 private:
  Printed* printed_;
  mutable cudaStream_t stream_ = nullptr;
};

// counts[0]: NaN, or false; counts[1]: infinity.
__global__ void count_false(const bool* conditions, int64_t elements, unsigned long long* counts) {
  unsigned long long wrong = 0;
  for (int64_t i = first_index(); i < elements; i += index_step()) wrong += conditions[i] ? 0 : 1;
  if (wrong > 0) atomicAdd(counts, wrong);
}

template <class T>
__global__ void count_non_finite(const T* x, T* y, int64_t elements, unsigned long long* counts) {
  using C = Real<T>;
  unsigned long long nans = 0, infs = 0;
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const T element = x[i];
    const C value = static_cast<C>(element);
    if (value != value)
      ++nans;
    else if (value - value != 0)
      ++infs;
    y[i] = element;
  }
  if (nans > 0) atomicAdd(counts, nans);
  if (infs > 0) atomicAdd(counts + 1, infs);
}

__global__ void note_counts(const unsigned long long* counts, DeferredError* error) {
  if (counts[0] + counts[1] > 0)
    defer_error(error, static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1]));
}

// Counts into the workspace, then reports.
class CountingKernel : public Kernel {
 public:
  explicit CountingKernel(std::function<void(const DeferredError&)> raise) : errors_(std::move(raise)) {}
  size_t workspace_bytes() const override { return 2 * sizeof(uint64_t); }

 protected:
  template <class Count>
  void run(const LaunchArgs& args, Count count) const {
    auto* counts = static_cast<unsigned long long*>(args.workspace);
    check(cudaMemsetAsync(counts, 0, workspace_bytes(), stream_of(args)), "cudaMemsetAsync");
    count(counts);
    note_counts<<<1, 1, 0, stream_of(args)>>>(counts, errors_.on(args.stream));
    launched();
  }

 private:
  DeferredErrors errors_;
};

class AssertKernel final : public CountingKernel {
 public:
  explicit AssertKernel(const KernelRequest& request)
      : CountingKernel([message = request.attrs<MessageAttrs>().message, elements = request.shape(0).size(),
                        where = request.where](const DeferredError& counts) {
          fail(ErrorCode::failed_precondition, where, message, " (", counts.position, " of ", elements,
               " elements)");
        }),
        elements_(request.shape(0).size()) {}

  void launch(const LaunchArgs& args) const override {
    set_token(args);
    if (elements_ == 0) return;
    run(args, [&](unsigned long long* counts) {
      count_false<<<blocks_for(elements_), kThreads, 0, stream_of(args)>>>(
          static_cast<const bool*>(args.inputs[0]), elements_, counts);
    });
  }

 private:
  int64_t elements_;
};

class CheckNumericsKernel final : public CountingKernel {
 public:
  explicit CheckNumericsKernel(const KernelRequest& request)
      : CountingKernel([message = request.attrs<MessageAttrs>().message, spec = request.inputs[0].spec,
                        where = request.where](const DeferredError& counts) {
          fail(ErrorCode::invalid_argument, where, "check_numerics: ", message, ": ", spec, " has ",
               counts.position, " NaN and ", counts.value(), " Inf");
        }),
        spec_(request.inputs[0].spec) {}

  void launch(const LaunchArgs& args) const override {
    const int64_t elements = spec_.shape.size();
    if (elements == 0) return;
    run(args, [&](unsigned long long* counts) {
      dispatch_floats(spec_.dtype, [&]<class T>() {
        count_non_finite<<<std::min(blocks_for(elements), 4096u), kThreads, 0, stream_of(args)>>>(
            static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]), elements, counts);
      });
    });
  }

 private:
  TensorSpec spec_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kPrint, {.prepare = prepare<PrintKernel>}},
    {DeviceKind::gpu, kAssert, {.prepare = prepare<AssertKernel>}},
    {DeviceKind::gpu, kCheckNumerics, {.prepare = prepare<CheckNumericsKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
