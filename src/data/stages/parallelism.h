// num_parallel_calls and deterministic, as all stages that have them read them.
#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "data/pipeline.h"

namespace lockstep::data {

inline void check_parallelism(const char* stage, int64_t calls, std::source_location where) {
  require(calls > 0 || calls == AUTOTUNE, ErrorCode::invalid_argument, where, stage,
          ": num_parallel_calls must be positive or AUTOTUNE, received ", calls);
}

// Twice the threads: one that is slow does not stop the others at once.
inline int64_t slots_for(int64_t calls) { return calls == AUTOTUNE ? AUTOTUNE : 2 * calls; }

inline bool ordered(std::optional<bool> deterministic, const Opening& opening) {
  return deterministic.value_or(opening.pipeline.options().deterministic.value_or(true));
}

// Why a stage that does not wait for its turn may change the order of elements; empty: it does not
// (Node::order_hazard).
inline std::string parallel_order_hazard(int64_t calls, std::optional<bool> deterministic,
                                         const Options& options) {
  const bool keeps_order = deterministic.value_or(options.deterministic.value_or(true));
  return calls == 1 || keeps_order ? "" : "gives elements as they become ready (deterministic = false)";
}

inline std::string parallelism_text(int64_t calls) {
  if (calls == 1) return {};
  return "num_parallel_calls=" + (calls == AUTOTUNE ? "AUTOTUNE" : std::to_string(calls));
}

}  // namespace lockstep::data
