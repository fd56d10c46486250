// The parts of a record, made of what is known about a run: its clock's summary, a trace of some steps.
#pragma once

#include "lockstep/observe/run_record.h"
#include "lockstep/observe/span.h"
#include "observe/step_history.h"

namespace lockstep::observe {

// Replicas, without their intervals, and what else the summary says of the whole.
void add_summary(RunRecord& record, const RunSummary& summary);

// All replicas' intervals, by replica, as many as the record has room for; `width`: the steps of the widest.
// Where they are of several workers, who waits follows from their difference (attribute_waiting). `summary`
// is that of the same run.
void add_intervals(RunRecord& record, std::vector<Intervals> replicas, int64_t width, bool several_workers,
                   const RunSummary& summary);

// Some thousand spans at most: whole steps from the first on as far as they fit, and the first in any case.
RunRecord::Timeline timeline_of(const Trace& trace);
RunRecord::Kernels kernels_of(const Trace& trace);

// Points of a curve that keeps growing, thinned out evenly: half of them go when there are too many, and from
// then on half as many come.
template <class Point>
class ThinnedPoints {
 public:
  ThinnedPoints(size_t most, int64_t spacing) : most_(most), spacing_(spacing) {}
  // Whether a point at this place of the axis is wanted.
  bool wants(int64_t at) const { return points_.empty() || at - last_ >= spacing_; }
  void add(int64_t at, Point point) {
    if (points_.size() == most_) {
      for (size_t i = 0; i < most_ / 2; ++i) points_[i] = std::move(points_[2 * i]);
      points_.resize(most_ / 2);
      spacing_ *= 2;
    }
    points_.push_back(std::move(point));
    last_ = at;
  }
  const std::vector<Point>& points() const { return points_; }

 private:
  size_t most_;
  int64_t spacing_;
  int64_t last_ = 0;
  std::vector<Point> points_;
};

}  // namespace lockstep::observe
