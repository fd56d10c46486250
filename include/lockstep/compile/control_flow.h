// Branches and loops over tensors.
//
// Outside of traced functions they are what they look like: a branch, a loop of C++. Inside one they
// become a single step of the program: the bodies are traced once, whatever the number of iterations, and
// run without tracing or allocating. Tapes differentiate both.
//
// Bodies use tensors and variables from outside as any other code does, and may assign variables. What
// differs between iterations of a traced loop must be in its carried values: C++ variables changed by a
// body are changed once, while it is traced. Random ops draw new numbers in every iteration. Replicas
// cannot be summed over inside a body.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <type_traits>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

using Branch = std::function<TensorList()>;

// What `then_fn` returns where `pred` (a boolean scalar) is true, else what `else_fn` returns: as many
// tensors, of the same dtypes and shapes.
TensorList cond(const TensorArg& pred, const Branch& then_fn, const Branch& else_fn);
// The same for functions that return one tensor.
template <class Then, class Else>
requires std::convertible_to<std::invoke_result_t<Then>, Tensor> &&
    std::convertible_to<std::invoke_result_t<Else>, Tensor>
        Tensor cond(const TensorArg& pred, const Then& then_fn, const Else& else_fn) {
  return cond(
             pred, [&] { return TensorList{then_fn()}; }, [&] { return TensorList{else_fn()}; })
      .front();
}

struct WhileOptions {
  // No more iterations than these; -1: no bound. In a traced function a loop with a bound has a gradient;
  // memory for the values of all its iterations is set aside.
  int64_t maximum_iterations = -1;
};
// values = body_fn(values) while cond_fn(values) is true. The values keep their dtypes and shapes.
TensorList while_loop(const std::function<Tensor(std::span<const Tensor>)>& cond_fn,
                      const std::function<TensorList(std::span<const Tensor>)>& body_fn, TensorList initial,
                      const WhileOptions& options = {},
                      std::source_location where = std::source_location::current());

struct ScanResult {
  TensorList carry;
  TensorList ys;
};
struct ScanOptions {
  bool reverse = false;  // from the last slice to the first; ys stand where the slices stood
  int64_t length = -1;   // needed where there are no elems
};
// carry, y = fn(carry, x) for every slice x of the elems along their first axis. Returns the last carry,
// and the ys stacked along a new first axis. Carries keep their dtypes and shapes.
ScanResult scan(const std::function<ScanResult(std::span<const Tensor> carry, std::span<const Tensor> x)>& fn,
                TensorList initial, TensorList elems, const ScanOptions& options = {},
                std::source_location where = std::source_location::current());

// values = fn(i, values) for i = lower, ..., upper - 1; i is an int64 scalar.
TensorList fori_loop(int64_t lower, int64_t upper,
                     const std::function<TensorList(const Tensor& i, std::span<const Tensor>)>& fn,
                     TensorList initial, std::source_location where = std::source_location::current());
// fn of every slice of the elems along their first axis, stacked.
TensorList map_fn(const std::function<TensorList(std::span<const Tensor>)>& fn, const TensorList& elems,
                  std::source_location where = std::source_location::current());
// fn(fn(fn(initial, elems[0]), elems[1]), ...)
Tensor foldl(const std::function<Tensor(const Tensor& sum, const Tensor& x)>& fn, const Tensor& initial,
             const Tensor& elems, std::source_location where = std::source_location::current());

}  // namespace lockstep
