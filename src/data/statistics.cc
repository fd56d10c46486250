#include "data/statistics.h"

#include <filesystem>

#include "data/pipeline.h"

namespace lockstep::data {
namespace {

StageStatistics statistics_of(const Stage& stage) {
  // Options have a place in the tree, but nothing passes through it.
  if (stage.name == "options") return statistics_of(*stage.inputs[0]);
  const auto ns = [](const Stage::Counter& counter) { return static_cast<double>(counter.load()); };
  StageStatistics statistics{.name = stage.name,
                             .arguments = stage.arguments,
                             .where = std::filesystem::path(stage.where.file_name()).filename().string() +
                                      ":" + std::to_string(stage.where.line()),
                             .elements = stage.elements,
                             .skipped = stage.skipped,
                             .caller_ns = ns(stage.timed_ns),
                             .threads = stage.threads,
                             .slots = stage.slots,
                             .fetch_ns = ns(stage.fetch_ns),
                             .work_ns = ns(stage.work_ns),
                             .consumer_wait_ns = ns(stage.consumer_wait_ns),
                             .producer_wait_ns = ns(stage.producer_wait_ns),
                             .empty = stage.empty,
                             .ready = stage.ready};
  for (const auto& input : stage.inputs)
    if (input) statistics.inputs.push_back(statistics_of(*input));
  return statistics;
}

}  // namespace

PipelineStatistics statistics_of(const Pipeline& pipeline) {
  const std::lock_guard lock(pipeline.stages_mutex());
  return {statistics_of(*pipeline.root()), static_cast<double>(pipeline.tuner().elapsed_ns()),
          pipeline.threads()};
}

}  // namespace lockstep::data
