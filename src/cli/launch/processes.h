// Starting processes, and making sure that none is left behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

// How a process ended.
struct ExitStatus {
  int code = 0;    // of exit()
  int signal = 0;  // that killed it; 0: it ended by itself

  static ExitStatus of_wait(int status);
  bool good() const { return code == 0 && signal == 0; }
  // As shells count: 128 and the signal's number.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};
// "exit status 3"; "signal 9 (SIGKILL): ...". Says where such an end often comes from.
std::string describe(const ExitStatus& status);
std::string signal_name(int signal);

using Environment = std::vector<std::pair<std::string, std::string>>;

struct ProcessOptions {
  std::vector<std::string> words;  // the program, as execve() takes it or found in PATH, and its arguments
  const Environment* environment = {};  // all of it; null: this process'
  std::vector<int> cpus = {};           // empty: all
  bool reads = false;                   // from a pipe that we write to; else from /dev/null
  int signal_at_our_death = 0;
};

// A child in a process group of its own, so that a signal can reach it with its children, and Ctrl-C reaches
// only us. Its output and errors are pipes that do not block; both ends that are ours close when it is
// destroyed. The process is neither killed nor waited for then.
class Process {
 public:
  // Throws Error(not_found) where there is no such program, Error(io) where it cannot be started.
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  pid_t id() const { return id_; }
  int input() const { return input_; }  // -1: none
  int output() const { return output_; }
  int errors() const { return errors_; }
  void close_input();
  // To the whole group.
  void signal(int number) const;

 private:
  pid_t id_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
};

// The file that a program's name stands for: as it is where it has a slash, else looked for in `path`, a list
// as PATH is. Throws Error(not_found) or Error(io) that says what is wrong with it and how to write it.
std::string find_program(const std::string& name, const std::string& path);

// Children whose parent has ended become this process' own, so that it can find and end them.
void adopt_orphans();
// Kills all descendants and waits for their ends, `ended` hears of each child's. False where some do not end
// within seconds, as those that a driver holds.
bool end_descendants(const std::function<void(pid_t child, int wait_status)>& ended);

// Text as a shell reads it back as one word.
std::string shell_quoted(const std::string& word);
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace lockstep::launch
