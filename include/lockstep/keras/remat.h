// Rematerialisation: what layers compute on the way is computed again in the backward pass instead of being
// kept. Training takes about a third more arithmetic, and batches that would not fit do.
//
//   {
//     const tf::keras::RematScope scope;  // .mode = "full"
//     model = tf::keras::applications::resnet50();
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

struct RematMode;

struct RematScopeOptions {
  // "full": every layer. A Sequential or functional model is cut into parts, where little passes from one to
  // the next, and each part is recomputed as a whole, but for the last one, whose values are needed at once.
  // "activations": the activation functions of layers that have one.
  // "larger_than": layers with results of more than `output_size_threshold` elements, the batch included.
  // "list_of_layers": those whose names are in `layer_names`.
  // nullopt: no layer, whatever a scope around this one says.
  std::optional<std::string> mode = "full";
  int64_t output_size_threshold = 1024;
  std::vector<std::string> layer_names = {};
};

// Layers belong to the scope in which they are made or, where that was outside of all scopes, in which they
// are first built or called, and stay with it: a model made in a scope recomputes when it is fitted later.
// Scopes nest; the innermost counts. Belongs to its thread; scopes end in the reverse order in which they
// began.
class RematScope {
 public:
  explicit RematScope(const RematScopeOptions& options = {},
                      std::source_location where = std::source_location::current());
  ~RematScope();
  RematScope(const RematScope&) = delete;
  RematScope& operator=(const RematScope&) = delete;

 private:
  std::shared_ptr<const RematMode> outer_;
};

// f(), to be recomputed in the backward pass of the tapes that record now.
TensorList rematerialized(const std::function<TensorList()>& f, std::source_location where);

// tf::recompute_grad of a function that calls layers: losses that they add have their gradients too, and
// masks are handed on.
template <class F>
auto remat(F f, std::source_location where = std::source_location::current()) {
  return [f = std::move(f), where](auto&&... arguments) {
    using Result = std::decay_t<std::invoke_result_t<const F&, decltype(arguments)...>>;
    static_assert(std::is_convertible_v<Result, Tensor> || std::is_same_v<Result, TensorList>,
                  "remat: the function must return a Tensor or a TensorList");
    if constexpr (std::is_same_v<Result, TensorList>)
      return rematerialized([&] { return f(std::forward<decltype(arguments)>(arguments)...); }, where);
    else
      return rematerialized([&] { return TensorList{f(std::forward<decltype(arguments)>(arguments)...)}; },
                            where)
          .front();
  };
}

}  // namespace lockstep::keras
