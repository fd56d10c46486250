#include "cli/launch/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <vector>

#include "cli/launch/here.h"
#include "cli/launch/messages.h"
#include "cli/launch/pipes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using Moment = Clock::time_point;

// Machines that ssh has reached, and that hear nothing from here for so long, are cut off.
constexpr double kSilence = 60;
constexpr double kAliveEvery = 10;
constexpr double kNoticeEvery = 5;
constexpr double kEndWithin = 20;  // agents, once they are told to

Moment in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string make_secret() {
  if (const char* given = std::getenv("LOCKSTEP_SECRET"); given && *given) return given;
  if (const char* file = std::getenv("LOCKSTEP_SECRET_FILE"); file && *file) {
    std::string text = read_file(file);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    require(!text.empty(), ErrorCode::invalid_argument, kHere, "LOCKSTEP_SECRET_FILE: ", file,
            " holds nothing");
    return text;
  }
  unsigned char bytes[32];
  require(getrandom(bytes, sizeof bytes, 0) == sizeof bytes, ErrorCode::io, kHere,
          "the system gives no random numbers for the job's secret");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// "0", "0-3", "0,2,5"
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() > 1 && ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size()))
    return fmt::format("{}-{}", ranks.front(), ranks.back());
  return fmt::format("{}", fmt::join(ranks, ","));
}

}  // namespace

class Job::Impl {
 public:
  Impl(const Plan& plan, const LaunchOptions& options, Output& output, Signals& signals, int restart)
      : plan_(plan),
        options_(options),
        output_(output),
        signals_(signals),
        restart_(restart),
        secret_(make_secret()),
        workers_(static_cast<size_t>(plan.workers)) {}

  Verdict run() {
    start_agents();
    while (phase_ != Phase::ending || !all_gone()) turn();
    // Where an agent of this machine was killed, what it would have ended has become ours.
    if (lost_agent_here_) end_descendants([](pid_t, int) {});
    if (!verdict_.explanation.empty() || verdict_.code != 0) return verdict_;
    if (stop_signal_ != 0 && !all_good()) {
      verdict_.code = 128 + stop_signal_;
      verdict_.explanation = fmt::format("the job was stopped by {}", signal_name(stop_signal_));
    }
    return verdict_;
  }

 private:
  enum class Phase { preparing, running, stopping, ending };

  struct Agent {
    const AgentPlan& plan;
    Process process;
    Outbox input;
    LineReader output, errors;
    ReportReader reports = {};
    std::deque<std::string> last_errors = {};
    size_t ready = 0;  // ranks
    bool gone = false;

    Agent(const AgentPlan& plan, Process&& started)
        : plan(plan),
          process(std::move(started)),
          input(process.input()),
          output(process.output()),
          errors(process.errors()) {}
    bool is_ready() const { return ready == plan.ranks.size(); }
  };

  enum class State { waiting, running, ended };
  struct Worker {
    Agent* agent = nullptr;
    State state = State::waiting;
    std::string host = {};
    int port = 0;
    Machine machine = {};
    int process = 0;
    ExitStatus status = {};
    std::optional<Share> share = {};
    Moment restart_at = Moment::max();
    bool restarted = false;
  };

  Worker& worker(int rank) { return workers_.at(static_cast<size_t>(rank)); }

  // --- beginning ---

  void start_agents() {
    for (const AgentPlan& plan : plan_.agents) {
      try {
        Process process(
            {.words = plan.command,
             .reads = true,
             // Agents that are gone from the machine end the connection, and so themselves; ssh need not
             // stay.
             .signal_at_our_death = plan.starter == Starter::ssh ? SIGKILL : 0});
        agents_.emplace_back(plan, std::move(process));
      } catch (const Error& error) {
        refuse(1, fmt::format("{}{}", error.message(),
                              plan.starter == Starter::ssh ? "; --hosts needs it: install openssh-client"
                              : plan.starter == Starter::srun
                                  ? "; this is a Slurm allocation, and srun starts workers "
                                    "in it; --no-slurm starts them on this machine"
                                  : ""));
        return;
      }
      Agent& agent = agents_.back();
      for (const int rank : plan.ranks) worker(rank).agent = &agent;
      const bool alone = !plan_.over_network() || plan_.meeting_host.empty();
      agent.input.put(
          to_line(Preparation{.ranks = plan.starter == Starter::srun ? std::vector<int>{} : plan.ranks,
                              .workers = plan_.workers,
                              .program = options_.program,
                              .folder = options_.folder,
                              .meeting_host = alone ? "" : plan_.meeting_host,
                              .environment = plan_.environment,
                              .silence_s = plan.starter == Starter::ssh ? kSilence : 0}));
    }
  }

  void note_ready(Agent& agent, const ReadyReport& ready) {
    for (const int rank : ready.ranks) {
      if (rank < 0 || rank >= plan_.workers || worker(rank).agent != &agent || !worker(rank).host.empty())
        return refuse(
            1, fmt::format("{} has started a task of rank {} that was not asked for", agent.plan.host, rank));
      worker(rank).host = ready.host;
      worker(rank).port = ready.port;
      worker(rank).machine = ready.machine;
      ++agent.ready;
    }
    if (!agent.is_ready()) return;
    for (const std::string& line : agent.last_errors) output_.other_line(agent.plan.host, line);
    if (phase_ == Phase::preparing &&
        std::all_of(agents_.begin(), agents_.end(), [](const Agent& one) { return one.is_ready(); }))
      start_workers();
  }

  void start_workers() {
    const std::string name = plan_.meeting_host.empty() ? worker(0).host : plan_.meeting_host;
    const int port = plan_.meeting_port > 0 ? plan_.meeting_port : worker(0).port;
    address_ = name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port)
                                                   : fmt::format("[{}]:{}", name, port);
    const std::string places = divide_machines();
    Start start{.address = address_, .secret = secret_, .restart = restart_};
    try {
      for (int rank = 0; rank < plan_.workers; ++rank) {
        start.workers.emplace(rank, worker(rank).share);
        output_.begin_worker(rank, restart_);
      }
    } catch (const Error& error) {
      return refuse(1, error.message());
    }
    output_.say(fmt::format("{}; rank 0 is met at {}", places, address_));
    for (Agent& agent : agents_) agent.input.put(to_line(start));
    for (Worker& one : workers_) one.state = State::running;
    phase_ = Phase::running;
  }

  // Machines are divided among their workers unless somebody else has done it: a scheduler that gives each
  // task CPUs or GPUs of its own. Returns where the workers are and what they have.
  std::string divide_machines() {
    std::map<std::string, std::vector<int>> by_host;
    std::vector<std::string> hosts;  // in the order of their ranks
    for (int rank = 0; rank < plan_.workers; ++rank) {
      std::vector<int>& ranks = by_host[worker(rank).host];
      if (ranks.empty()) hosts.push_back(worker(rank).host);
      ranks.push_back(rank);
    }
    const bool here = plan_.agents.size() == 1 && plan_.agents[0].starter == Starter::here;
    std::string text;
    for (const std::string& host : hosts) {
      const std::vector<int>& ranks = by_host[host];
      const auto count = static_cast<int>(ranks.size());
      Machine machine = worker(ranks[0]).machine;
      const auto same = [&](auto member) {
        return std::all_of(ranks.begin(), ranks.end(),
                           [&](int rank) { return worker(rank).machine.*member == machine.*member; });
      };
      if (machine.own_gpus || !same(&Machine::gpus)) machine.gpus.clear();
      const bool divides = options_.divide && count > 1 && same(&Machine::cpus);
      for (int i = 0; divides && i < count; ++i)
        worker(ranks[static_cast<size_t>(i)]).share = share_of(machine, i, count);
      text += fmt::format(
          "{}{}", text.empty() ? "" : ", ",
          here ? fmt::format("{} worker{} on this machine", count, count == 1 ? "" : "s")
               : fmt::format("worker{} {} on {}", count == 1 ? "" : "s", ranks_text(ranks), host));
      if (divides) text += fmt::format(" ({}; --no-divide: all)", describe_shares(machine, count));
    }
    return text;
  }

  // --- the loop ---

  void turn() {
    std::vector<pollfd> waited{{signals_.fd(), POLLIN, 0}};
    for (Outbox* box : {&output_.standard_output(), &output_.standard_errors()})
      if (!box->empty()) waited.push_back({box->fd(), POLLOUT, 0});
    for (const Agent& agent : agents_) {
      if (agent.gone) continue;
      if (agent.process.input() >= 0 && !agent.input.empty())
        waited.push_back({agent.input.fd(), POLLOUT, 0});
      if (output_.full()) continue;
      for (const LineReader* reader : {&agent.output, &agent.errors})
        if (!reader->ended()) waited.push_back({reader->fd(), POLLIN, 0});
    }
    const auto wait =
        std::chrono::duration_cast<std::chrono::milliseconds>(next_moment() - Clock::now()).count();
    poll(waited.data(), waited.size(), static_cast<int>(std::clamp<int64_t>(wait + 1, 0, 60000)));
    take_signals();
    if (!output_.full())
      for (Agent& agent : agents_) read(agent);
    keep_time();
    for (Agent& agent : agents_) {
      if (agent.process.input() < 0) continue;
      agent.input.write_some();
      // There is nothing more to say: whoever passes it on need not wait.
      if (phase_ == Phase::ending && agent.input.empty()) agent.process.close_input();
    }
    output_.standard_output().write_some();
    output_.standard_errors().write_some();
  }

  Moment next_moment() const {
    Moment next = std::min({next_notice_, next_alive_, kill_at_, give_up_at_, leave_at_});
    for (const Worker& one : workers_) next = std::min(next, one.restart_at);
    return next;
  }

  void keep_time() {
    const Moment now = Clock::now();
    if (now >= next_notice_) {
      next_notice_ = phase_ == Phase::preparing ? in_seconds(kNoticeEvery) : Moment::max();
      if (phase_ == Phase::preparing) say_for_whom_it_waits();
    }
    if (now >= next_alive_) {
      next_alive_ = in_seconds(kAliveEvery);
      for (Agent& agent : agents_)
        if (agent.plan.starter == Starter::ssh && !agent.gone) agent.input.put(kAliveLine);
    }
    if (now >= kill_at_) kill_workers();
    if (now >= leave_at_) {
      leave_at_ = Moment::max();
      stop_workers(SIGTERM);
    }
    if (now >= give_up_at_) {
      give_up_at_ = Moment::max();
      for (const Agent& agent : agents_)
        if (!agent.gone) agent.process.signal(SIGKILL);
    }
    for (int rank = 0; rank < plan_.workers; ++rank)
      if (now >= worker(rank).restart_at) start_again(rank);
  }

  void say_for_whom_it_waits() {
    std::vector<std::string> names;
    for (const Agent& agent : agents_)
      if (!agent.is_ready())
        names.push_back(agent.plan.starter == Starter::srun
                            ? fmt::format("{} of srun's {} tasks", agent.plan.ranks.size() - agent.ready,
                                          agent.plan.ranks.size())
                            : agent.plan.host);
    output_.say(fmt::format("for {} s waiting for {}",
                            std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began_).count(),
                            fmt::join(names, ", ")));
  }

  void read(Agent& agent) {
    if (agent.gone) return;
    if (!agent.output.ended())
      agent.output.read_some([&](std::string_view line) {
        bool is_report = false;
        const std::optional<Report> report = agent.reports.read(line, is_report);
        if (report) hear(agent, *report);
        if (!is_report && !line.empty()) output_.other_line(agent.plan.host, line);
      });
    if (!agent.errors.ended())
      agent.errors.read_some([&](std::string_view line) {
        agent.last_errors.emplace_back(line);
        if (agent.last_errors.size() > 20) agent.last_errors.pop_front();
        if (agent.is_ready()) output_.other_line(agent.plan.host, line);
      });
  }

  void hear(Agent& agent, const Report& report) {
    if (report.kind == ReportKind::ready) return note_ready(agent, ready_from(report.text));
    if (report.kind == ReportKind::refused) {
      const Refusal refusal = refusal_from(report.text);
      return refuse(refusal.code, plan_.over_network()
                                      ? fmt::format("on {}: {}", agent.plan.host, refusal.message)
                                      : refusal.message);
    }
    if (report.rank < 0 || report.rank >= plan_.workers) return;
    if (report.kind == ReportKind::started)
      worker(report.rank).process = std::atoi(report.text.c_str());
    else if (report.kind == ReportKind::ended)
      note_end(report.rank, exit_status_from(report.text));
    else
      output_.worker_line(report.rank, report.kind == ReportKind::errors, report.text);
  }

  // --- ends ---

  void note_end(int rank, const ExitStatus& status) {
    worker(rank).state = State::ended;
    worker(rank).status = status;
    if (options_.elastic && phase_ == Phase::running) {
      note_end_in_elastic(rank);
    } else if (!status.good() && phase_ == Phase::running) {
      note_failure(status.shell_code(), failure_text(rank), true);
    } else if (!status.good() && stop_signal_ != 0 && !was_stopped(status) && verdict_.code == 0) {
      verdict_ = {status.shell_code(), failure_text(rank), false};
    }
    end_if_all_have();
  }

  // The others go on without a worker that has failed, and it is started again as long as they do. The job is
  // as good as those who stay to the end of it.
  void note_end_in_elastic(int rank) {
    if (worker(rank).status.good()) {
      ended_well_ = true;
      for (Worker& one : workers_) one.restart_at = Moment::max();
    } else {
      if (first_failure_.code == 0)
        first_failure_ = {worker(rank).status.shell_code(), failure_text(rank), true};
      if (!ended_well_ && restarts_of_workers_ < options_.restarts)
        plan_restart(rank);
      else
        output_.say(fmt::format("{}{}", failure_text(rank),
                                ended_well_ ? "" : "\nno restarts are left; the others go on without it"));
    }
    const bool only_restarted =
        ended_well_ && std::all_of(workers_.begin(), workers_.end(), [](const Worker& one) {
          return one.state == State::ended || one.restarted;
        });
    // What was started again and has not joined by now finds nobody to join.
    if (only_restarted && leave_at_ == Moment::max()) leave_at_ = in_seconds(options_.grace_s);
    const bool all = std::all_of(workers_.begin(), workers_.end(), [](const Worker& one) {
      return one.state == State::ended && one.restart_at == Moment::max();
    });
    if (all && !ended_well_ && verdict_.code == 0) verdict_ = first_failure_;
  }

  // By the signal that we have passed on, or because it took too long.
  bool was_stopped(const ExitStatus& status) const {
    return status.shell_code() == 128 + stop_signal_ || status.signal == stop_signal_ ||
           (killed_ && status.signal == SIGKILL);
  }

  std::string failure_text(int rank) {
    const Worker& failed = worker(rank);
    const std::string lines = output_.last_lines(rank);
    return fmt::format("worker {} (process {} on {}) failed{}: {}. {}{}", rank, failed.process, failed.host,
                       plan_.workers > 1 && !options_.elastic ? " first" : "", describe(failed.status),
                       lines.empty() ? "It wrote nothing." : "Its last lines:", lines);
  }

  void note_failure(int code, std::string explanation, bool may_restart) {
    if (verdict_.code != 0) return;
    verdict_ = {code, std::move(explanation), may_restart};
    stop_workers(SIGTERM);
  }

  // Before anything was started, or where it cannot be.
  void refuse(int code, std::string explanation) {
    if (verdict_.code == 0) verdict_ = {code, std::move(explanation), false};
    begin_ending();
  }

  void plan_restart(int rank) {
    const double wait = backoff_s(options_, restarts_of_workers_++);
    worker(rank).restart_at = in_seconds(wait);
    output_.say(failure_text(rank));
    output_.say(fmt::format("restart {} of {}: worker {} alone, in {:.3g} s", restarts_of_workers_,
                            options_.restarts, rank, wait));
  }

  void start_again(int rank) {
    Worker& one = worker(rank);
    one.restart_at = Moment::max();
    one.state = State::running;
    one.restarted = true;
    try {
      output_.begin_worker(rank, restarts_of_workers_);
    } catch (const Error& error) {
      return note_failure(1, error.message(), false);
    }
    Start start{.address = address_, .secret = secret_, .restart = restarts_of_workers_};
    start.workers.emplace(rank, one.share);
    one.agent->input.put(to_line(start));
  }

  void stop_workers(int signal) {
    for (Worker& one : workers_) one.restart_at = Moment::max();
    if (phase_ == Phase::preparing) return begin_ending();
    if (phase_ != Phase::running) return;
    phase_ = Phase::stopping;
    kill_at_ = in_seconds(options_.grace_s);
    for (Agent& agent : agents_) agent.input.put(to_line(Signal{signal}));
    end_if_all_have();
  }

  void kill_workers() {
    kill_at_ = Moment::max();
    killed_ = true;
    const auto left = std::count_if(workers_.begin(), workers_.end(),
                                    [](const Worker& one) { return one.state == State::running; });
    output_.say(fmt::format("{} worker{} still there: killed", left, left == 1 ? " is" : "s are"));
    for (Agent& agent : agents_) agent.input.put(kKillLine);
  }

  bool all_good() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const Worker& one) { return one.state == State::ended && one.status.good(); });
  }

  void end_if_all_have() {
    if (phase_ != Phase::running && phase_ != Phase::stopping) return;
    const bool all = std::all_of(workers_.begin(), workers_.end(), [](const Worker& one) {
      return one.state == State::ended && one.restart_at == Moment::max();
    });
    if (all) begin_ending();
  }

  void begin_ending() {
    if (phase_ == Phase::ending) return;
    phase_ = Phase::ending;
    next_notice_ = kill_at_ = Moment::max();
    give_up_at_ = in_seconds(kEndWithin);
    for (Agent& agent : agents_) agent.input.put(kEndLine);
  }

  bool all_gone() const {
    return std::all_of(agents_.begin(), agents_.end(), [](const Agent& agent) { return agent.gone; });
  }

  void note_agent_gone(Agent& agent, const ExitStatus& status) {
    agent.gone = true;
    agent.process.close_input();
    if (phase_ == Phase::ending) return;
    if (agent.plan.starter == Starter::here) lost_agent_here_ = true;
    std::string errors;
    for (const std::string& line : agent.last_errors) errors += line + "\n";
    const bool was_ready = agent.is_ready();
    for (const int rank : agent.plan.ranks)
      if (worker(rank).state != State::ended)
        worker(rank).state = State::ended, worker(rank).status = {.code = 1};
    std::string text;
    if (!was_ready && agent.plan.starter == Starter::ssh) {
      text = explain_ssh(agent.plan.host, status, errors, options_.tool);
    } else {
      const std::string what = agent.plan.starter == Starter::here ? "the agent" : agent.plan.command[0];
      text = was_ready && agent.plan.starter == Starter::ssh
                 ? fmt::format("the connection to {} is lost, and with it worker{} {}: ssh ended with {}",
                               agent.plan.host, agent.plan.ranks.size() == 1 ? "" : "s",
                               ranks_text(agent.plan.ranks), describe(status))
                 : fmt::format("{} ended with {} before the workers did", what, describe(status));
      if (!errors.empty()) text += ". Its last lines:";
      for (const std::string& line : agent.last_errors) text += "\n    | " + line;
    }
    note_failure(1, std::move(text), was_ready);
    end_if_all_have();
  }

  // --- signals ---

  void take_signals() {
    while (const std::optional<int> signal = signals_.next()) {
      if (*signal == SIGCHLD)
        reap();
      else if (*signal == SIGTSTP)
        suspend();
      else if (asks_to_stop(*signal))
        stop_for(*signal);
      else
        pass_on(*signal);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;)
      for (Agent& agent : agents_)
        if (agent.process.id() == child && !agent.gone) {
          read(agent);  // what it said before
          note_agent_gone(agent, ExitStatus::of_wait(status));
        }
  }

  void pass_on(int signal) {
    for (Agent& agent : agents_) agent.input.put(to_line(Signal{signal}));
  }

  void suspend() {
    pass_on(SIGSTOP);
    for (Agent& agent : agents_)
      if (agent.process.input() >= 0) agent.input.write_some();
    raise(SIGSTOP);
  }

  void stop_for(int signal) {
    if (stop_signal_ != 0 || phase_ == Phase::stopping || phase_ == Phase::ending) {
      if (signal == SIGINT && phase_ == Phase::stopping) kill_workers();
      return;
    }
    stop_signal_ = signal;
    output_.say(fmt::format("{}: passed on to the workers, which have {:.3g} s to end{}", signal_name(signal),
                            options_.grace_s, signal == SIGINT ? "; Ctrl-C once more kills them" : ""));
    stop_workers(signal);
  }

  const Plan& plan_;
  const LaunchOptions& options_;
  Output& output_;
  Signals& signals_;
  const int restart_;
  const std::string secret_;
  std::vector<Worker> workers_;
  std::list<Agent> agents_;
  Phase phase_ = Phase::preparing;
  std::string address_;
  Verdict verdict_;
  int stop_signal_ = 0;
  bool killed_ = false;
  bool lost_agent_here_ = false;
  int restarts_of_workers_ = 0;
  const Moment began_ = Clock::now();
  Moment next_notice_ = in_seconds(kNoticeEvery);
  Moment next_alive_ = in_seconds(kAliveEvery);
  Moment kill_at_ = Moment::max();
  Moment give_up_at_ = Moment::max();
  // For elastic jobs alone.
  Moment leave_at_ = Moment::max();
  bool ended_well_ = false;
  Verdict first_failure_;
};

Job::Job(const Plan& plan, const LaunchOptions& options, Output& output, Signals& signals, int restart)
    : impl_(std::make_unique<Impl>(plan, options, output, signals, restart)) {}
Job::~Job() = default;
Verdict Job::run() { return impl_->run(); }

}  // namespace lockstep::launch
