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
  host,                   // Lockstep's own work: launching, tracing, bookkeeping, callbacks
  descheduled,            // the thread had work, but the system ran something else
  idle,                   // a device without work, for no reason above
  unattributed,
};
inline constexpr size_t kCategories = 9;

std::string_view name(Category category);

// What a replica counts besides time.
enum class Counter : uint8_t {
  examples,             // examples processed
  slots,                // examples the replica's slices had room for: examples < slots is a partial slice
  host_copies,          // copies between host and device on the step's path; prefetched batches do not count
  host_copy_bytes,      //
  value_reads,          // values read by the program on the host, each of which waits for the device
  traces,               // functions traced and compiled
  trace_ns,             // time that took
  communication_bytes,  // sent by this replica in collectives
  flops,
};
inline constexpr size_t kCounters = 9;

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

// Of one duration over the steps of a run, in nanoseconds; steps made together have equal shares of theirs.
// Mean, total and max are exact; median and p95 are within 2%.
struct Distribution {
  int64_t count = 0;
  int64_t total = 0;
  int64_t max = 0;
  double mean = 0;
  double median = 0;
  double p95 = 0;
};

struct ReplicaSummary {
  Distribution wall;
  std::array<Distribution, kCategories> times;  // descheduled: over the steps that measured it
  int64_t measured_wall_ns = 0;                 // of the steps that measured descheduled
  Counts counts;                                // over the steps
  int64_t partial_steps = 0;                    // with fewer examples than slots, but some
  int64_t empty_steps = 0;                      // with slots and no example
  StepRecord first;                             // the first record, with its tracing and warming up
  int64_t outside_ns = 0;                       // between steps: validation, callbacks, checkpoints
  Times outside;

  const Distribution& operator[](Category category) const { return times[static_cast<size_t>(category)]; }
};

// What the pipeline that the batches came from says of itself (lockstep/data/explain.h); empty where there is none, or
// where it does not limit.
struct InputSummary {
  std::string bottleneck = {};  // the stage, and why
  std::string fix = {};         // code
};

// The memory of one device over a run. Bytes, as they were asked for.
struct MemorySummary {
  // What it was used for: "variables", "train_step: program", "data ahead".
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

// Of the memory that is cached after the run, the part that the largest piece is not: 0 where it is all one piece.
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
  InputSummary input = {};
  std::string sums = {};                   // how several devices all-reduce, and why like that
  std::vector<MemorySummary> memory = {};  // of the devices that took part; empty: nobody looked
};

// One summary of what each worker knows of itself; `names`: one per worker. A collective ends for all when the last has come:
// what a worker spends in collectives beyond the worker that spends least counts as waiting_for_others.
RunSummary joined(std::vector<RunSummary> workers, const std::vector<std::string>& names);

// "replica 3", with its worker where there are several: "replica 3 of worker 1 (process 71 on host b)".
std::string replica_name(const RunSummary& summary, size_t replica);

// A few lines: the step's time, examples per second, and for each replica the share of each category.
std::string to_text(const RunSummary& summary);

// The same statistics and all counters, as one JSON object.
std::string to_json(const RunSummary& summary);

}  // namespace lockstep::observe
