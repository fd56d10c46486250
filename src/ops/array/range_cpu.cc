// range on the CPU.
#include <type_traits>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/array/range.h"

namespace lockstep {
namespace {

class RangeKernel final : public Kernel {
 public:
  explicit RangeKernel(const KernelRequest& request)
      : attrs_(request.attrs<RangeAttrs>()), threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    constexpr int64_t kGrain = 16384;
    dispatch(attrs_.dtype, [&]<class T>() {
      T* out = static_cast<T*>(args.outputs[0]);
      parallel_for(attrs_.count, kGrain, threads_, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[i] = rounded<T>(i == attrs_.count - 1 ? attrs_.last
                                                    : attrs_.start + static_cast<double>(i) * attrs_.delta);
      });
    });
  }

 private:
  template <class T>
  static T rounded(double value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<int64_t>(value));
    else if constexpr (std::is_same_v<T, double>)
      return value;
    else
      return static_cast<T>(static_cast<float>(value));
  }

  RangeAttrs attrs_;
  int threads_;
};

const RegisterKernel registered(DeviceKind::cpu, kRange,
                                {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                                   return std::make_unique<RangeKernel>(request);
                                 },
                                 .thread_invariant = true});

}  // namespace
}  // namespace lockstep
