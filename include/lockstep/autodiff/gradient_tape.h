// GradientTape: records ops while it lives and differentiates what was recorded.
//
//   GradientTape tape;
//   Tensor loss = square(w * x);
//   Tensor dw = tape.gradient(loss, w);
//
// Trainable variables are watched when they are read, tensors by watch(). A tape records the ops of
// its own thread from construction until it is used, stopped or destroyed. It can be used once,
// unless it is persistent. Inside a traced function the gradients are traced too; tapes nest, so a
// gradient computed under an outer tape can be differentiated again.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

enum class UnconnectedGradients { none, zero };

struct GradientTapeOptions {
  bool persistent = false;               // may be asked more than once
  bool watch_accessed_variables = true;  // false: only what watch() names
};

struct GradientOptions {
  // What a source that the target does not depend on gets: an undefined Tensor, or zeros.
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::none;
  // The gradient that arrives at the target; ones where none is given.
  Tensor output_gradient = {};
};

// What a gradient is taken with respect to.
class GradientSource {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  GradientSource(const Tensor& tensor) : tensor_(tensor) {}
  GradientSource(const Variable& variable) : variable_(variable) {}
  // NOLINTEND(google-explicit-constructor)
  const Tensor& tensor() const { return tensor_; }
  const Variable& variable() const { return variable_; }

 private:
  Tensor tensor_;
  Variable variable_;
};

class GradientTape {
 public:
  explicit GradientTape(GradientTapeOptions options = {});
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  void watch(const Tensor& tensor, std::source_location where = std::source_location::current());
  void watch(const Variable& variable, std::source_location where = std::source_location::current());

  // d sum(target) / d source; undefined where they are not connected (GradientOptions). An Error beside a
  // forgotten strategy.
  Tensor gradient(const Tensor& target, const GradientSource& source, const GradientOptions& options = {},
                  std::source_location where = std::source_location::current());
  TensorList gradient(const Tensor& target, std::span<const GradientSource> sources,
                      const GradientOptions& options = {},
                      std::source_location where = std::source_location::current());
  TensorList gradient(const Tensor& target, const std::vector<Variable>& sources,
                      const GradientOptions& options = {},
                      std::source_location where = std::source_location::current());
  // The sum over all targets; output_gradients[i] is what arrives at targets[i].
  TensorList gradient(std::span<const Tensor> targets, std::span<const GradientSource> sources,
                      std::span<const Tensor> output_gradients,
                      std::source_location where = std::source_location::current());
  // d target[i] / d source[j], of shape target.shape + source.shape. One use of the tape, as gradient() is.
  Tensor jacobian(const Tensor& target, const GradientSource& source,
                  std::source_location where = std::source_location::current());

  // d target[b, i] / d source[b, j], of shape target.shape + source.shape without its first dimension, where
  // no example of a batch has a part in the results of another. One use of the tape.
  Tensor batch_jacobian(const Tensor& target, const GradientSource& source,
                        std::source_location where = std::source_location::current());

  // The variables that were read or watched while it recorded, in the order of their first reading.
  const std::vector<Variable>& watched_variables() const;

  // Ends the recording; what was recorded stays.
  void stop_recording();
  // What comes between pause() and resume() is not recorded, gradients that are asked for meanwhile included.
  void pause();
  void resume();
  // Forgets everything recorded so far and goes on recording.
  void reset();

 private:
  class Recording;
  // The gradients of the source, one behind the other, for what arrives being 1 in each place of this shape,
  // which is broadcast to that of the target.
  Tensor rows_of(const Tensor& target, const GradientSource& source, const Shape& seed_shape,
                 std::source_location where);
  std::unique_ptr<Recording> recording_;
};

// What a custom-gradient function returns: its results, and how their gradients become its inputs'.
struct CustomGradient {
  TensorList outputs;
  std::function<TensorList(std::span<const Tensor> output_gradients)> grad;
  // Whether the function may be called again later, with other tensors of the same values: it then stands
  // inside of recompute_grad() without keeping anything. It must refer to nothing that is gone by then.
  bool repeatable = false;
};

// Runs f(inputs); a tape differentiates the result by the grad it returned, not through its ops.
TensorList custom_gradient(const std::function<CustomGradient(std::span<const Tensor>)>& f,
                           std::span<const Tensor> inputs,
                           std::source_location where = std::source_location::current());

}  // namespace lockstep
