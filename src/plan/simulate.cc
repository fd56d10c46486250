#include "lockstep/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "execute/all_reduce/bucket_room.h"

namespace lockstep::plan {

// --- what a sum over devices takes -------------------------------------------------------------------------

namespace {

// Half of an all-reduce over a ring: every device has a part of the sum, or passes its part on.
double half_ring_s(double bytes, double n, const Link& link) {
  return (n - 1) * (link.latency_s + bytes / n / link.bytes_per_s);
}

// The value below which a standard normal variable lies with probability p, by bisection of erfc: exact to
// 1e-12.
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double all_reduce_s(double bytes, int64_t devices, const Link& link) {
  if (devices < 2) return 0;
  const auto n = static_cast<double>(devices);
  const double ring = 2 * half_ring_s(bytes, n, link);
  const double tree = 2 * std::ceil(std::log2(n)) * link.latency_s + 2 * bytes / link.bytes_per_s;
  return std::min(ring, tree);
}

SumTime all_reduce_s(double bytes, int64_t devices, const Network& network) {
  const int64_t local = std::min<int64_t>(devices, network.per_node);
  const int64_t nodes = (devices + network.per_node - 1) / network.per_node;
  if (nodes < 2) return {.inside_s = all_reduce_s(bytes, devices, network.inside)};
  SumTime time;
  if (local > 1) time.inside_s = 2 * half_ring_s(bytes, static_cast<double>(local), network.inside);
  const int64_t rails = network.rails > 0 ? std::min<int64_t>(network.rails, local) : local;
  time.between_s = all_reduce_s(bytes / static_cast<double>(rails), nodes, network.between);
  return time;
}

double expected_maximum(int64_t n) {
  if (n < 2) return 0;
  // The mean of the maximum's distribution Phi(x)^n, integrated over its quantiles: of p uniform in (0, 1)
  // the maximum is the normal quantile of p^(1/n).
  constexpr int kPoints = 500;
  double sum = 0;
  for (int i = 0; i < kPoints; ++i)
    sum += normal_quantile(std::pow((i + 0.5) / kPoints, 1.0 / static_cast<double>(n)));
  return sum / kPoints;
}

// --- a step ------------------------------------------------------------------------------------------------

std::vector<Bucket> buckets_of(const std::vector<Sum>& sums, int64_t asked) {
  std::vector<Sum> order = sums;
  std::stable_sort(order.begin(), order.end(), [](const Sum& a, const Sum& b) {
    return std::tie(a.phase, a.ready) < std::tie(b.phase, b.ready);
  });
  std::map<int, int64_t> left;
  for (const Sum& sum : order) left[sum.phase] += static_cast<int64_t>(sum.bytes);
  std::vector<Bucket> buckets;
  int64_t room = 0;
  for (const Sum& sum : order) {
    if (buckets.empty() || buckets.back().phase != sum.phase || room <= 0) {
      buckets.push_back({.phase = sum.phase});
      room = execute::bucket_room(asked, left[sum.phase]);
    }
    buckets.back().bytes += sum.bytes;
    buckets.back().ready = std::max(buckets.back().ready, sum.ready);
    room -= static_cast<int64_t>(sum.bytes);
    left[sum.phase] -= static_cast<int64_t>(sum.bytes);
  }
  return buckets;
}

namespace {

// Two activities, launches and sums, each a queue of work; the time goes on to the next end of a piece of
// work. All devices do the same, so that the one that is looked at stands for the slowest.
class Simulation {
 public:
  Simulation(const Step& step, const Surroundings& around)
      : step_(step), around_(around), buckets_(make_buckets(step, around)) {
    slowest_ = 1 + around.jitter * expected_maximum(around.devices);
    for (const Bucket& bucket : buckets_)
      result_.buckets.push_back(
          {.bytes = bucket.bytes, .takes = all_reduce_s(bucket.bytes, around.devices, around.network)});
  }

  Simulated run() {
    for (const Launch& launch : step_.launches) result_.compute_s += launch.seconds;
    result_.straggler_s = (slowest_ - 1) * result_.compute_s;
    for (const SimulatedBucket& bucket : result_.buckets) {
      result_.sums.inside_s += bucket.takes.inside_s;
      result_.sums.between_s += bucket.takes.between_s;
    }
    result_.sums_s = result_.sums.total();
    result_.host_s = step_.host_s;
    const auto processes = static_cast<double>(around_.processes(around_.devices));
    now_ = step_.host_s * std::max(1.0, processes / around_.cores);
    result_.shared_s = now_ - step_.host_s;
    fill();
    start_launch();
    while (launches_done_ < step_.launches.size() || buckets_done_ < buckets_.size()) advance();
    result_.step_s = now_;
    return std::move(result_);
  }

 private:
  // A device alone sums nothing. What a phase needs is there before it begins, whatever the schedule says.
  static std::vector<Bucket> make_buckets(const Step& step, const Surroundings& around) {
    if (around.devices < 2) return {};
    std::vector<Bucket> buckets = buckets_of(step.sums, around.bucket_bytes);
    for (Bucket& bucket : buckets) {
      const auto reads = std::find_if(step.launches.begin(), step.launches.end(),
                                      [&](const Launch& launch) { return launch.phase >= bucket.phase; });
      bucket.ready = std::clamp(bucket.ready, 0, static_cast<int>(reads - step.launches.begin()));
    }
    return buckets;
  }

  bool sum_runs() const { return buckets_done_ < filled_; }
  // Launches stand still where their phase needs sums, and where the threads that launch make the sums
  // themselves.
  bool launch_runs() const {
    if (launches_done_ >= step_.launches.size()) return false;
    if (!around_.sums_beside && sum_runs()) return false;
    const int phase = step_.launches[launches_done_].phase;
    return buckets_done_ >= buckets_.size() || buckets_[buckets_done_].phase > phase;
  }

  void advance() {
    const bool launches = launch_runs(), sums = sum_runs();
    const auto devices = static_cast<double>(around_.devices);
    const double wanted =
        devices * ((launches ? around_.cores_per_device : 0) +
                   (sums ? (around_.sums_beside ? around_.cores_per_sum : around_.cores_per_device) : 0));
    const double rate = wanted > around_.cores ? around_.cores / wanted : 1;
    double work = std::numeric_limits<double>::infinity();
    if (launches) work = launch_left_;
    if (sums) work = std::min(work, sum_left_);
    const double took = work / rate;
    now_ += took;
    result_.shared_s += took - work;
    if (!launches) result_.exposed_s += work;
    if (launches) launch_left_ -= work;
    if (launches && launch_left_ <= 0) {
      ++launches_done_;
      start_launch();
    }
    if (sums) sum_left_ -= work;
    if (sums && sum_left_ <= 0) {
      result_.buckets[buckets_done_++].ended_s = now_;
      start_sum();
    }
    fill();
  }

  void start_launch() {
    if (launches_done_ < step_.launches.size())
      launch_left_ = step_.launches[launches_done_].seconds * slowest_;
  }
  void start_sum() {
    if (!sum_runs()) return;
    sum_left_ = result_.buckets[buckets_done_].takes.total();
    result_.buckets[buckets_done_].began_s = now_;
  }
  // Buckets are summed in the order in which they are filled.
  void fill() {
    const bool idle = !sum_runs();
    while (filled_ < buckets_.size() && static_cast<size_t>(buckets_[filled_].ready) <= launches_done_)
      result_.buckets[filled_++].filled_s = now_;
    if (idle) start_sum();
  }

  const Step& step_;
  const Surroundings& around_;
  const std::vector<Bucket> buckets_;
  double slowest_ = 1;
  double now_ = 0;
  size_t launches_done_ = 0, buckets_done_ = 0, filled_ = 0;
  double launch_left_ = 0, sum_left_ = 0;
  Simulated result_;
};

}  // namespace

Simulated simulate(const Step& step, const Surroundings& surroundings) {
  return Simulation(step, surroundings).run();
}

}  // namespace lockstep::plan
