// The links of the machine that this runs on, measured.
#pragma once

#include "lockstep/plan/machines.h"

namespace lockstep::plan {

// Between devices of one process: the rate at which a core copies memory that no cache holds. A sum over n
// devices is made by their threads, each of which reads and writes one n-th of the elements for all.
Link measure_memory();
// Between processes: a TCP connection of the loopback device.
Link measure_loopback();

}  // namespace lockstep::plan
