// Batches from arrays in memory.
#pragma once

#include "keras/training/source.h"

namespace lockstep::keras {

// Arrays with one number of examples. Throws Error(shape_mismatch) naming those that differ.
std::shared_ptr<const Data::Source> array_source(
    Batch arrays, std::vector<std::string> x_names = {}, std::vector<std::string> y_names = {},
    std::source_location where = std::source_location::current());

// Arrays in host memory that fit on the GPU where the caller's ops run, copied there; others as they are.
Data on_device(const Data& data);

}  // namespace lockstep::keras
