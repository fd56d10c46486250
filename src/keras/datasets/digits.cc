#include "base/as_error.h"
#include "data/host.h"
#include "keras/datasets/digit_generator.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {
namespace {

// Test examples come from far beyond any training set.
constexpr int64_t kFirstTestExample = int64_t{1} << 40;

Examples make(uint64_t seed, int64_t first, int64_t count) {
  const DigitImages made = generate_digits(seed, first, count, data::host_device().threads());
  return {Tensor::from(made.images, {count, kDigitSide, kDigitSide}), Tensor::from(made.labels, {count})};
}

}  // namespace

TrainTest digits(const DigitsOptions& options, std::source_location where) {
  require(options.train_size >= 0 && options.train_size <= kFirstTestExample && options.test_size >= 0,
          ErrorCode::invalid_argument, where,
          "digits: train_size must be from 0 to 2^40 and test_size not negative, received ",
          options.train_size, " and ", options.test_size);
  return as_error("digits", where, [&] {
    return TrainTest{make(options.seed, 0, options.train_size),
                     make(options.seed, kFirstTestExample, options.test_size)};
  });
}

}  // namespace lockstep::keras::datasets
