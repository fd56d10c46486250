#include "cli/launch/agent.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <set>
#include <utility>

#include "cli/launch/here.h"
#include "cli/launch/messages.h"
#include "cli/launch/other_launchers.h"
#include "cli/launch/pipes.h"
#include "cli/launch/processes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"

extern "C" char** environ;

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

// What a scheduler or a person may send to the agent itself; its workers, in groups of their own, get it from
// here.
constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

constexpr size_t kLongestLine = 1 << 16;

struct Worker {
  int rank;
  Process process;
  LineReader output, errors;
  bool ended = false;

  Worker(int rank, Process&& started)
      : rank(rank),
        process(std::move(started)),
        output(process.output(), kLongestLine),
        errors(process.errors(), kLongestLine) {}
};

// Below the ports that the system gives to connections by itself, which could take it before rank 0 does.
int free_port() {
  constexpr int kFirst = 12000, kPorts = 20000, kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
      number = static_cast<uint32_t>(i * 7919 + getpid());
    const int port = kFirst + static_cast<int>(number % kPorts);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0;
    if (fd >= 0) close(fd);
    if (is_free) return port;
  }
  fail(ErrorCode::io, kHere, "no free port was found on ", host_name(), " between ", kFirst, " and ",
       kFirst + kPorts - 1, "; name one with --address HOST:PORT");
}

void require_known(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code == 0) freeaddrinfo(list);
  require(code == 0, ErrorCode::invalid_argument, kHere, "the name ", host,
          ", where rank 0 is to be met, is not known on ", host_name(), " (", gai_strerror(code),
          "); name an address that all machines know with --address");
}

class Agent {
 public:
  int run() {
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    open_signals();
    while (!over_) turn();
    kill_all();
    if (!lost_) out_.write_all();
    return 0;
  }

 private:
  void open_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int number : kPassedOn) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    require(signals_ >= 0, ErrorCode::io, kHere, "signals cannot be received: ", std::strerror(errno));
  }

  void turn() {
    std::vector<pollfd> waited{{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}};
    if (!out_.empty()) waited.push_back({STDOUT_FILENO, POLLOUT, 0});
    if (!out_.full())
      for (const Worker& worker : workers_)
        for (const LineReader* reader : {&worker.output, &worker.errors})
          if (!reader->ended()) waited.push_back({reader->fd(), POLLIN, 0});
    poll(waited.data(), waited.size(), milliseconds_of_patience());
    if (waited[0].revents != 0) hear();
    if (waited[1].revents != 0) take_signals();
    if (!out_.full())
      for (Worker& worker : workers_) relay(worker);
    out_.write_some();
    const bool silent = preparation_.silence_s > 0 && !stopped_ && milliseconds_of_patience() == 0;
    if (out_.broken() || silent) over_ = lost_ = true;
  }

  // Until the launcher has been silent for too long; -1: it may be.
  int milliseconds_of_patience() const {
    if (preparation_.silence_s <= 0 || stopped_) return -1;
    const auto left = heard_ + std::chrono::duration<double>(preparation_.silence_s) - Clock::now();
    return std::max(0, static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count()));
  }

  // --- the launcher ---

  void hear() {
    in_.read_some([&](std::string_view line) {
      heard_ = Clock::now();
      obey(Json::parse(line, "a line of the launcher"));
    });
    if (in_.ended() && !std::exchange(over_, true)) lost_ = true;
  }

  void obey(const Json& command) {
    if (const Json* preparation = command.find("prepare"))
      refusing([&] { prepare(preparation_from(*preparation)); });
    else if (const Json* start = command.find("start"))
      refusing([&] { start_workers(start_from(*start)); });
    else if (const Json* number = command.find("signal"))
      pass_on(static_cast<int>(number->as_int()));
    else if (command.contains("kill"))
      kill_all();
    else if (command.contains("end"))
      over_ = true;
  }

  template <class F>
  void refusing(const F& f) {
    try {
      f();
    } catch (const Error& error) {
      // As shells do: 127 where there is no such program, 126 where it cannot be executed.
      const int code = error.code() == ErrorCode::not_found ? 127 : error.code() == ErrorCode::io ? 126 : 1;
      report(ReportKind::refused, first_rank(), to_text(Refusal{code, error.message()}));
    }
  }

  void prepare(Preparation preparation) {
    preparation_ = std::move(preparation);
    is_task_ = preparation_.ranks.empty();
    if (is_task_) {
      const char* task = std::getenv("SLURM_PROCID");
      require(task != nullptr, ErrorCode::internal, kHere,
              "the agent is no task of srun: SLURM_PROCID is not set");
      preparation_.ranks = {std::atoi(task)};
    }
    const bool entered = chdir(preparation_.folder.c_str()) == 0;
    require(entered, ErrorCode::invalid_argument, kHere, "the folder ", preparation_.folder,
            " cannot be worked in on ", host_name(), ": ", std::strerror(errno),
            "; name another with --directory");
    // Also where this machine has two names: the job must not begin and then wait for rank 0.
    if (!preparation_.meeting_host.empty()) require_known(preparation_.meeting_host);
    environment_ = worker_environment();
    const auto path = std::find_if(environment_.begin(), environment_.end(),
                                   [](const auto& variable) { return variable.first == "PATH"; });
    preparation_.program.at(0) =
        find_program(preparation_.program.at(0), path == environment_.end() ? "" : path->second);
    report(ReportKind::ready, first_rank(),
           to_text(ReadyReport{.ranks = preparation_.ranks,
                               .host = host_name(),
                               .process = getpid(),
                               .port = free_port(),
                               .machine = this_machine()}));
  }

  Environment worker_environment() const {
    Environment environment;
    const auto set = [&](const std::string& name, const std::string& value) {
      for (auto& variable : environment)
        if (variable.first == name) {
          variable.second = value;
          return;
        }
      environment.emplace_back(name, value);
    };
    for (char** variable = environ; *variable; ++variable) {
      const std::string text = *variable;
      const size_t equals = text.find('=');
      const std::string name = text.substr(0, equals);
      if (equals != std::string::npos && !decides_before_launch(name, is_task_))
        set(name, text.substr(equals + 1));
    }
    for (const auto& [name, value] : preparation_.environment) set(name, value);
    return environment;
  }

  // --- workers ---

  void start_workers(const Start& start) {
    for (const auto& [rank, share] : start.workers)
      if (std::find(preparation_.ranks.begin(), preparation_.ranks.end(), rank) != preparation_.ranks.end())
        start_worker(rank, share, start);
  }

  void start_worker(int rank, const std::optional<Share>& share, const Start& start) {
    Environment environment = environment_;
    const auto set = [&](const std::string& name, const std::string& value) {
      std::erase_if(environment, [&](const auto& variable) { return variable.first == name; });
      environment.emplace_back(name, value);
    };
    for (const auto& [name, value] :
         worker_variables(rank, preparation_.workers, start.address, start.restart, share))
      set(name, value);
    set("LOCKSTEP_SECRET", start.secret);
    if (share && std::getenv("OMP_NUM_THREADS") == nullptr && !share->cpus.empty())
      set("OMP_NUM_THREADS", std::to_string(share->cpus.size()));
    Process process({.words = preparation_.program,
                     .environment = &environment,
                     .cpus = share ? share->cpus : std::vector<int>{},
                     .signal_at_our_death = SIGKILL});
    workers_.emplace_back(rank, std::move(process));
    report(ReportKind::started, rank, std::to_string(workers_.back().process.id()));
    // Told before there was anybody to tell.
    for (const int number : passed_on_) workers_.back().process.signal(number);
  }

  // To stop, a process is asked once: programs take the second request for impatience, and both the launcher
  // and the scheduler may send one.
  void pass_on(int number) {
    if (number == SIGSTOP) stopped_ = true;
    if (number == SIGCONT) stopped_ = false;
    if (number == SIGTERM || number == SIGINT || number == SIGHUP)
      if (!passed_on_.insert(number).second) return;
    for (const Worker& worker : workers_)
      if (!worker.ended) worker.process.signal(number);
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) pass_on(static_cast<int>(info.ssi_signo));
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) note_end(child, status);
  }

  void note_end(pid_t child, int status) {
    for (Worker& worker : workers_) {
      if (worker.process.id() != child || worker.ended) continue;
      worker.ended = true;
      kill(-child, SIGKILL);  // those of its group that it left behind
      // All that it has written comes before its end.
      relay(worker);
      report(ReportKind::ended, worker.rank, to_text(ExitStatus::of_wait(status)));
    }
  }

  void kill_all() {
    end_descendants([this](pid_t child, int status) { note_end(child, status); });
  }

  // --- output ---

  void relay(Worker& worker) {
    for (auto [reader, kind] :
         {std::pair{&worker.output, ReportKind::output}, std::pair{&worker.errors, ReportKind::errors}}) {
      if (reader->ended()) continue;
      const auto give = [&, kind = kind](std::string_view line) {
        report(kind, worker.rank, std::string(line));
      };
      reader->read_some(give);
      // What the worker wrote without a line feed is complete when it has ended.
      if (reader->ended() || worker.ended) reader->flush(give);
    }
  }

  int first_rank() const { return preparation_.ranks.empty() ? 0 : preparation_.ranks[0]; }

  void report(ReportKind kind, int rank, std::string text) {
    out_.put(to_lines(Report{kind, rank, std::move(text)}));
  }

  LineReader in_{STDIN_FILENO};
  Outbox out_{STDOUT_FILENO};
  int signals_ = -1;
  Preparation preparation_;
  bool is_task_ = false;  // of srun
  Environment environment_;
  std::list<Worker> workers_;
  std::set<int> passed_on_;
  Clock::time_point heard_ = Clock::now();
  bool stopped_ = false;  // the launcher is, and says nothing
  bool over_ = false;
  bool lost_ = false;  // the launcher is gone
};

}  // namespace

int run_agent() { return Agent().run(); }

}  // namespace lockstep::launch
