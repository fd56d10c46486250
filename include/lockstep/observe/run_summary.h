// What a step clock found out: where each replica's time went, step by step and over a run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::observe {

// What a replica's time is spent on. Each is measured on its own; unattributed is what nothing
// measured. The categories of an interval always sum to its wall time.
enum class Category : uint8_t {
  input_wait,             // the next batch is not there yet
  copy,                   // between host and device, or between devices, on the step's path
  compute,                // kernels
  exposed_communication,  // collectives that nothing overlaps
  waiting_for_others,     // another replica has not arrived
  compiling,              // tracing, planning, preparing kernels, first launches; no part of a step's time
  host,                   // Lockstep's own work: launching, bookkeeping
  loop,                   // the program's own work around its steps: the body of its loop, callbacks
  descheduled,            // the thread had work, but the system ran something else
  idle,                   // a device without work, for no reason above
  unattributed,
};
inline constexpr size_t kCategories = 11;

std::string_view name(Category category);

// What a replica counts besides time.
enum class Counter : uint8_t {
  examples,             // examples processed
  slots,                // examples the replica's slices had room for: examples < slots is a partial slice
  host_copies,          // copies between devices on the step's path; prefetched batches do not count
  host_copy_bytes,      //
  value_reads,          // values of a device that the program read on the host, which waits for the device
  traces,               // functions traced and compiled
  checking_ns,          // part of compute in which results were looked at for NaN and infinity
  communication_bytes,  // sent by this replica in collectives
  flops,
  half_flops,  // of them, on 16-bit floats, which GPUs compute on tensor cores
};
inline constexpr size_t kCounters = 10;

std::string_view name(Counter counter);

// Nanoseconds, or counts, by category or counter.
template <class Key, size_t kSize>
struct Table {
  std::array<int64_t, kSize> values{};
  int64_t& operator[](Key key) { return values[static_cast<size_t>(key)]; }
  int64_t operator[](Key key) const { return values[static_cast<size_t>(key)]; }
};
using Times = Table<Category, kCategories>;
using Counts = Table<Counter, kCounters>;

struct StepRecord {
  int64_t index = -1;  // 0 is the replica's first step
  int64_t steps = 1;   // made together, as one launch: all below is of the whole of them
  int64_t start_ns = 0;
  int64_t wall_ns = 0;                // the sum of times
  bool measured_descheduled = false;  // where not, such time is part of the other categories
  Times times;
  Counts counts;
};

// How one duration is distributed over the steps of a run, in nanoseconds; steps that were made as one launch
// have equal shares of its time. Mean, total and max are exact; median, p95 and p10 are within 2%.
struct Distribution {
  int64_t count = 0;
  int64_t total = 0;
  int64_t max = 0;
  double mean = 0;
  double median = 0;
  double p95 = 0;
  double p10 = 0;  // what steps take that nothing disturbs
};

// The time of a run is that of its steps, of what was compiled and what else was between the steps.
struct ReplicaSummary {
  Distribution wall;                            // without compiling, as all that follows
  std::array<Distribution, kCategories> times;  // descheduled: over the steps that measured it
  int64_t measured_wall_ns = 0;                 // of the steps that measured descheduled
  Counts counts;                                // over the steps
  int64_t partial_steps = 0;                    // with fewer examples than slots, but some
  int64_t empty_steps = 0;                      // with slots and no example
  StepRecord first;                             // the first record, which warms up
  int64_t outside_ns = 0;                       // between steps: validation, checkpoints, a pause
  Times outside;
  int64_t compiling_ns = 0;       // wherever that was
  int64_t late_compiling_ns = 0;  // of it, after the first record

  const Distribution& operator[](Category category) const { return times[static_cast<size_t>(category)]; }
};

// What the pipeline that the batches came from says of itself (lockstep/data/explain.h); empty where there is
// none, or where it does not limit.
struct InputSummary {
  std::string bottleneck = {};  // the stage, and why
  std::string fix = {};         // code
};

// How a run was made, which decides what the fix of a verdict looks like.
enum class RunKind : uint8_t {
  loop,          // calls of a compiled function, or none of the others
  strategy,      // a loop over Strategy::run
  arrays,        // fit on arrays in memory
  dataset,       // fit on a dataset
  command_line,  // lockstep train
};
struct RunSetting {
  RunKind kind = RunKind::loop;
  int64_t batch_size = 0;           // as the program gave it, of all replicas together; 0: not known
  int64_t examples = 0;             // that there are to learn from; 0: not known
  int64_t steps_per_execution = 1;  // of fit
  int threads = 0;                  // that compute, of all devices of the process; 0: not known
  int cores = 0;                    // that the process may use; 0: not known
  bool asynchronous = false;        // devices compute beside the host (GPUs), which waits for them in compute
  float waited_for_cores_s = 0;     // of threads of the process that had work; 0: not known
  int same_examples = 1;            // replicas, or workers, that were given the same examples
  double flops_per_second = 0;      // that one replica's device can do at most, in float32; 0: not known
  double half_flops_per_second = 0;  // on 16-bit floats; 0: as many
};

// The memory of one device over a run. Bytes, as they were asked for.
struct MemorySummary {
  // What it was used for: "variables", "function train_step", "prefetched data".
  struct Use {
    std::string name;
    int64_t before = 0;  // the run
    int64_t at_peak = 0;
    int64_t after = 0;
    int64_t grown = 0;  // since the first epoch, where there were several
  };
  struct Sample {
    int64_t ns = 0;  // since the run began
    int64_t bytes = 0;
  };

  std::string device = {};
  int64_t before = 0, peak = 0, after = 0;
  int64_t peak_ns = 0;               // when, since the run began
  int64_t limit = 0;                 // 0: none
  int64_t reserved = 0;              // held from the GPU, with what is cached; 0: the device caches nothing
  int64_t largest_free = 0;          // piece of what is cached
  std::vector<Use> uses = {};        // the largest at the peak first
  std::vector<Sample> samples = {};  // some hundred at most
};

// The fraction of the memory cached after the run that lies outside of its largest piece: 0 where it is one
// piece.
double fragmentation(const MemorySummary& memory);

// One of several processes that trained together.
struct WorkerSummary {
  std::string name = {};  // "worker 1 (process 71 on host b)"
  int replicas = 0;       // its own: they follow those of the workers before it
};

struct RunSummary {
  std::vector<ReplicaSummary> replicas;     // of all workers
  std::vector<WorkerSummary> workers = {};  // empty: one process
  bool measures_descheduled = false;
  RunSetting setting = {};
  std::string trained = "run.json";  // by lockstep train: the run file, or the network
  InputSummary input = {};
  std::string sums = {};                   // how several devices all-reduce, and why like that
  std::string on_cpu = {};                 // what ran there that was to run on a GPU, and why; empty: nothing
  std::vector<MemorySummary> memory = {};  // of the devices that took part; empty: nobody looked
};

// One summary of what each worker knows of itself; `names`: one per worker. A collective ends for all when
// the last has come: what a worker spends in collectives beyond the worker that spends least counts as
// waiting_for_others.
RunSummary joined(std::vector<RunSummary> workers, const std::vector<std::string>& names);

// What came between two summaries of one clock. Of its distributions the counts, totals and means are exact;
// median, p95 and max are the means, for no more is known.
RunSummary between(const RunSummary& before, const RunSummary& now);

// "replica 3", with its worker where there are several: "replica 3 of worker 1 (process 71 on host b)".
std::string replica_name(const RunSummary& summary, size_t replica);

// A few lines: the step's time, examples per second, and for each replica the share of each category.
std::string to_text(const RunSummary& summary);

// The same statistics and all counters, as one JSON object.
std::string to_json(const RunSummary& summary);

}  // namespace lockstep::observe
