// Interleaved measurement. The candidates for one piece of work take turns, a short reading each, round
// after round, so that whatever else the machine is doing falls on all alike; a candidate is compared
// with the reference by the median of the ratios within the rounds, never by times of different runs.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

struct Reading {
  double us = 0;           // per iteration
  bool disturbed = false;  // its threads had to wait for a core: see waiting.h
};

struct Candidate {
  std::string name;
  // Takes one reading of about so many iterations, after one that is not timed.
  std::function<Reading(int iterations)> read;
  std::string note = {};
};

// A candidate that calls `step` on the calling thread.
Candidate in_process(std::string name, std::function<void()> step, std::string note = {});

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
  double us = 0;                     // median
  double low = 0, high = 0;          // quartiles
  std::optional<double> ratio = {};  // to the first candidate: median over the rounds
  int clean = 0, rounds = 0;         // undisturbed readings, and all
  // Whether enough undisturbed readings (for the ratio: of both in one round) were there to use them alone.
  // Where not, the figure includes disturbed ones, and the reports put a question mark behind it.
  bool us_is_clean = true, ratio_is_clean = true;
  std::string error = {};  // why there are no figures
};

// The first candidate is the reference. One that throws gets an error in its result; the others go on.
std::vector<Result> measure(const std::vector<Candidate>& candidates, const Effort& effort);

// What was measured, for the reports.
struct Measurement {
  std::string work;
  int64_t batch = 0;  // 0: none
  int threads = 1;
  double bytes = 0;  // moved by one iteration, 0 where a rate in bytes says nothing
  bool on_gpu = false;
  double items = 0;       // that one iteration works on, 0 where nobody counts them
  std::string item = {};  // what they are called: "images"
  std::vector<Result> results;
};

std::string as_table(const Measurement& measurement);
nlohmann::json as_json(const std::vector<Measurement>& measurements);

}  // namespace lockstep::bench
