// A record with something in every part, and changes of it that nobody would make.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/json_mutation_test.h"
#include "lockstep/base/error.h"
#include "lockstep/observe/run_record.h"

namespace lockstep::observe {

inline RunRecord sample_record() {
  RunRecord record;
  record.state = RunRecord::State::interrupted;
  record.model = "mlp </script>";
  record.host = "anna";
  record.process = 71;
  record.started_ms = 1'700'000'000'000;
  record.updated_ms = record.started_ms + 5000;
  record.epoch = 2, record.epochs = 3, record.step = 12, record.steps_per_epoch = 6;
  record.examples_per_second = 100.5;
  record.configuration = Json::object({{"batch_size", 32}});
  record.versions = Json::object({{"lockstep", "0.1.0"}});
  record.history_epochs = {0, 1};
  record.curves = {{"loss", {2.5, 1.5}}, {"val_loss", {NAN, 1.75}}};
  record.losses = {{1, 3.0}, {12, 1.25}};
  record.categories = {"compute", "host"};
  record.interval_steps = 4;
  for (const char* name : {"replica 0", "replica 1"})
    record.replicas.push_back({.name = name,
                               .steps = 12,
                               .mean_ms = 2,
                               .median_ms = 2,
                               .p95_ms = 3,
                               .max_ms = 4,
                               .first_ms = 40,
                               .outside_ms = 1,
                               .times_ms = {1.5, 0.5},
                               .intervals = {{0, 4, 0, 8, 1, 128, {6, 2}}, {4, 4, 10, 3, 0, 128, {1, 2}}}});
  record.sums = "two devices";
  record.bound = "compute takes 90% of the time";
  record.others_ms = 1'700'000'000'500;
  record.verdicts = {{"input-bound", "cause", "evidence", "fix", "gain", 1.5}};
  RunRecord::Input input;
  input.root = {.name = "batch", .arguments = "32", .where = "main.cc:1", .elements = 12};
  input.root.inputs.push_back({.name = "range", .arguments = "", .where = ""});
  record.input = input;
  record.memory = {
      {.device = "/CPU:0", .peak = 100, .uses = {"variables"}, .samples = {{0, {40}}, {9, {100}}}}};
  record.timeline = {.first_step = 4,
                     .steps = 1,
                     .rows = {{"host", "main"}},
                     .names = {"matmul", "kernel"},
                     .spans = {{0, 0, 1, 0, 500}}};
  record.kernels = {
      .steps = 1,
      .list =
          {{.name = "matmul", .calls = 2, .total_ns = 500, .flops = 1e3, .half_flops = 5e2, .bytes = 1e2}},
      .flops_per_second = 1e9,
      .half_flops_per_second = 2e9,
      .bytes_per_second = 1e9,
      .ceiling_is = "measured"};
  return record;
}

// One change of a record.
class RecordMutation : public JsonMutation {
 public:
  explicit RecordMutation(uint64_t seed) : JsonMutation(seed, words()) {}

 private:
  static const Words& words() {
    static const Words all{{Json(), true, -1e-300, "", "running", "</script>", Json::list(), Json::object(),
                            Json::List{1, 2}, Json::List{Json::List{}}},
                           {"name", "state", "steps", "replicas", "kernels", "spans"}};
    return all;
  }
};

// True where the text is a record; what is read can be written and read again. Anything but an Error ends the
// program.
inline bool read_or_refuse(const std::string& text) {
  try {
    const Json written = to_json(record_from_json(Json::parse(text)));
    if (to_json(record_from_json(Json::parse(written.dump()))) != written) std::abort();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace lockstep::observe
