// Where Lockstep stands: a line for each work that other frameworks were measured at.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

struct Standing {
  std::string work;  // with its batch
  int threads = 0;   // 0: on a GPU
  const Result* ours = nullptr;
  const Result* best_peer = nullptr;
  std::optional<Share> share_of_ceiling = {};
  double items_per_second = 0;                // 0: nobody counts them
  int64_t memory = 0, least_peer_memory = 0;  // 0: nobody tells

  // The ratio of our time to the best peer's, by the ratios within the rounds where there are any: above 1 we
  // lose.
  double ratio() const;
  // The ratio of our memory to that of the peer that takes least, which need not be the fastest.
  std::optional<double> memory_ratio() const;
};

// Points into `measurements`. Ours is the fastest of the candidates whose name begins with "Lockstep" and
// that are not aside.
std::vector<Standing> standings(const std::vector<Measurement>& measurements);

// Every standing, the losing ones marked, and how many those are; empty without standings.
std::string as_table(const std::vector<Standing>& standings);
nlohmann::json as_json(const std::vector<Standing>& standings);

}  // namespace lockstep::bench
