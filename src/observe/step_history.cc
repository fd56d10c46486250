#include "observe/step_history.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace lockstep::observe {
namespace {

void merge(RunRecord::Interval& into, const RunRecord::Interval& other) {
  into.steps += other.steps;
  into.wall_ns += other.wall_ns;
  into.outside_ns += other.outside_ns;
  into.examples += other.examples;
  into.times_ns.resize(std::max(into.times_ns.size(), other.times_ns.size()));
  for (size_t c = 0; c < other.times_ns.size(); ++c) into.times_ns[c] += other.times_ns[c];
}

int64_t& time_of(RunRecord::Interval& interval, Category category) {
  return interval.times_ns[static_cast<size_t>(category)];
}

}  // namespace

Intervals widened(const Intervals& intervals, int64_t width) {
  Intervals wide;
  for (const RunRecord::Interval& interval : intervals) {
    const int64_t first = interval.first_step / width * width;
    if (!wide.empty() && wide.back().first_step == first) {
      merge(wide.back(), interval);
    } else {
      wide.push_back(interval);
      wide.back().first_step = first;
    }
  }
  return wide;
}

int64_t width_for(int64_t last_step, int64_t most, int64_t width) {
  while (last_step / width >= most) width *= 2;
  return width;
}

StepHistory::StepHistory(const StepClock& clock, int64_t step, int64_t began_ns)
    : step_(step), began_ns_(began_ns), replicas_(clock.replicas()), last_(clock.replicas()) {}

void StepHistory::add(size_t replica, const StepRecord& record) {
  StepRecord& last = last_[replica];
  const int64_t step = step_ + record.index;
  RunRecord::Interval one{.first_step = step,
                          .steps = record.steps,
                          .start_ns = record.start_ns - began_ns_,
                          .wall_ns = record.wall_ns,
                          .outside_ns = 0,
                          .examples = record.counts[Counter::examples],
                          .times_ns = {record.times.values.begin(), record.times.values.end()}};
  if (last.index >= 0 && last.index + last.steps == record.index)
    one.outside_ns = std::max<int64_t>(0, record.start_ns - last.start_ns - last.wall_ns);
  last = record;
  // Counted from the run's first step here: a run that goes on at step 1e9 is looked at as closely as one
  // that begins.
  if (const int64_t width = width_for(step - step_ / width_ * width_, kMost, width_); width != width_) {
    width_ = width;
    for (Intervals& intervals : replicas_) intervals = widened(intervals, width_);
  }
  one.first_step = step / width_ * width_;
  Intervals& intervals = replicas_[replica];
  if (!intervals.empty() && intervals.back().first_step == one.first_step)
    merge(intervals.back(), one);
  else
    intervals.push_back(std::move(one));
}

void StepHistory::look(StepClock& clock) {
  for (size_t r = 0; r < replicas_.size(); ++r)
    for (const StepRecord& record : clock.replica(static_cast<int>(r)).recent())
      if (record.index > last_[r].index) add(r, record);
}

int64_t align(std::vector<Intervals>& replicas, int64_t width, int64_t most) {
  const auto fits = [&](const Intervals& intervals) {
    return widened(intervals, width).size() <= static_cast<size_t>(most);
  };
  while (!std::all_of(replicas.begin(), replicas.end(), fits)) width *= 2;
  for (Intervals& intervals : replicas) intervals = widened(intervals, width);
  return width;
}

void attribute_waiting(std::vector<Intervals>& replicas) {
  const auto per_step = [](RunRecord::Interval& interval) {
    return static_cast<double>(time_of(interval, Category::exposed_communication)) /
           static_cast<double>(std::max<int64_t>(1, interval.steps));
  };
  std::map<int64_t, double> least;  // by first step
  for (Intervals& intervals : replicas)
    for (RunRecord::Interval& interval : intervals) {
      double& known =
          least.try_emplace(interval.first_step, std::numeric_limits<double>::infinity()).first->second;
      known = std::min(known, per_step(interval));
    }
  for (Intervals& intervals : replicas)
    for (RunRecord::Interval& interval : intervals) {
      const double beyond = per_step(interval) - least.at(interval.first_step);
      const auto moved = static_cast<int64_t>(beyond * static_cast<double>(interval.steps));
      time_of(interval, Category::exposed_communication) -= moved;
      time_of(interval, Category::waiting_for_others) += moved;
    }
}

}  // namespace lockstep::observe
