#include "bench/workers.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "bench/workers/control.h"
#include "comm/cluster.h"
#include "comm/communicator.h"
#include "comm/free_address_test.h"
#include "comm/workers.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFlag = "--as-bench-worker";

// The processes of one run, which wait for orders; ended with it.
class Fleet {
 public:
  using Words = std::vector<std::string>;
  struct Process {
    Words words;
    Words environment = {};
    int core = -1;  // -1: any
  };

  // `workers`: how many pipes; under mpirun one process starts them all.
  Fleet(int workers, const std::function<std::vector<Process>(const std::string& folder)>& processes) {
    char name[] = "/tmp/lockstep_bench_XXXXXX";
    folder_ = mkdtemp(name);
    for (int w = 0; w < workers; ++w) make_pipe(pipe_to(folder_, w));
    make_pipe(pipe_from(folder_));
    started_ = processes(folder_);
    for (const Process& process : started_) processes_.push_back(start(process));
    // Opened for both directions, so that nobody waits for the other end.
    for (int w = 0; w < workers; ++w) to_.push_back(open(pipe_to(folder_, w).c_str(), O_RDWR | O_CLOEXEC));
    from_ = open(pipe_from(folder_).c_str(), O_RDWR | O_CLOEXEC);
  }
  ~Fleet() {
    for (const int fd : to_) close(fd);
    close(from_);
    std::erase(processes_, 0);
    for (const pid_t pid : processes_) kill(pid, SIGTERM);
    for (const pid_t pid : processes_) waitpid(pid, nullptr, 0);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  Reading read(int64_t bytes, int iterations) {
    const Order order{bytes, iterations};
    for (const int fd : to_)
      require(write(fd, &order, sizeof order) == static_cast<ssize_t>(sizeof order), ErrorCode::io,
              std::source_location::current(), "a process of the run takes no orders");
    Answer taken;
    take(taken);
    return {.us = taken.us, .disturbed = taken.disturbed != 0};
  }

  // Without a chance to say goodbye; returns when it was, in nanoseconds of monotonic_ns().
  int64_t kill_one(size_t process) {
    const int64_t now = monotonic_ns();
    kill(processes_[process], SIGKILL);
    waitpid(std::exchange(processes_[process], 0), nullptr, 0);
    return now;
  }
  void start_again(size_t process) { processes_[process] = start(started_[process]); }

  // When the first step after `ns` ended that was made by so many workers.
  int64_t step_of(int64_t workers, int64_t after) {
    for (StepEnd step;;)
      if (take(step); step.workers == workers && step.ns > after) return step.ns;
  }

 private:
  template <class T>
  void take(T& answer) {
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, 100) == 0)
      for (const pid_t pid : processes_)
        require(pid == 0 || waitpid(pid, nullptr, WNOHANG) == 0, ErrorCode::io,
                std::source_location::current(), "process ", pid, " of the run has ended");
    require(::read(from_, &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer), ErrorCode::io,
            std::source_location::current(), "a process of the run gave half an answer");
  }

  static void make_pipe(const std::string& path) {
    require(mkfifo(path.c_str(), 0600) == 0, ErrorCode::io, std::source_location::current(), path, ": ",
            std::strerror(errno));
  }

  static pid_t start(const Process& process) {
    const pid_t pid = fork();
    require(pid >= 0, ErrorCode::io, std::source_location::current(), "fork: ", std::strerror(errno));
    if (pid > 0) return pid;
    if (process.core >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(process.core, &set);
      sched_setaffinity(0, sizeof set, &set);
    }
    for (const std::string& setting : process.environment) putenv(const_cast<char*>(setting.c_str()));
    std::vector<char*> words;
    for (const std::string& word : process.words) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    _exit(127);
  }

  std::string folder_;
  std::vector<Process> started_;
  std::vector<pid_t> processes_;  // of each; 0: it was killed
  std::vector<int> to_;
  int from_ = -1;
};

std::string self() { return fs::read_symlink("/proc/self/exe").string(); }
std::string beside(const char* program) { return fs::path(self()).parent_path() / program; }

// Lockstep's workers that meet at a free address.
std::vector<Fleet::Process> gloo_workers(int workers, const Fleet::Words& words,
                                         const char* log_level = "warning") {
  std::vector<Fleet::Process> all;
  const std::string address = comm::free_address();
  for (int w = 0; w < workers; ++w)
    all.push_back(
        {.words = words,
         .environment = {"LOCKSTEP_RANK=" + std::to_string(w), "LOCKSTEP_WORKERS=" + std::to_string(workers),
                         "LOCKSTEP_ADDRESS=" + address, "LOCKSTEP_SECRET=of a benchmark",
                         std::string("LOCKSTEP_LOG=") + log_level}});
  return all;
}

// Where there are as many cores as workers each has one: two on the same core would wait for each other's
// time slices. Otherwise both sides of a comparison are crowded alike.
bool have_a_core_each(int workers) {
  return static_cast<int>(std::thread::hardware_concurrency()) >= workers;
}

std::vector<Fleet::Process> with_a_core_each(std::vector<Fleet::Process> processes) {
  if (have_a_core_each(static_cast<int>(processes.size())))
    for (size_t w = 0; w < processes.size(); ++w) processes[w].core = static_cast<int>(w);
  return processes;
}

Fleet::Process under_mpirun(int workers, Fleet::Words words) {
  const Fleet::Words mpirun = {"mpirun", "-n", std::to_string(workers)};
  words.insert(words.begin(), mpirun.begin(), mpirun.end());
  return {.words = std::move(words),
          .environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                          "OMPI_MCA_rmaps_base_oversubscribe=1",
                          have_a_core_each(workers) ? "OMPI_MCA_hwloc_base_binding_policy=core"
                                                    : "OMPI_MCA_hwloc_base_binding_policy=none",
                          "OMPI_MCA_btl_vader_single_copy_mechanism=none", "LOCKSTEP_LOG=warning"}};
}

Candidate of_fleet(std::string name, const std::shared_ptr<Fleet>& fleet, int64_t bytes) {
  return {.name = std::move(name),
          .read = [fleet, bytes](int iterations) { return fleet->read(bytes, iterations); }};
}

Candidate that_fails(std::string name, const std::string& why) {
  return {.name = std::move(name), .read = [why](int) -> Reading {
            fail(ErrorCode::unsupported, std::source_location::current(), why);
          }};
}

// --- what a process does -----------------------------------------------------------------------------------

int serve_all_reduce(const std::string& folder) {
  const auto workers = comm::Workers::meet(comm::read_cluster(), {});
  std::vector<float> data;
  return serve(
      folder, workers->rank(),
      [&](int64_t bytes) { data.assign(static_cast<size_t>(bytes) / sizeof(float), 0.0f); },
      [&] {
        workers->all_reduce_sum("benchmark", data.data(), static_cast<int64_t>(data.size()), DType::float32);
      });
}

int serve_lenet(const std::string& folder, int devices) {
  set_logical_cpus({.count = devices, .threads = 1});
  set_random_seed(7);
  const distribute::MultiWorkerMirroredStrategy strategy({.report = false});
  keras::Model model;
  std::optional<keras::optimizers::Optimizer> optimizer;
  {
    const auto scope = strategy.scope();
    model = keras::applications::lenet();
    optimizer.emplace(keras::optimizers::Adam());
  }
  const keras::Loss loss = keras::losses::SparseCategoricalCrossentropy(
      {.from_logits = true, .reduction = keras::Reduction::none});
  const Tensor x = random::normal({kWorkersBatch, 28, 28, 1});
  const Tensor y = random::uniform({kWorkersBatch}, {.minval = 0, .maxval = 10, .dtype = DType::int32});
  const auto step = [&](const Tensor& images, const Tensor& labels) {
    GradientTape tape;
    const Tensor mean = distribute::global_mean(loss(labels, model(images, {.training = true})));
    optimizer->apply_gradients(tape.gradient(mean, model.trainable_variables()), model.trainable_variables());
    return mean;
  };
  const distribute::Distributed images = strategy.distribute(x), labels = strategy.distribute(y);
  return serve(
      folder, strategy.worker(), [](int64_t) {}, [&] { strategy.run(step, images, labels); });
}

// Trains until it is killed, and tells of every step's end.
class TellsStepEnds final : public keras::CallbackBase {
 public:
  TellsStepEnds(const std::string& folder, const distribute::Strategy& strategy)
      // Nobody reads between two readings: what does not fit into the pipe is lost.
      : out_(open(pipe_from(folder).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)), strategy_(strategy) {}
  ~TellsStepEnds() override { close(out_); }
  void on_train_batch_end(int64_t, const keras::Logs&) override {
    const StepEnd step{monotonic_ns(), strategy_.num_workers()};
    [[maybe_unused]] const ssize_t written = write(out_, &step, sizeof step);
  }

 private:
  const int out_;
  const distribute::Strategy strategy_;
};

int serve_elastic(const std::string& folder) {
  set_logical_cpus({.count = 1, .threads = 1});
  set_random_seed(7);
  const distribute::MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .report = false, .elastic = {.min_workers = 2}});
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = keras::applications::lenet();
    model.compile(
        {.optimizer = "adam", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const Tensor x = random::normal({4 * kWorkersBatch, 28, 28, 1});
  const Tensor y = random::uniform({4 * kWorkersBatch}, {.minval = 0, .maxval = 10, .dtype = DType::int32});
  model.fit(x, y,
            {.batch_size = kWorkersBatch,
             .epochs = 1 << 30,
             .verbose = 0,
             .callbacks = {keras::make_callback<TellsStepEnds>(folder, strategy)}});
  return 0;
}

}  // namespace

std::optional<int> run_as_bench_worker(int argc, char** argv) {
  if (argc < 4 || std::strcmp(argv[1], kFlag) != 0) return std::nullopt;
  try {
    if (std::strcmp(argv[3], "all_reduce") == 0) return serve_all_reduce(argv[2]);
    if (std::strcmp(argv[3], "elastic") == 0) return serve_elastic(argv[2]);
    return serve_lenet(argv[2], std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a worker of the benchmark: %s\n", error.what());
    return 1;
  }
}

std::vector<Candidate> worker_all_reduce_candidates(WorkerEngine engine, int workers, int64_t bytes) {
  const bool mpi = engine == WorkerEngine::mpi;
  const char* const name = mpi ? "MPI itself" : "Gloo itself";
  const std::string bare = beside(mpi ? "lockstep_bench_mpi" : "lockstep_bench_gloo");
  std::string missing = comm::missing_backend(mpi ? "mpi" : "gloo");
  if (missing.empty() && !fs::exists(bare)) missing = bare + " was not built";
  if (!missing.empty()) return {that_fails(name, missing)};
  const auto itself = std::make_shared<Fleet>(workers, [&](const std::string& folder) {
    if (mpi) return std::vector{under_mpirun(workers, {bare, folder})};
    std::vector<Fleet::Process> all;
    for (int w = 0; w < workers; ++w)
      all.push_back({.words = {bare, folder, std::to_string(w), std::to_string(workers)}});
    return with_a_core_each(all);
  });
  const auto lockstep = std::make_shared<Fleet>(workers, [&](const std::string& folder) {
    const Fleet::Words words = {self(), kFlag, folder, "all_reduce"};
    return mpi ? std::vector{under_mpirun(workers, words)} : with_a_core_each(gloo_workers(workers, words));
  });
  return {of_fleet(name, itself, bytes), of_fleet("Lockstep", lockstep, bytes)};
}

std::vector<Candidate> worker_lenet_candidates() {
  if (const std::string why = comm::missing_backend("gloo"); !why.empty())
    return {that_fails("two workers, Gloo", why)};
  const auto one = std::make_shared<Fleet>(1, [&](const std::string& folder) {
    return std::vector<Fleet::Process>{
        {.words = {self(), kFlag, folder, "2"}, .environment = {"LOCKSTEP_LOG=error"}}};
  });
  const auto two = std::make_shared<Fleet>(2, [&](const std::string& folder) {
    return with_a_core_each(gloo_workers(2, {self(), kFlag, folder, "1"}));
  });
  std::vector<Candidate> list{of_fleet("one worker, two devices", one, 0),
                              of_fleet("two workers, Gloo", two, 0)};
  if (comm::missing_backend("mpi").empty())
    list.push_back(
        of_fleet("two workers, MPI",
                 std::make_shared<Fleet>(2,
                                         [&](const std::string& folder) {
                                           return std::vector{under_mpirun(2, {self(), kFlag, folder, "1"})};
                                         }),
                 0));
  return list;
}

std::vector<Candidate> worker_recovery_candidates() {
  const char* const name = "kill to the next step";
  if (const std::string why = comm::missing_backend("gloo"); !why.empty()) return {that_fails(name, why)};
  constexpr int kWorkers = 4;
  const auto fleet = std::make_shared<Fleet>(0, [&](const std::string& folder) {
    return gloo_workers(kWorkers, {self(), kFlag, folder, "elastic"}, "error");
  });
  // The chief too is killed in its turn.
  return {{.name = name, .read = [fleet, turn = size_t{0}](int) mutable -> Reading {
             fleet->step_of(kWorkers, monotonic_ns());
             const size_t lost = ++turn % kWorkers;
             const int64_t killed = fleet->kill_one(lost);
             const int64_t ended = fleet->step_of(kWorkers - 1, killed);
             fleet->start_again(lost);
             return {.us = static_cast<double>(ended - killed) * 1e-3};
           }}};
}

}  // namespace lockstep::bench
