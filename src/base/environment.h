// Environment variables: every one that Lockstep reads is a row of one table, read as a type, with
// errors that name the variable, its value and what is allowed.
//
// A variable is named by a literal that the compiler looks up in the table: reading one that is not
// listed does not compile. All functions read the process environment without changing it; they are
// thread-safe as long as nobody calls setenv meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::env {

struct Variable {
  std::string_view name;
  std::string_view values;    // what it may hold
  std::string_view fallback;  // what holds where it is not set
  std::string_view meaning;
};

// Sorted by name.
inline constexpr std::array kVariables{
    Variable{"CONDA_PREFIX", "a folder", "none",
             "where the doctor looks for libraries that the loader does not find"},
    Variable{"CUDA_VISIBLE_DEVICES", "numbers or UUIDs of GPUs, separated by commas", "all",
             "which GPUs the CUDA driver shows to the process"},
    Variable{"HOME", "a folder", "none", "where ~/.cache/lockstep is, the folder of downloaded data sets"},
    Variable{"LOCKSTEP_ADDRESS", "host:port", "none",
             "where rank 0 of a run that lockstep launch started is met"},
    Variable{"LOCKSTEP_BENCH_CHECKPOINT_MIB", "a number from 1", "1024",
             "size of the state that the benchmark of checkpoints saves"},
    Variable{"LOCKSTEP_BENCH_FOLDER", "a folder", "the folder of temporary files",
             "where benchmarks write files, and so the disk that they measure"},
    Variable{"LOCKSTEP_BENCH_PEERS", "a folder", "bench/peers in the source tree",
             "where the benchmark finds the scripts of the frameworks beside it"},
    Variable{"LOCKSTEP_BENCH_PYTHON", "a program", "python3",
             "the Python that has the frameworks that are measured beside Lockstep"},
    Variable{"LOCKSTEP_DATA_DIR", "a folder", "lockstep in XDG_CACHE_HOME",
             "where data sets are looked for and kept"},
    Variable{"LOCKSTEP_FLIGHT_RECORDS", "a folder", "none",
             "where each worker of a run that could not go on writes what collectives it made last"},
    Variable{"LOCKSTEP_GROUP_LAUNCHES", "0|1", "1",
             "whether elementwise launches of one program that wait for nothing of each other are made as "
             "one on a GPU"},
    Variable{"LOCKSTEP_LOG", "debug|info|warning|error|off", "info",
             "lowest level of messages that are shown"},
    Variable{"LOCKSTEP_PIN_THREADS", "0|1", "1", "whether the threads of a CPU device keep a core each"},
    Variable{"LOCKSTEP_PLUGIN_PATH", "folders, separated by colons", "none",
             "where plugins (cuda, nccl, mpi, gloo) are looked for before the library's own folder"},
    Variable{"LOCKSTEP_RANK", "a number from 0", "none",
             "which worker this process is in a run that lockstep launch started"},
    Variable{"LOCKSTEP_RESTART", "a number from 0", "none",
             "how often lockstep launch has started this worker before"},
    Variable{"LOCKSTEP_SECRET", "any text, the same for all workers", "none",
             "what the workers of a run know each other by"},
    Variable{"LOCKSTEP_SECRET_FILE", "a file", "none", "where that text is, instead"},
    Variable{"LOCKSTEP_SHARED_MEMORY", "0|1", "1",
             "whether workers that are all on one machine exchange through memory that they share, instead "
             "of their engine"},
    Variable{"LOCKSTEP_WHOLE_STEP_FUSION", "0|1", "1",
             "whether a GPU runs a small compiled program as one kernel made for it"},
    Variable{"LOCKSTEP_WORKERS", "a number from 1", "none",
             "how many workers a run has that lockstep launch started"},
    Variable{"TF_CONFIG", "a JSON object with cluster and task", "none",
             "the machines of a run and this one's place among them"},
    Variable{"TF_FORCE_GPU_ALLOW_GROWTH", "true|false", "each GPU's own setting",
             "whether GPUs take memory as it is needed, whatever the program says"},
    Variable{"VIRTUAL_ENV", "a folder", "none",
             "where the doctor looks for libraries that the loader does not find"},
    Variable{"XDG_CACHE_HOME", "a folder", ".cache in HOME",
             "where the folders of downloaded data sets and of kernels compiled for GPUs are"},
};

inline std::span<const Variable> variables() { return kVariables; }

// The name of a row of the table.
class Name {
 public:
  consteval Name(const char* name) : name_(name) {
    bool listed = false;
    for (const Variable& v : kVariables) listed = listed || v.name == name;
    if (!listed) throw "environment variable not listed in lockstep::env::kVariables";
  }
  const char* c_str() const { return name_; }

 private:
  const char* name_;
};

// The value; nothing where the variable is not set or is empty.
std::optional<std::string> read_string(Name name);

// Throw Error(invalid_argument) where the value is not of the type or not allowed; return `fallback`
// where the variable is not set or is empty.
int64_t read_int(Name name, int64_t fallback, int64_t min, int64_t max);
bool read_bool(Name name, bool fallback);
// The index of the value in `allowed`; case does not matter.
int read_choice(Name name, std::span<const std::string_view> allowed, int fallback);

// The rules behind the functions above, for a value from anywhere; `source` names it in errors.
int64_t parse_int(std::string_view source, std::string_view text, int64_t min, int64_t max);
bool parse_bool(std::string_view source, std::string_view text);
int parse_choice(std::string_view source, std::string_view text, std::span<const std::string_view> allowed);

struct Unknown {
  std::string name;     // set in the environment, starts with LOCKSTEP_, not in the table
  std::string nearest;  // the listed name it was probably meant to be; empty where none is close
};

// Sorted by name.
std::vector<Unknown> unknown_variables();

}  // namespace lockstep::env
