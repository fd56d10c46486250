// Trace files in the Trace Event format, as https://ui.perfetto.dev and chrome://tracing open them.
#pragma once

#include <string>

#include "lockstep/base/files.h"
#include "lockstep/observe/span.h"

namespace lockstep::observe {

// The trace as JSON text: spans as complete events, counters, names of groups and rows; times in
// microseconds since the first event, with the nanoseconds kept as decimals. Text that is not UTF-8
// is repaired. "otherData" says how many events were dropped.
std::string trace_json(const Trace& trace);

// Writes it to a file that appears whole or not at all: an existing one is replaced only once the new
// one is complete. Throws Error(io) that names the path.
void write_trace(const Trace& trace, const std::string& path);
// The same into a file that was opened before; committing it is the caller's.
void write_trace(const Trace& trace, AtomicFile& file);

}  // namespace lockstep::observe
