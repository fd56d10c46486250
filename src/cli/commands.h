// The subcommands. Each adds itself to the program and sets the exit status when it ran.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/observe/run_record.h"

namespace lockstep::cli {

// `words`: those of the call behind the program's name.
void add_train(CLI::App& app, int& status, std::vector<std::string> words);
void add_evaluate(CLI::App& app, int& status);
void add_predict(CLI::App& app, int& status);
void add_convert(CLI::App& app, int& status);
// `program`: the words behind "--", where there are any.
void add_launch(CLI::App& app, int& status, std::vector<std::string> program);
// `words`: those behind the script's name, where there are any.
void add_script(CLI::App& app, int& status, std::vector<std::string> words);
void add_scale(CLI::App& app, int& status);
void add_plan(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_watch(CLI::App& app, int& status);
void add_checkpoint(CLI::App& app, int& status);

// Whether `lockstep train` takes this for a network of its own, and not for the path of a run file: also where
// there is a file or folder of that name.
bool is_network(const std::string& run);

// "lockstep: text" on standard error, one line as far as the terminal has room.
void complain(const std::string& text);
// To standard output, as it is. Throws Error(io) where it cannot be written: what was asked for is not there.
void print_result(const std::string& text);

// The page about a run, into a file that is complete afterwards.
void write_page(const observe::RunRecord& record, AtomicFile& file);

// What an option takes, with short words for what it does not.
CLI::Validator whole_number(int64_t least, int64_t most = INT64_MAX);
CLI::Validator positive_number();
CLI::Validator path();  // what "$FOLDER" becomes where that is not set is none
// A team of more is refused before the system refuses to make the threads.
inline constexpr int64_t kMostThreads = 1024;

}  // namespace lockstep::cli
