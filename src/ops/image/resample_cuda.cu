// Resampling on GPUs: one thread per element of the result, always summed in the same order. Taps are
// computed where they are needed, by the arithmetic of resample_taps().
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/image/resample.h"

namespace lockstep::cuda {
namespace {

struct Taps {
  int64_t input, output;
  double step;
  bool nearest;

  __device__ ResampleTap of(int64_t i) const {
    const double center = __dmul_rn(static_cast<double>(i) + 0.5, step);
    const int64_t last = input - 1;
    if (nearest) {
      const int64_t at = min(static_cast<int64_t>(center), last);
      return {at, at, 0};
    }
    const double position = fmin(fmax(center - 0.5, 0.0), static_cast<double>(last));
    const auto low = static_cast<int64_t>(position);
    return {low, min(low + 1, last), position - static_cast<double>(low)};
  }
};

// x: [outer, from, inner], y: [outer, to, inner]
template <class T>
__global__ void resample(const T* x, T* y, int64_t elements, Divider to, Divider inner, int64_t from,
                         Taps taps, bool forward) {
  using C = Real<T>;
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t line = inner.quotient(i), outer = to.quotient(line), row = line - outer * to.divisor();
    const T* base = x + outer * from * inner.divisor() + (i - line * inner.divisor());
    C sum = 0;
    const auto add = [&](int64_t r, double weight) {
      if (weight != 0) sum += static_cast<C>(weight) * static_cast<C>(base[r * inner.divisor()]);
    };
    if (forward) {
      const ResampleTap tap = taps.of(row);
      add(tap.low, 1 - tap.weight);
      add(tap.high, tap.weight);
    } else {
      // Those whose taps may be this row, and a few more on both sides.
      const double place = static_cast<double>(row);
      const int64_t first = max(int64_t{0}, static_cast<int64_t>((place - 0.5) / taps.step - 0.5) - 2);
      const int64_t last = min(taps.output - 1, static_cast<int64_t>((place + 1.5) / taps.step - 0.5) + 2);
      for (int64_t o = first; o <= last; ++o) {
        const ResampleTap tap = taps.of(o);
        if (tap.low == row) add(o, 1 - tap.weight);
        if (tap.high == row) add(o, tap.weight);
      }
    }
    y[i] = static_cast<T>(sum);
  }
}

class ResampleKernel final : public Kernel {
 public:
  explicit ResampleKernel(const KernelRequest& request)
      : attrs_(request.attrs<ResampleAttrs>()),
        dtype_(request.dtype(0)),
        elements_(request.outputs[0].spec.shape.size()),
        from_(request.shape(0)[attrs_.axis]),
        to_(request.outputs[0].spec.shape[attrs_.axis]),
        forward_(&request.op == &kResample) {
    for (int i = attrs_.axis + 1; i < request.shape(0).rank(); ++i) inner_ *= request.shape(0)[i];
  }

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    const Taps taps{attrs_.input, attrs_.output,
                    static_cast<double>(attrs_.input) / static_cast<double>(attrs_.output), attrs_.nearest};
    dispatch_floats(dtype_, [&]<class T>() {
      resample<<<blocks_for(elements_), kThreads, 0, stream_of(args)>>>(
          static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]), elements_, Divider(to_),
          Divider(inner_), from_, taps, forward_);
    });
    launched();
  }

 private:
  ResampleAttrs attrs_;
  DType dtype_;
  int64_t elements_, from_, to_, inner_ = 1;
  bool forward_;
};

const RegisterKernel registered[] = {{DeviceKind::gpu, kResample, {.prepare = prepare<ResampleKernel>}},
                                     {DeviceKind::gpu, kResampleGrad, {.prepare = prepare<ResampleKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
