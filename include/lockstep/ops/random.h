// Random numbers: counter-based (Philox4x32-10), so that every number is a function of where it stands.
//
// Element j of example e is keyed by (the generator's seed and step, the op's place in a traced function, e,
// j), where e counts the examples of the whole batch: a replica that holds a slice of the batch draws for its
// examples exactly the numbers that one device would. Outside of traced functions every draw is a step; a run
// of a compiled function is one step of each generator that it draws from.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/graph/variable.h"

namespace lockstep {

namespace random {

// A handle; copies share the state. May be used from any thread.
class Generator {
 public:
  explicit Generator(uint64_t seed, std::source_location where = std::source_location::current());

  // Starts again, as if made anew with this seed; compiled functions see it too.
  void reset(uint64_t seed) const;

  // The whole state: an int64 scalar, not trainable, that goes up by one with every step. Saving and
  // restoring it saves and restores the generator.
  const Variable& state() const;

  // The state as a number. A GPU is asked only where somebody else has changed it since the last call.
  int64_t position() const;
  // Moves one step on and returns the state before it: what one draw outside of traced functions takes.
  int64_t advance() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// What is drawn from where no generator is named. Seeded at random until set_seed() is called.
const Generator& default_generator();
void set_seed(uint64_t seed);

// While one lives, it says what the default generator of its thread is.
class DefaultGenerator {
 public:
  DefaultGenerator();
  virtual ~DefaultGenerator();
  DefaultGenerator(const DefaultGenerator&) = delete;
  DefaultGenerator& operator=(const DefaultGenerator&) = delete;
  // Called when something is drawn.
  virtual const Generator& generator() = 0;

 private:
  DefaultGenerator* previous_;
};

struct UniformOptions {
  double minval = 0;
  double maxval = 1;             // not reached: values are in [minval, maxval)
  DType dtype = DType::float32;  // or another float, int32 or int64: then both ends are whole numbers
  // The first dimension runs over the examples of the batch: replicas draw different numbers.
  bool per_example = false;
  const Generator* generator = nullptr;  // null: the default one
};
Tensor uniform(const Shape& shape, const UniformOptions& options = {},
               std::source_location where = std::source_location::current());

struct NormalOptions {
  double mean = 0;
  double stddev = 1;
  DType dtype = DType::float32;
  bool per_example = false;
  const Generator* generator = nullptr;
};
Tensor normal(const Shape& shape, const NormalOptions& options = {},
              std::source_location where = std::source_location::current());
// Normal numbers of which those beyond two standard deviations from the mean are drawn again.
Tensor truncated_normal(const Shape& shape, const NormalOptions& options = {},
                        std::source_location where = std::source_location::current());

struct BernoulliOptions {
  bool per_example = false;
  const Generator* generator = nullptr;
};
// Booleans, true with this probability.
Tensor bernoulli(const Shape& shape, double probability, const BernoulliOptions& options = {},
                 std::source_location where = std::source_location::current());

struct PermutationOptions {
  const Generator* generator = nullptr;
};
// The numbers 0 ... n - 1 in random order; int64.
Tensor permutation(int64_t n, const PermutationOptions& options = {},
                   std::source_location where = std::source_location::current());
// x with the elements of its first dimension in random order; differentiable.
Tensor shuffle(const TensorArg& x, const PermutationOptions& options = {});

struct CategoricalOptions {
  bool per_example = false;
  const Generator* generator = nullptr;
};
// `samples` class numbers for each row of logits [batch, classes], each drawn with probability softmax(row);
// int64 [batch, samples]. Probabilities are computed in float64.
Tensor categorical(const TensorArg& logits, int64_t samples, const CategoricalOptions& options = {});

}  // namespace random

inline void set_random_seed(uint64_t seed) { random::set_seed(seed); }

struct DropoutOptions {
  // Shape of what is kept or dropped together: x's shape with 1 where a dimension shares its fate. Empty:
  // x's.
  Shape noise_shape = {};
  // The first dimension runs over examples (or a fixed number of rows for each). False for weights.
  bool per_example = true;
  const random::Generator* generator = nullptr;
};

// Each element is 0 with probability `rate`, else x / (1 - rate).
Tensor dropout(const TensorArg& x, double rate, const DropoutOptions& options = {});

}  // namespace lockstep
