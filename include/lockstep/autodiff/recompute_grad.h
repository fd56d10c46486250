// recompute_grad: memory for time. What a function computes on the way is not kept for its gradient, but
// computed again.
//
//   const auto block = recompute_grad([&](const Tensor& x) { return relu(matmul(x, w)) * x; });
//   Tensor y = block(x);   // a tape keeps x and y, and nothing in between
//
// When a tape asks for gradients, the ops that the function ran are run a second time, on the same inputs,
// and differentiated there. Values and gradients have the same bits as those of the plain function. The
// function itself is called once: it may refer to what lives no longer than the call, variables that it
// assigns are assigned once, and random numbers are the same ones. Variables and tensors that it refers to
// have gradients as its arguments have. It may contain tapes, control flow, custom gradients and further
// functions of this kind; second derivatives work.
//
// In a compiled function the second run happens when the backward pass has come so far, and not earlier. Not
// run again, and therefore kept, are sums over replicas, ops with effects, and custom gradients that are not
// repeatable (CustomGradient). Where no tape records, this is a plain call.
#pragma once

#include <functional>
#include <source_location>
#include <type_traits>
#include <utility>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

namespace detail {
TensorList recompute(const std::function<TensorList()>& f, std::source_location where);
}

// The function, for any arguments, of a function that gives a Tensor or a TensorList.
template <class F>
auto recompute_grad(F f, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), where](auto&&... arguments) {
    using Result = std::decay_t<std::invoke_result_t<const F&, decltype(arguments)...>>;
    static_assert(std::is_convertible_v<Result, Tensor> || std::is_same_v<Result, TensorList>,
                  "recompute_grad: the function must return a Tensor or a TensorList");
    if constexpr (std::is_same_v<Result, TensorList>)
      return detail::recompute([&] { return f(std::forward<decltype(arguments)>(arguments)...); }, where);
    else
      return detail::recompute([&] { return TensorList{f(std::forward<decltype(arguments)>(arguments)...)}; },
                               where)
          .front();
  };
}

}  // namespace lockstep
