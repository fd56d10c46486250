// A run as text, for terminals.
#pragma once

#include <string>

#include "lockstep/observe/run_record.h"

namespace lockstep::cli {

// Some lines, none wider than the terminal.
std::string watch_text(const observe::RunRecord& record, int columns);
// One line.
std::string watch_line(const observe::RunRecord& record);

}  // namespace lockstep::cli
