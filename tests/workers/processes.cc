#include "workers/processes.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include "comm/communicator.h"
#include "comm/free_address_test.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/device/device.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFlag = "--as-worker";

std::map<std::string, Scenario>& scenarios() {
  static std::map<std::string, Scenario> all;
  return all;
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string rank_of_this() {
  for (const char* name : {"LOCKSTEP_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* value = std::getenv(name)) return value;
  return "0";
}

fs::path report_path;

}  // namespace

RegisterScenario::RegisterScenario(const char* name, Scenario scenario) { scenarios()[name] = scenario; }

void note_progress(int64_t step) {
  static const int fd =
      open((report_path.string() + "_progress").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const char* const starts = std::getenv("TEST_STARTS");
  const int64_t note[2] = {starts ? std::atoi(starts) : 0, step};
  [[maybe_unused]] const ssize_t written = pwrite(fd, note, sizeof note, 0);
}

void report(const std::string& line) { std::ofstream(report_path, std::ios::app) << line << '\n'; }

int run_as_worker(int argc, char** argv) {
  if (argc != 5 || std::strcmp(argv[1], kFlag) != 0) return -1;
  // A test program that is killed leaves nobody behind who waits for the others.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  report_path = fs::path(argv[4]) / ("report_" + rank_of_this());
  try {
    const char* const devices = std::getenv("TEST_DEVICES");
    set_logical_cpus({.count = std::atoi(devices ? devices : argv[3]), .threads = 1});
    scenarios().at(argv[2])();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    report(std::string("error: ") + error.what());
    return dynamic_cast<const errors::UnavailableError*>(&error) ? errors::kUnavailableStatus : 1;
  }
}

std::string missing(Launcher launcher) {
  if (launcher == Launcher::mpirun) {
    if (std::system("command -v mpirun > /dev/null 2>&1") != 0) return "mpirun is not installed";
    return comm::missing_backend("mpi");
  }
  return launcher == Launcher::lockstep ? comm::missing_backend("gloo") : std::string();
}

namespace {

struct Process {
  pid_t pid = 0;
  fs::path output;
};

Process start(const std::vector<std::string>& words, const std::vector<std::string>& more,
              const fs::path& output) {
  std::vector<char*> arguments, environment;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& one : more) environment.push_back(const_cast<char*>(one.c_str()));
  // Of two settings of a name the first would count for some, the last for others.
  for (char** own = environ; *own; ++own)
    if (const std::string_view name(*own, std::strchr(*own, '=') - *own + 1);
        std::none_of(more.begin(), more.end(), [&](const std::string& one) { return one.starts_with(name); }))
      environment.push_back(*own);
  environment.push_back(nullptr);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 1);
  posix_spawn_file_actions_adddup2(&actions, fd, 2);
  Process process{.pid = 0, .output = output};
  if (posix_spawnp(&process.pid, words[0].c_str(), &actions, nullptr, arguments.data(), environment.data()) !=
      0)
    process.pid = 0;
  posix_spawn_file_actions_destroy(&actions);
  close(fd);
  return process;
}

std::vector<std::string> environment_of(const Run& run, int worker) {
  std::vector<std::string> all;
  for (const std::string& one : run.environment) {
    const size_t colon = one.find(':');
    const bool for_one = colon != std::string::npos && one.find_first_not_of("0123456789") == colon;
    if (!for_one) all.push_back(one);
    if (for_one && std::stoi(one) == worker) all.push_back(one.substr(colon + 1));
  }
  return all;
}

std::vector<std::string> place_of(const Run& run, int worker, const std::string& address) {
  return {"LOCKSTEP_RANK=" + std::to_string(worker), "LOCKSTEP_WORKERS=" + std::to_string(run.workers),
          "LOCKSTEP_ADDRESS=" + address, "LOCKSTEP_SECRET=a test"};
}

// mpirun's daemon on another machine is started through the namespace of its address, under a name of its
// own: by names Open MPI tells machines apart.
std::vector<std::string> over_network(const Namespaces& network, const fs::path& folder) {
  const fs::path agent = folder / "agent";
  {
    std::ofstream script(agent);
    script << "#!/bin/sh\nhost=$1\nshift\ncase $host in\n";
    for (int m = 0; m < network.size(); ++m)
      script << network.address(m) << ") name=" << network.name(m) << " machine=machine-" << m << ";;\n";
    script << "esac\nexec ip netns exec $name unshare --uts sh -c \"hostname $machine; exec $*\"\n";
  }
  fs::permissions(agent, fs::perms::owner_all);
  return {"OMPI_MCA_plm_rsh_agent=" + agent.string(), "OMPI_MCA_btl=tcp,self", "OMPI_MCA_pml=ob1",
          "OMPI_MCA_btl_tcp_if_include=10.77.0.0/24", "OMPI_MCA_oob_tcp_if_include=10.77.0.0/24"};
}

// Nobody else uses ports of a namespace that was made for this run.
std::string meeting_address(const Run& run) {
  return run.network ? run.network->address(0) + ":29400" : comm::free_address();
}

}  // namespace

std::vector<WorkerResult> run(const Run& run) {
  char folder_name[] = "/tmp/lockstep_workers_XXXXXX";
  const fs::path folder = mkdtemp(folder_name);
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::vector<std::string> own = {self, kFlag, run.scenario, std::to_string(run.devices),
                                        folder.string()};
  const std::string address = meeting_address(run);
  std::vector<Process> processes;
  const auto environment_of = [&](int worker) { return testing::environment_of(run, worker); };
  if (run.launcher == Launcher::mpirun) {
    std::vector<std::string> words = {"mpirun", "-n", std::to_string(run.workers)};
    std::vector<std::string> environment = environment_of(-1);
    if (run.network) {
      words = run.network->enter(0);
      words.insert(words.end(), {"mpirun", "--host"});
      std::string hosts;
      for (int w = 0; w < run.workers; ++w) hosts += (w ? "," : "") + run.network->address(w);
      words.push_back(hosts);
      for (const std::string& word : over_network(*run.network, folder)) environment.push_back(word);
    }
    words.insert(words.end(), own.begin(), own.end());
    environment.insert(environment.end(), {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                           "OMPI_MCA_rmaps_base_oversubscribe=1",
                                           "OMPI_MCA_btl_vader_single_copy_mechanism=none"});
#if defined(__SANITIZE_ADDRESS__)
    // Open MPI keeps memory until the end, also of parts that it has unloaded.
    const char* options = std::getenv("ASAN_OPTIONS");
    environment.push_back(std::string("ASAN_OPTIONS=") + (options ? options : "") + ":detect_leaks=0");
#endif
    processes.push_back(start(words, environment, folder / "output_0"));
  }
  for (int w = 0; run.launcher != Launcher::mpirun && w < run.workers; ++w) {
    std::vector<std::string> environment = environment_of(w);
    if (run.launcher == Launcher::lockstep)
      for (std::string& one : place_of(run, w, address)) environment.push_back(std::move(one));
    std::vector<std::string> words = run.network ? run.network->enter(w) : std::vector<std::string>();
    words.insert(words.end(), own.begin(), own.end());
    processes.push_back(start(words, environment, folder / ("output_" + std::to_string(w))));
  }
  const auto began = std::chrono::steady_clock::now();
  std::vector<WorkerResult> results(static_cast<size_t>(run.workers));
  for (size_t left = processes.size(); left > 0;) {
    for (size_t p = 0; p < processes.size(); ++p) {
      int status = 0;
      if (processes[p].pid == 0 || waitpid(processes[p].pid, &status, WNOHANG) != processes[p].pid) continue;
      processes[p].pid = 0;
      --left;
      results[p].status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      results[p].output = read_all(processes[p].output);
      results[p].seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    if (run.meanwhile && left > 0) {
      std::vector<std::string> reports;
      for (int w = 0; w < run.workers; ++w)
        reports.push_back(read_all(folder / ("report_" + std::to_string(w))));
      run.meanwhile(reports);
    }
    if (left == 1 && run.killed_last >= 0)
      if (const pid_t pid = processes[static_cast<size_t>(run.killed_last)].pid; pid != 0) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (size_t w = 0; w < results.size(); ++w) {
    results[w].report = read_all(folder / ("report_" + std::to_string(w)));
    if (run.launcher == Launcher::mpirun && w > 0)
      results[w].status = results[0].status, results[w].output = results[0].output;
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return results;
}

Crew::Crew(Run run) : run_(std::move(run)), address_(meeting_address(run_)) {
  char folder_name[] = "/tmp/lockstep_workers_XXXXXX";
  folder_ = mkdtemp(folder_name);
  processes_.resize(static_cast<size_t>(run_.workers));
  for (int w = 0; w < run_.workers; ++w) start(w);
}

Crew::~Crew() {
  for (int w = 0; w < run_.workers; ++w) kill(w);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool Crew::running(int worker) {
  Place& place = processes_[static_cast<size_t>(worker)];
  int status = 0;
  if (place.pid == 0) return false;
  if (waitpid(place.pid, &status, WNOHANG) != place.pid) return true;
  place.pid = 0;
  place.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return false;
}

void Crew::signal(int worker, int number) {
  if (running(worker)) ::kill(processes_[static_cast<size_t>(worker)].pid, number);
}

void Crew::kill(int worker) {
  signal(worker, SIGKILL);
  while (running(worker)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Crew::start(int worker, const std::vector<std::string>& more) {
  Place& place = processes_[static_cast<size_t>(worker)];
  std::vector<std::string> environment = environment_of(run_, worker);
  for (const std::string& one : place_of(run_, worker, address_)) environment.push_back(one);
  environment.insert(environment.end(), more.begin(), more.end());
  environment.push_back("TEST_STARTS=" + std::to_string(place.starts));
  const std::string output = detail::concat("output_", worker, "_", place.starts++);
  std::vector<std::string> words = run_.network ? run_.network->enter(worker) : std::vector<std::string>();
  words.insert(words.end(), {fs::read_symlink("/proc/self/exe").string(), kFlag, run_.scenario,
                             std::to_string(run_.devices), folder_});
  place.pid = testing::start(words, environment, fs::path(folder_) / output).pid;
  place.status = -1;
  place.started = std::chrono::steady_clock::now();
}

std::string Crew::report(int worker) const {
  return read_all(fs::path(folder_) / ("report_" + std::to_string(worker)));
}

int64_t Crew::progress(int worker) const {
  const std::string bytes = read_all(fs::path(folder_) / detail::concat("report_", worker, "_progress"));
  int64_t note[2] = {-1, -1};
  if (bytes.size() == sizeof note) std::memcpy(note, bytes.data(), sizeof note);
  return note[0] == processes_[static_cast<size_t>(worker)].starts - 1 ? note[1] : -1;
}

double Crew::seconds_since_start(int worker) const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       processes_[static_cast<size_t>(worker)].started)
      .count();
}

std::string Crew::folder() const {
  const fs::path inside = fs::path(folder_) / "files";
  fs::create_directories(inside);
  return inside.string();
}

std::vector<WorkerResult> Crew::wait() {
  std::vector<WorkerResult> results(processes_.size());
  for (size_t w = 0; w < results.size(); ++w) {
    while (running(static_cast<int>(w))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    results[w].status = processes_[w].status;
    results[w].report = report(static_cast<int>(w));
    for (int i = 0; i < processes_[w].starts; ++i)
      results[w].output += read_all(fs::path(folder_) / detail::concat("output_", w, "_", i));
  }
  return results;
}

}  // namespace lockstep::testing
