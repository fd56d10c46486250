// cumsum and cumprod on the CPU: every line along the axis from one end to the other, by one thread. The
// result is the same whatever the number of threads. float32 is carried in double, 16-bit floats in float32.
#include <algorithm>
#include <type_traits>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/reduce/cumulative.h"

namespace lockstep {
namespace {

constexpr int64_t kElementsPerThread = 16384;
constexpr int64_t kColumns = 32;  // lines that go side by side where they lie side by side in memory

template <class T>
struct Carry {  // integers wrap around: unsigned ones have the same bits
  using type =
      std::conditional_t<std::is_integral_v<T>, uint64_t, std::conditional_t<sizeof(T) == 2, float, double>>;
};

template <class T, bool product>
class CumulativeKernel final : public Kernel {
 public:
  explicit CumulativeKernel(const KernelRequest& request)
      : attrs_(request.attrs<CumulativeAttrs>()), threads_(request.threads) {
    const Shape& shape = request.shape(0);
    const auto axis = static_cast<int>(attrs_.axis);
    n_ = shape[axis];
    for (int i = 0; i < axis; ++i) outer_ *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner_ *= shape[i];
  }

  bool in_place(int, int) const override { return true; }

  void launch(const LaunchArgs& args) const override {
    const int threads =
        static_cast<int>(std::clamp<int64_t>(outer_ * n_ * inner_ / kElementsPerThread, 1, threads_));
    const int64_t blocks = (inner_ + kColumns - 1) / kColumns;
    parallel_for(outer_ * blocks, 1, threads, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t column = item % blocks * kColumns;
        const int64_t offset = item / blocks * n_ * inner_ + column;
        const T* x = static_cast<const T*>(args.inputs[0]) + offset;
        T* y = static_cast<T*>(args.outputs[0]) + offset;
        const int64_t width = std::min(kColumns, inner_ - column);
        width == 1 ? lines<1>(x, y, 1) : lines<kColumns>(x, y, width);
      }
    });
  }

 private:
  using C = typename Carry<T>::type;

  template <int64_t Most>
  void lines(const T* x, T* y, int64_t width) const {
    C carry[Most];
    std::fill_n(carry, Most, C(product ? 1 : 0));
    const int64_t step = attrs_.reverse ? -inner_ : inner_;
    int64_t at = attrs_.reverse ? (n_ - 1) * inner_ : 0;
    for (int64_t i = 0; i < n_; ++i, at += step)
      for (int64_t k = 0; k < (Most == 1 ? 1 : width); ++k) {
        const C before = carry[k], element = static_cast<C>(x[at + k]);
        carry[k] = product ? before * element : before + element;
        y[at + k] = static_cast<T>(attrs_.exclusive ? before : carry[k]);
      }
  }

  CumulativeAttrs attrs_;
  int threads_;
  int64_t outer_ = 1, n_ = 1, inner_ = 1;
};

template <bool product>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return dispatch(request.dtype(0), [&]<class T>() -> std::unique_ptr<Kernel> {
    if constexpr (std::is_same_v<T, bool>)
      fail(ErrorCode::internal, request.where, request.op.name, ": no sums of booleans");
    else
      return std::make_unique<CumulativeKernel<T, product>>(request);
  });
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kCumsum, {.prepare = prepare<false>, .thread_invariant = true}},
    {DeviceKind::cpu, kCumprod, {.prepare = prepare<true>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
