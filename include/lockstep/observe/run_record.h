// The record of a run: what it leaves for those who look at it, while it goes on, after it has ended, and
// after it was killed. `lockstep report`, `watch` and `doctor DIR` read it; keras::callbacks::RunRecord
// writes it.
//
// One file, record.json, which is replaced as a whole every few seconds. However long the run, it has some
// hundred kB: steps become longer intervals, curves keep a bounded number of points. docs/record.md says what
// is in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/observe/kernel_profile.h"
#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/verdict.h"

namespace lockstep::observe {

struct RunRecord {
  static constexpr int64_t kSchema = 1;  // members may be added under the same number, but not changed
  static constexpr std::string_view kFile = "record.json";

  // failed: training ended with an error. A run that was killed stays `running`: looks_dead() knows.
  enum class State : uint8_t { running, finished, interrupted, failed };
  State state = State::running;
  std::string model = {};
  std::string host = {};  // whose process writes the record
  int64_t process = 0;
  int64_t started_ms = 0;  // since 1970, by the clock of that host
  int64_t updated_ms = 0;
  int64_t epoch = 0;             // epochs that have ended
  int64_t epochs = 0;            // that there shall be
  int64_t step = 0;              // steps made, those before a restart included
  int64_t steps_per_epoch = -1;  // -1: not known
  double examples_per_second = 0;
  Json configuration = Json::object();  // what the program says of the run, in its own words
  Json versions = Json::object();       // of the library and of what it stands on: name to text

  // Loss and metrics. A value that an epoch did not have, or that is no number, is NaN.
  struct Curve {
    std::string name;
    std::vector<double> values;  // by point
  };
  std::vector<int64_t> history_epochs = {};  // from 0; one per point of the curves
  std::vector<Curve> curves = {};
  struct Loss {
    int64_t step;
    double loss;  // of this step alone
  };
  std::vector<Loss> losses = {};

  // Steps that follow each other. Intervals of all replicas begin at multiples of `interval_steps`, a power
  // of two.
  struct Interval {
    int64_t first_step = 0;
    int64_t steps = 0;       // that were timed
    int64_t start_ns = 0;    // since the run began
    int64_t wall_ns = 0;     // the sum of times_ns
    int64_t outside_ns = 0;  // between these steps: validation, callbacks, checkpoints
    int64_t examples = 0;
    std::vector<int64_t> times_ns = {};  // by category
  };
  // Times of a mean step, without the first one, and of single steps.
  struct Replica {
    std::string name;
    int64_t steps = 0;
    double mean_ms = 0, median_ms = 0, p95_ms = 0, max_ms = 0, first_ms = 0;
    double outside_ms = 0;
    std::vector<double> times_ms = {};  // by category; their sum is mean_ms
    std::vector<Interval> intervals = {};
  };
  std::vector<std::string> categories = {};  // the names, in the order of all times
  int64_t interval_steps = 1;
  std::vector<Replica> replicas = {};
  std::string sums = {};  // how several devices all-reduce
  std::vector<Verdict> verdicts = {};
  std::string bound = {};  // of a run without any, what bounds it (observe::bound_by)
  int64_t others_ms = 0;   // since 1970, when the statistics of other workers came in; 0: there are none

  // The input pipeline, where the data is a dataset (lockstep/data/explain.h).
  struct Stage {
    std::string name, arguments, where;
    int64_t elements = 0;
    double elements_per_s = 0, self_ns = 0, busy = 0;
    int64_t threads = 0, slots = 0;
    double ready = 0, waited = 0;
    std::vector<Stage> inputs = {};
  };
  struct Input {
    double seconds = 0;
    int64_t elements = 0;
    double consumer = 0;
    Stage root;
    std::string bottleneck, where, cause, fix;
    double speedup = 1;
  };
  std::optional<Input> input = {};

  struct MemorySample {
    int64_t ms;                  // since the run began
    std::vector<int64_t> bytes;  // by use
  };
  struct Memory {
    std::string device;
    int64_t peak = 0, limit = 0, reserved = 0;  // bytes; 0: no limit, nothing is cached
    std::vector<std::string> uses = {};
    std::vector<MemorySample> samples = {};
  };
  std::vector<Memory> memory = {};

  // Some steps in full.
  struct Row {
    std::string group, name;
  };
  struct Span {
    int64_t row, name, category;  // of `rows`, `names` and `names`
    int64_t start_ns, duration_ns;
  };
  struct Timeline {
    int64_t first_step = 0, steps = 0;
    std::vector<Row> rows = {};
    std::vector<std::string> names = {};
    std::vector<Span> spans = {};  // by start
  };
  std::optional<Timeline> timeline = {};

  // The kernels that took longest in the steps of the timeline, and what the device can do at most.
  struct Kernels {
    int64_t steps = 1;
    std::vector<KernelTime> list = {};  // the longest first
    KernelTime others = {};             // all that are not in the list, as one
    double flops_per_second = 0;        // 0: not known
    double half_flops_per_second = 0;   // on 16-bit floats; 0: as many
    double bytes_per_second = 0;
    std::string ceiling_is = {};  // "multiply-adds in registers, measured"
  };
  std::optional<Kernels> kernels = {};
};

std::string_view name(RunRecord::State state);

// The time that a kernel's operations or bytes would take at the ceiling, as a fraction of the time that it
// took; nullopt where the ceiling or the kernel's operations are not known.
std::optional<double> share_of_ceiling(const KernelTime& kernel, const RunRecord::Kernels& of);

// Whether a running record's process is gone, as far as this machine can tell: false where it is another's.
bool looks_dead(const RunRecord& record);

// Strict: what has the wrong kind, the wrong length or an index that is out of range is
// Error(invalid_argument) with the place ("replicas[2].intervals[5]: ..."). Members that it does not know are
// left out.
Json to_json(const RunRecord& record);
RunRecord record_from_json(const Json& json);

// `path`: the file, or the folder that it lies in. Throws Error(not_found) that says how a run comes to leave
// one.
RunRecord read_record(const std::string& path);
// Into the folder, which is made; complete or not at all.
void write_record(const RunRecord& record, const std::string& folder);

}  // namespace lockstep::observe
