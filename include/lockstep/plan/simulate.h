// One training step of many replicas, simulated: what a device launches, the buckets of gradients that it
// fills meanwhile, and their sums over all devices, beside the launches or between them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/plan/machines.h"

namespace lockstep::plan {

// --- what a sum over devices takes -------------------------------------------------------------------------

struct Network {
  Link inside = {};   // between the devices of a node
  Link between = {};  // between nodes
  int per_node = 8;   // devices
  int rails = 0;      // network cards of a node; 0: one per device
};

struct SumTime {
  double inside_s = 0;   // over the links of the nodes
  double between_s = 0;  // over the network
  double total() const { return inside_s + between_s; }
};

// An all-reduce of so many bytes over n devices that are alike: the faster one of a ring, 2 (n - 1) messages
// of 1/n of the bytes each, and a tree, 2 log2(n) messages with all bytes on their way twice. Over several
// nodes: reduce-scatter inside, an all-reduce of each device's part between nodes, all-gather inside.
double all_reduce_s(double bytes, int64_t devices, const Link& link);
SumTime all_reduce_s(double bytes, int64_t devices, const Network& network);

// How far the slowest of n is from the mean, in standard deviations: the expected maximum of n normal values.
double expected_maximum(int64_t n);

// --- a step ------------------------------------------------------------------------------------------------

struct Launch {
  double seconds = 0;
  int phase = 0;  // launches of a phase begin when all sums in front of it are there
};

struct Sum {
  double bytes = 0;
  int phase = 0;  // whose launches need it
  int ready = 0;  // launches of the step after which the addend is there
};

struct Step {
  std::vector<Launch> launches;  // in order, by phase
  std::vector<Sum> sums;
  double host_s = 0;  // of a process, before the first launch: nothing overlaps it
};

// Sums that are made together.
struct Bucket {
  double bytes = 0;
  int phase = 0;
  int ready = 0;
};
// As the executor makes them on GPUs. `asked`: ReplicaOptions::bucket_bytes.
std::vector<Bucket> buckets_of(const std::vector<Sum>& sums, int64_t asked = -1);

struct Surroundings {
  int64_t devices = 1;
  Network network = {};
  int64_t bucket_bytes = -1;
  // Launches take a normally distributed time, with this standard deviation as a part of the mean; a sum
  // waits for the slowest.
  double jitter = 0;
  // Processes work for so many devices each, one behind the other, before the first launch.
  int64_t devices_per_process = 1;
  // Who makes the sums: another stream, beside the launches, or the device's own threads, between them.
  bool sums_beside = true;
  // The cores of the machine that all devices share, those that each device needs while it computes, and
  // those that sums beside the computation need. A process needs one core while it works for its devices.
  double cores = std::numeric_limits<double>::infinity();
  double cores_per_device = 0;
  double cores_per_sum = 0;

  int64_t processes(int64_t devices) const {
    return (devices + devices_per_process - 1) / devices_per_process;
  }
};

struct SimulatedBucket {
  double bytes = 0;
  double filled_s = 0, began_s = 0, ended_s = 0;
  SumTime takes = {};
};

struct Simulated {
  double step_s = 0;
  double compute_s = 0;    // of one device's launches, were it alone
  double straggler_s = 0;  // what the slowest device takes longer
  double shared_s = 0;     // processes, launches and sums waited for cores
  double sums_s = 0;       // all sums, were each alone
  double exposed_s = 0;    // sums that no launch ran beside
  double host_s = 0;
  SumTime sums = {};
  std::vector<SimulatedBucket> buckets;
};

Simulated simulate(const Step& step, const Surroundings& surroundings);

}  // namespace lockstep::plan
