// What the launcher and the agents on its machines say to each other: lines over the agent's input and
// output, which may be a pipe, a connection of ssh, or a step of srun, which gives every line of input to all
// agents and mixes their lines of output.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/machine.h"
#include "cli/launch/processes.h"
#include "lockstep/base/json.h"

namespace lockstep::launch {

// --- to an agent -------------------------------------------------------------------------------------------

// What it is to start when it is told to; it looks whether it can.
struct Preparation {
  std::vector<int> ranks = {};  // empty: the agent is a task of srun, and its one rank is the task's
  int workers = 1;              // of the whole job
  std::vector<std::string> program = {};
  std::string folder = {};        // to work in
  std::string meeting_host = {};  // where rank 0 is met; must be known to every machine. Empty: not looked up
  Environment environment = {};   // beside the agent's own
  double silence_s = 0;  // without a word from the launcher, the agent ends everything; 0: it may be silent
};

struct Start {
  std::string address = {};  // host:port at which rank 0 is met
  std::string secret = {};
  int restart = 0;  // how often the job, or this worker, was started before
  // What each of the ranks to be started may use; an agent starts those of its own. Without a value: all of
  // the machine.
  std::map<int, std::optional<Share>> workers = {};
};

struct Signal {
  int number = 0;
};

// One JSON object without a line break, whatever bytes the texts hold.
std::string to_line(const Preparation& preparation);
std::string to_line(const Start& start);
std::string to_line(const Signal& signal);
extern const std::string kKillLine;   // all workers, at once
extern const std::string kAliveLine;  // the launcher is there
extern const std::string kEndLine;    // leave nothing behind and go

Preparation preparation_from(const Json& json);
Start start_from(const Json& json);

// --- from an agent -----------------------------------------------------------------------------------------

enum class ReportKind : char {
  ready = 'r',    // a ReadyReport
  refused = 'n',  // a Refusal
  started = 's',  // the worker's process id
  output = 'o',   // a line of the worker's output,
  errors = 'e',   // of its errors
  ended = 'x',    // "code signal"
};

struct Report {
  ReportKind kind = ReportKind::output;
  int rank = 0;  // of a worker, or the agent's first
  std::string text = {};
};

struct ReadyReport {
  std::vector<int> ranks = {};
  std::string host = {};
  int process = 0;  // the agent's
  int port = 0;     // free when it was looked for
  Machine machine = {};
};

struct Refusal {
  int code = 1;  // what the launcher ends with
  std::string message = {};
};

// With line feeds: as many lines as it takes for none to be longer than srun gives on in one piece.
std::string to_lines(const Report& report);

// Puts reports together from the lines of one or several agents.
class ReportReader {
 public:
  // Nullopt where the report goes on with another line. Where the line is no agent's (a greeting of a shell,
  // an error of srun) `is_report` is false.
  std::optional<Report> read(std::string_view line, bool& is_report);

 private:
  std::map<int, std::string> begun_;  // by rank
};

std::string to_text(const ReadyReport& ready);
ReadyReport ready_from(std::string_view text);
std::string to_text(const Refusal& refusal);
Refusal refusal_from(std::string_view text);
std::string to_text(const ExitStatus& status);
ExitStatus exit_status_from(std::string_view text);

}  // namespace lockstep::launch
