// The data of a run of several workers.
#pragma once

#include "keras/training/source.h"
#include "lockstep/distribute/strategy.h"

namespace lockstep::keras {

// This worker's part of the data: of arrays, its rows of every batch; of a dataset, what its auto_shard
// policy says. Batches say how many examples each worker has, and end at the same time on all. `keeps_order`:
// results come in the order of the data, so that no files are shared. Every worker has to call it, with the
// same data.
Data for_worker(const Data& data, const distribute::Strategy& strategy, bool keeps_order,
                std::source_location where);

// This worker's rows of one global batch that all of them have.
Batch own_part(const Batch& batch, const distribute::Strategy& strategy);

}  // namespace lockstep::keras
