#include "keras/models/remat_parts.h"

#include <algorithm>
#include <limits>
#include <source_location>

#include "keras/remat_mode.h"

namespace lockstep::keras {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Cut {
  int64_t memory = kNever;
  std::vector<size_t> ends;
};

// The best cut into parts of at most `bound`, or of one call.
Cut cut_within(const std::vector<std::vector<MadeValue>>& made, int64_t bound) {
  const size_t calls = made.size();
  std::vector<int64_t> kept(calls + 1, kNever), largest(calls + 1, 0);  // in front of each end, at best
  std::vector<size_t> begin_of(calls + 1, 0);
  kept[0] = 0;
  for (size_t end = 1; end <= calls; ++end) {
    int64_t inside = 0, passed = 0;
    for (size_t begin = end; begin-- > 0;) {
      for (const MadeValue& value : made[begin]) {
        inside += value.size;
        if (value.last_reader >= end) passed += value.size;
      }
      if (inside > bound && begin + 1 < end) break;
      // Nothing is kept behind the last part for anybody.
      const int64_t total = kept[begin] + (end < calls ? passed : 0);
      if (total >= kept[end]) continue;
      kept[end] = total;
      largest[end] = std::max(largest[begin], inside);
      begin_of[end] = begin;
    }
  }
  Cut cut{kept[calls] + largest[calls], {}};
  for (size_t end = calls; end > 0; end = begin_of[end]) cut.ends.push_back(end);
  std::reverse(cut.ends.begin(), cut.ends.end());
  return cut;
}

}  // namespace

std::vector<size_t> remat_parts(const std::vector<std::vector<MadeValue>>& made) {
  int64_t whole = 0;
  for (const auto& values : made)
    for (const MadeValue& value : values) whole += value.size;
  Cut best = cut_within(made, whole);
  // In small enough steps that the best is missed by a few percent at most.
  constexpr double kStep = 0.9;
  for (double bound = static_cast<double>(whole); bound >= 1; bound *= kStep) {
    Cut cut = cut_within(made, static_cast<int64_t>(bound));
    if (cut.memory < best.memory) best = std::move(cut);
    if (best.ends.size() == made.size()) break;
  }
  return best.ends;
}

int64_t size_of(const TensorSpec& spec) {
  int64_t size = static_cast<int64_t>(lockstep::size_of(spec.dtype));
  for (const int64_t d : spec.shape) size *= std::max<int64_t>(d, 1);
  return size;
}

void call_in_parts(const std::vector<std::vector<MadeValue>>& made,
                   const std::function<PartResults(size_t, size_t)>& call) {
  size_t begin = 0;
  const auto store = [](const PartResults& results) {
    for (const auto& [place, result] : results) *place = result;
  };
  for (const size_t end : remat_parts(made)) {
    if ((end == made.size() && is_outermost_call()) || end == begin + 1) {
      store(call(begin, end));
    } else {
      PartResults results;
      const TensorList values = rematerialized(
          [&] {
            results = call(begin, end);
            TensorList all;
            for (auto& [place, result] : results) all.push_back(std::move(result));
            return all;
          },
          std::source_location::current());
      for (size_t i = 0; i < values.size(); ++i) *results[i].first = values[i];
    }
    begin = end;
  }
}

}  // namespace lockstep::keras
