#include "bench/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>

#include "lockstep/base/clock.h"
#include "lockstep/data/explain.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/random.h"

namespace lockstep::bench {
namespace {

using data::AUTOTUNE;
using data::Dataset;
using data::Element;
using data::Iterator;

void busy_wait(int64_t ns) {
  for (const int64_t end = monotonic_ns() + ns; monotonic_ns() < end;) {
  }
}

// All of it; the number of elements.
int64_t drain(const Dataset& dataset) {
  Iterator iterator(dataset);
  Element element;
  int64_t count = 0;
  while (iterator.next(element)) ++count;
  return count;
}

class GatherCopy {
 public:
  explicit GatherCopy(int64_t batch)
      : batch_(batch),
        rows_(static_cast<size_t>(kSliceExamples * kSliceColumns), 1.0F),
        order_(kSliceExamples) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(1));
  }
  void epoch() {
    for (size_t begin = 0; begin < order_.size(); begin += static_cast<size_t>(batch_)) {
      const size_t end = std::min(order_.size(), begin + static_cast<size_t>(batch_));
      for (size_t i = begin; i < end; ++i)
        std::memcpy(copy_.data() + (i - begin) * kSliceColumns, rows_.data() + order_[i] * kSliceColumns,
                    kSliceColumns * sizeof(float));
    }
  }

 private:
  int64_t batch_;
  std::vector<float> rows_, copy_ = std::vector<float>(static_cast<size_t>(batch_ * kSliceColumns));
  std::vector<size_t> order_;
};

constexpr int64_t kMapElements = 256;

// A number nobody can foresee, so that none of the work is left out.
double heavy(double x) {
  for (int i = 0; i < 20000; ++i) x = std::sqrt(x * x + 1.0) * 0.999;
  return x;
}
Tensor heavy_of(const Tensor& x) { return Tensor::scalar(heavy(static_cast<double>(x.item<int64_t>()))); }

constexpr int64_t kStepNs = 1'000'000, kInputNs = 800'000, kHiddenSteps = 100;
constexpr double kAgreement = 0.05;

void run_hidden(const Dataset& dataset) {
  Iterator iterator(dataset);
  Element element;
  observe::StepClock clock;
  observe::ReplicaClock& replica = clock.replica(0);
  for (bool goes_on = true; goes_on;) {
    replica.begin_step();
    {
      const observe::TimeScope scope(&replica, observe::Category::input_wait);
      goes_on = iterator.next(element);
    }
    if (!goes_on) break;
    {
      const observe::TimeScope scope(&replica, observe::Category::compute);
      busy_wait(kStepNs);
    }
    replica.end_step();
  }
  replica.abandon_step();
  const observe::ReplicaSummary time = clock.summary().replicas[0];
  const double waited = static_cast<double>(time[observe::Category::input_wait].total) /
                        static_cast<double>(std::max<int64_t>(1, time.wall.total));
  const double explained = 1 - data::explain(iterator).consumer;
  if (std::abs(waited - explained) > kAgreement)
    throw std::runtime_error(
        fmt::format("the step clock says that steps waited {:.1f}% of the time, explain {:.1f}%",
                    100 * waited, 100 * explained));
}

}  // namespace

std::vector<Candidate> slices_candidates(int64_t batch) {
  const int64_t batches = (kSliceExamples + batch - 1) / batch;
  const auto gather = std::make_shared<GatherCopy>(batch);
  const Tensor rows = Tensor::full(DType::float32, {kSliceExamples, kSliceColumns}, 1.0);
  const Dataset dataset =
      Dataset::from_tensor_slices(rows).shuffle(kSliceExamples, {.seed = 1}).batch(batch).prefetch();
  return {whole(
              "gather copy", [gather] { gather->epoch(); }, batches),
          whole(
              "Lockstep", [dataset] { drain(dataset); }, batches)};
}

std::vector<Candidate> map_candidates(int threads) {
  const auto plain = [] {
    volatile double kept = 0;
    for (int64_t i = 0; i < kMapElements; ++i) kept = heavy(static_cast<double>(i));
    (void)kept;
  };
  const auto mapped = [threads](int64_t calls) {
    return [dataset = Dataset::range(kMapElements)
                          .map(heavy_of, {.num_parallel_calls = calls})
                          .with_options({.threads = threads})] { drain(dataset); };
  };
  std::vector<Candidate> list{whole("plain loop", plain, kMapElements),
                              whole("Lockstep map", mapped(1), kMapElements)};
  if (threads > 1)
    list.push_back(whole(fmt::format("Lockstep map, {} threads", threads), mapped(threads), kMapElements));
  list.push_back(whole("Lockstep map, AUTOTUNE", mapped(AUTOTUNE), kMapElements));
  return list;
}

std::vector<Candidate> hidden_candidates() {
  const auto alone = [] {
    for (int64_t i = 0; i < kHiddenSteps; ++i) busy_wait(kStepNs);
  };
  const Dataset dataset = Dataset::range(kHiddenSteps)
                              .map([](const Tensor& x) {
                                busy_wait(kInputNs);
                                return x;
                              })
                              .prefetch();
  return {whole("steps alone", alone, kHiddenSteps),
          whole(
              "Lockstep, prefetched", [dataset] { run_hidden(dataset); }, kHiddenSteps)};
}

}  // namespace lockstep::bench
