// Sharing a dataset among the workers of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The dataset on every count-th of its files, from number `index` on. None, with the reason, where that would
// give the workers together something else than one alone would get.
std::optional<Dataset> shard_by_files(const Dataset& dataset, int64_t count, int64_t index,
                                      std::string& reason);

// Why workers that each go through all of the dataset may not see its elements in the same order, so that
// their shares are not those of one whole: "shuffle [main.cc:12] has no seed". Empty: they see the same.
std::string order_hazard(const Dataset& dataset);

// What the order of its elements is drawn from, stage by stage: "shuffle [main.cc:12] with seed 17". Empty:
// nothing is drawn.
std::string order_seeds(const Dataset& dataset);

}  // namespace lockstep::data
