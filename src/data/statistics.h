// What was measured of a pipeline, read at one moment, and what follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/explain.h"

namespace lockstep::data {

// See Stage.
struct StageStatistics {
  std::string name;
  std::string arguments = {};
  std::string where = {};
  int64_t elements = 0;
  int64_t skipped = 0;
  double caller_ns = 0;  // in this stage alone, on the thread that asks for elements
  int threads = 0;
  int64_t slots = 0;
  double fetch_ns = 0;
  double work_ns = 0;
  double consumer_wait_ns = 0;
  double producer_wait_ns = 0;
  int64_t empty = 0;
  int64_t ready = 0;
  std::vector<StageStatistics> inputs = {};
};

struct PipelineStatistics {
  StageStatistics root;
  double elapsed_ns = 0;
  int cores = 1;  // that stages may keep busy
};

// Thread-safe.
PipelineStatistics statistics_of(const Pipeline& pipeline);

Explanation explain(const PipelineStatistics& statistics);

}  // namespace lockstep::data
