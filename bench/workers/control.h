// How the benchmark speaks to the processes of a run that it measures. Stands alone: the programs that
// measure an engine itself include it too.
//
// In a folder there are named pipes: in_RANK, from which each process reads what to do, and out, into which
// rank 0 writes what it took. So a process that waits for the next reading takes no time from the others.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "bench/waiting.h"

namespace lockstep::bench {

// A reading: so many iterations on so many bytes.
struct Order {
  int64_t bytes = 0;
  int64_t iterations = 0;
};
struct Answer {
  double us = 0;  // per iteration
  int64_t disturbed = 0;
};

// A step of a process that trains until it is killed.
struct StepEnd {
  int64_t ns = 0;
  int64_t workers = 0;
};

inline std::string pipe_to(const std::string& folder, int rank) {
  return folder + "/in_" + std::to_string(rank);
}
inline std::string pipe_from(const std::string& folder) { return folder + "/out"; }

// What a process of the run does until the pipe is closed: `prepare(bytes)`, and then `step()` again and
// again.
template <class Prepare, class Step>
int serve(const std::string& folder, int rank, Prepare prepare, Step step) {
  const int in = open(pipe_to(folder, rank).c_str(), O_RDONLY | O_CLOEXEC);
  const int out = rank == 0 ? open(pipe_from(folder).c_str(), O_WRONLY | O_CLOEXEC) : -1;
  int64_t prepared = -1;
  for (Order order; read(in, &order, sizeof order) == static_cast<ssize_t>(sizeof order);) {
    if (order.bytes != prepared) prepare(order.bytes);
    prepared = order.bytes;
    step();
    const int64_t waited = waited_ns();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < order.iterations; ++i) step();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    const double waited_us = static_cast<double>(waited_ns() - waited) * 1e-3;
    const Answer answer{elapsed.count() / static_cast<double>(order.iterations),
                        waited_us > kDisturbed * elapsed.count()};
    if (rank == 0 && write(out, &answer, sizeof answer) != static_cast<ssize_t>(sizeof answer)) return 1;
  }
  return 0;
}

}  // namespace lockstep::bench
