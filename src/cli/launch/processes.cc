#include "cli/launch/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "cli/launch/here.h"
#include "lockstep/base/error.h"

extern "C" char** environ;

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Both ends close when it goes, except those that were taken.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    const bool made = pipe2(ends, O_CLOEXEC) == 0;
    require(made, ErrorCode::io, kHere, "a pipe could not be made: ", std::strerror(errno));
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take(int which) {
    fcntl(ends[which], F_SETFL, O_NONBLOCK);
    return std::exchange(ends[which], -1);
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// What the child does between fork() and execve(): system calls alone.
[[noreturn]] void become(const char* file, char* const* words, char* const* environment,
                         const cpu_set_t* cpus, int signal_at_death, pid_t parent,
                         const std::array<int, 3>& standard, int failed) {
  setpgid(0, 0);
  if (signal_at_death != 0) {
    prctl(PR_SET_PDEATHSIG, signal_at_death);
    if (getppid() != parent) _exit(1);  // it died before that was asked for
  }
  signal(SIGPIPE, SIG_DFL);  // the one that this program ignores
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A wish: a process on other CPUs computes the same.
  if (cpus) sched_setaffinity(0, sizeof *cpus, cpus);
  for (int i = 0; i < 3; ++i) dup2(standard[static_cast<size_t>(i)], i);
  execve(file, words, environment);
  const int error = errno;
  if (write(failed, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

std::string why_not_executed(const std::string& file, int error) {
  if (error == ENOEXEC)
    return file +
           " is neither a program nor a script that names its interpreter: begin it with a line as "
           "#!/bin/sh, or "
           "start it as sh " +
           file;
  if (error == ENOENT) return "the interpreter that the first line of " + file + " names does not exist";
  return fmt::format("{} cannot be started: {}", file, std::strerror(error));
}

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// The children of every process, by parent. Those that end meanwhile are left out.
std::multimap<pid_t, pid_t> children_of_all() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    // The name in parentheses may hold anything, parentheses too.
    const size_t end = text.rfind(") ");
    pid_t parent = 0;
    if (end != std::string::npos && std::sscanf(text.c_str() + end + 2, "%*c %d", &parent) == 1)
      children.emplace(parent, std::atoi(name.c_str()));
  }
  return children;
}

std::set<pid_t> descendants() {
  const std::multimap<pid_t, pid_t> children = children_of_all();
  std::set<pid_t> all;
  std::vector<pid_t> next{getpid()};
  while (!next.empty()) {
    const pid_t parent = next.back();
    next.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child)
      if (all.insert(child->second).second) next.push_back(child->second);
  }
  return all;
}

}  // namespace

ExitStatus ExitStatus::of_wait(int status) {
  return WIFSIGNALED(status) ? ExitStatus{.signal = WTERMSIG(status)}
                             : ExitStatus{.code = WEXITSTATUS(status)};
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit status {}", status.code);
  std::string text = fmt::format("signal {} ({})", status.signal, signal_name(status.signal));
  if (status.signal == SIGKILL) text += ", which the system sends too when memory runs out (look at: dmesg)";
  if (status.signal == SIGSEGV || status.signal == SIGBUS || status.signal == SIGILL ||
      status.signal == SIGFPE || status.signal == SIGABRT)
    text += ", a crash of the program";
  return text;
}

Process::Process(const ProcessOptions& options) {
  const char* path = std::getenv("PATH");
  const std::string file = find_program(options.words.at(0), path ? path : "/usr/local/bin:/usr/bin:/bin");
  std::vector<std::string> words = options.words, variables;
  if (options.environment)
    for (const auto& [name, value] : *options.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) CPU_SET(cpu, &cpus);

  Pipe input, output, errors, failed;
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0)
    become(file.c_str(), arguments.data(), options.environment ? environment.data() : environ,
           options.cpus.empty() ? nullptr : &cpus, options.signal_at_our_death, parent,
           {options.reads ? input.ends[0] : null, output.ends[1], errors.ends[1]}, failed.ends[1]);
  const int fork_error = errno;
  if (null >= 0) close(null);
  require(child > 0, ErrorCode::io, kHere, "a process for ", file,
          " could not be made: ", std::strerror(fork_error));
  setpgid(child, child);  // by both, so that it holds for whoever runs first
  close(std::exchange(failed.ends[1], -1));
  int error = 0;
  ssize_t count = 0;
  while ((count = read(failed.ends[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (count == sizeof error) {
    waitpid(child, nullptr, 0);
    fail(error == ENOEXEC || error == EACCES ? ErrorCode::io : ErrorCode::not_found, kHere,
         why_not_executed(file, error));
  }
  id_ = child;
  if (options.reads) input_ = input.take(1);
  output_ = output.take(0);
  errors_ = errors.take(0);
}

Process::Process(Process&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      errors_(std::exchange(other.errors_, -1)) {}

Process::~Process() {
  close_input();
  if (output_ >= 0) close(output_);
  if (errors_ >= 0) close(errors_);
}

void Process::close_input() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

void Process::signal(int number) const {
  if (id_ > 0) kill(-id_, number);
}

std::string find_program(const std::string& name, const std::string& path) {
  const auto refuse_unless_executable = [](const std::string& file) {
    std::error_code unreadable;
    require(!fs::is_directory(file, unreadable), ErrorCode::io, kHere, file, " is a folder, not a program");
    require(access(file.c_str(), X_OK) == 0, ErrorCode::io, kHere, file, " is not executable: chmod +x ",
            file, file.ends_with(".py") ? ", or start it as python3 " + file : std::string());
  };
  require(!name.empty(), ErrorCode::invalid_argument, kHere, "the program's name is empty");
  if (name.find('/') != std::string::npos) {
    std::error_code error;
    const bool there = fs::exists(name, error);
    require(there, ErrorCode::not_found, kHere, "there is no program ", name, " (",
            error ? error.message() : "in the folder " + fs::current_path(error).string(), ")");
    refuse_unless_executable(name);
    return name;
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t colon = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, colon - begin);
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (is_file(file) && access(file.c_str(), X_OK) == 0) return file;
    begin = colon + 1;
  }
  require(!is_file(name), ErrorCode::not_found, kHere, "there is no program ", name,
          " in the folders of PATH; the one of this folder is called as ./", name);
  fail(ErrorCode::not_found, kHere, "there is no program ", name,
       " in the folders of PATH; is it misspelt, or not installed?");
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool end_descendants(const std::function<void(pid_t child, int wait_status)>& ended) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (true) {
    // Killed one after another, they can make others meanwhile: until there are none.
    for (const pid_t one : descendants()) kill(one, SIGKILL);
    int status = 0;
    pid_t child = 0;
    while ((child = waitpid(-1, &status, WNOHANG)) > 0) ended(child, status);
    if (child < 0 && errno == ECHILD) return true;
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

}  // namespace lockstep::launch
