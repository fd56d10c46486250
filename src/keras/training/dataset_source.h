// Batches from a tf::data::Dataset.
#pragma once

#include "keras/training/source.h"
#include "lockstep/data/dataset.h"

namespace lockstep::keras {

// Its elements are batches: x, (x, y) or (x, y, sample_weight), each a tensor, a tuple, or a dictionary by
// the names of the model's inputs and outputs.
std::shared_ptr<const Data::Source> dataset_source(const data::Dataset& dataset,
                                                   const ModelArrays& model = {});

}  // namespace lockstep::keras
