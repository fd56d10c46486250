// Interleaved measurement. The candidates for one piece of work take turns, a short reading each, round
// after round, so that whatever else the machine is doing falls on all alike; a candidate is compared
// with the reference by the median of the ratios within the rounds, never by times of different runs.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

struct Reading {
  double us = 0;           // per iteration
  bool disturbed = false;  // its threads had to wait for a core: see waiting.h
  int64_t memory = 0;      // bytes that the step holds at its peak, 0 where nobody tells
};

struct Candidate {
  std::string name;
  // Takes one reading of about so many iterations, after one that is not timed.
  std::function<Reading(int iterations)> read;
  std::string note = {};
  bool is_peer = false;  // another framework
  bool aside = false;    // does more or less than the work, and is not what the summary compares
  // Floating-point operations of one iteration, by the cost rules of its ops; 0: not known.
  double flops = 0;
  double traffic = 0;  // bytes that its kernels read and write
};

// A candidate that calls `step` on the calling thread, and `finish` once behind the last of a reading: what
// has to be waited for.
Candidate in_process(std::string name, std::function<void()> step, std::string note = {},
                     std::function<void()> finish = {});

// A candidate that always runs whole: `run` makes `iterations` of them, whatever length is wanted.
Candidate whole(std::string name, std::function<void()> run, int64_t iterations, std::string note = {});

struct Effort {
  int rounds = 60;
  // A reading is as many iterations as fit: short enough to fall between others' time slices. The pause
  // before it lets the threads of the candidate before stop spinning.
  double reading_us = 4000;
  double pause_us = 5000;

  static Effort quick() { return {.rounds = 12}; }
};

struct Result {
  std::string name;
  std::string note = {};
  bool is_peer = false, aside = false;
  double flops = 0, traffic = 0;
  int64_t memory = 0;                // the most of all readings
  double us = 0;                     // median
  double low = 0, high = 0;          // quartiles
  std::optional<double> ratio = {};  // to the first candidate: median over the rounds
  int clean = 0, rounds = 0;         // undisturbed readings, and all
  // Whether enough undisturbed readings (for the ratio: of both in one round) were there to use them alone.
  // Where not, the figure includes disturbed ones, and the reports put a question mark behind it.
  bool us_is_clean = true, ratio_is_clean = true;
  std::string error = {};  // why there are no figures
  // Seconds from the start of a new process to the end of its first step: with nothing compiled before, and
  // once more.
  std::optional<double> first_step_s = {}, first_step_again_s = {};
};

// The first candidate is the reference. One that throws gets an error in its result; the others go on.
std::vector<Result> measure(const std::vector<Candidate>& candidates, const Effort& effort);

// The same for candidates that do not fit into memory beside each other: `ours` first, which are gone when
// the next is measured, then one after the other, with `release` called behind each. Ratios are of medians.
std::vector<Result> measure_apart(std::vector<Candidate> ours, const std::vector<Candidate>& others,
                                  const Effort& effort, const std::function<void()>& release);

// What a device does at most: a large product (a CPU: multiply-adds in registers), a long array that is read
// and written once.
struct Ceiling {
  double flops_per_second = 0, bytes_per_second = 0;
};

// What was measured, for the reports.
struct Measurement {
  std::string work;
  int64_t batch = 0;  // 0: none
  int threads = 1;
  double bytes = 0;  // moved by one iteration, 0 where a rate in bytes says nothing
  bool on_gpu = false;
  double items = 0;       // that one iteration works on, 0 where nobody counts them
  std::string item = {};  // what they are called: "images"
  std::optional<Ceiling> ceiling = {};
  std::vector<Result> results = {};

  std::string id() const;  // "gpu/lenet/float32/128"
};

// The parts of a result's time that the device would need at its ceilings for the operations and for the
// bytes of the first candidate. Bytes can be above 1: what is read again lies in a cache.
struct Share {
  double flops = 0, bytes = 0;
};
// None where the ceiling or the cost is not known.
std::optional<Share> share_of_ceiling(const Measurement& measurement, const Result& result);

std::string as_table(const Measurement& measurement);
nlohmann::json as_json(const std::vector<Measurement>& measurements);

}  // namespace lockstep::bench
