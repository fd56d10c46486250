// What a verdict advises, in the words of the run it is about: a program gets C++, a run of the tool a call
// of the tool.
//
// The C++ compiles where a program has what its kind of run has: `model` and `train` or `dataset` of fit;
// `dataset`, `step`, `x` and `loss` of a loop; functions `f` and `prepare` for a map. Behind // are words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/observe/run_summary.h"

namespace lockstep::observe::fixes {

std::string batch_size(const RunSummary& run, int64_t batch, const std::string& words = {});
std::string input_ready_in_time(const RunSummary& run, int64_t batch);
std::string fewer_bytes(const RunSummary& summary);
std::string work_beside_steps(const RunSummary& run);
std::string shares(const RunSummary& summary, const std::vector<double>& weights);
std::string whole_batches(const RunSummary& run, int64_t batch);
std::string one_shape(const RunSummary& run, int64_t batch);
std::string values_on_device(const RunSummary& run);
std::string data_on_device(const RunSummary& run);
std::string threads(const RunSummary& run, size_t replicas);
std::string no_checks(const RunSummary& run);
std::string trace(const RunSummary& run);
std::string free_results(const RunSummary& run);
std::string less_memory(const RunSummary& run, int64_t batch);
std::string share_examples(const RunSummary& summary);
std::string gpu_in_place_of_cpu(const RunSummary& summary);

}  // namespace lockstep::observe::fixes
