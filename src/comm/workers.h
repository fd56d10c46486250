// The processes of a run that train together: met, in agreement, and joined by an engine.
//
//   Cluster        who they are, as the launcher says
//   Group          TCP through rank 0: who is there, what each is doing; small messages
//   Communicator   the engine that moves what is large: Gloo or MPI (and NCCL between GPUs, which the executor
//                  joins itself)
//   Workers        both, with a name and a number for every collective, a record of the last ones, and a
//                  verdict on all workers where one of them dies, hangs or does something else
//   Rendezvous     of an elastic run: where those who are left, and those who come back, form a new group and
//                  engine
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/cluster.h"
#include "comm/communicator.h"
#include "comm/flight_recorder.h"
#include "comm/group.h"
#include "comm/rendezvous.h"

namespace lockstep::comm {

// The code of a mistake, of the program's or of its data, that is not in the machine or the network it runs
// on; io where `error` is none.
ErrorCode mistake_of(const std::exception& error);

enum class Engine : uint8_t { automatic, gloo, mpi, nccl };

struct WorkersOptions {
  Engine engine = Engine::automatic;
  bool devices_are_gpus = false;  // of this worker
  double timeout_s = 60;          // for all to come to a collective
  double join_timeout_s = 300;    // for all to come at all
  int min_workers = 0;            // positive: the run is elastic, and goes on with so many
  double wait_s = 300;            // for workers to come back, where fewer are left
};

// What moves the host's memory.
struct EngineChoice {
  std::string engine;  // "gloo", "mpi"; empty: the group alone, which is enough where GPUs are joined by NCCL
  std::string reason;
};
// `missing(name)`: why an engine cannot be had, empty where it can. `has_pmi`: srun brought MPI's ranks
// along. Throws Error(unsupported) with that reason where nothing can do what is asked for.
EngineChoice choose_engine(const Cluster& cluster, const WorkersOptions& options, bool has_pmi,
                           const std::function<std::string(const char*)>& missing,
                           std::source_location where = std::source_location::current());

class Workers {
 public:
  // Returns when all are there and agree on who they are and on the build of this library. The chief logs
  // once what joins them and why. Throws Error(io) or Error(failed_precondition) that names who is missing or
  // who differs, and in what.
  static std::shared_ptr<Workers> meet(const Cluster& cluster, const WorkersOptions& options,
                                       std::source_location where = std::source_location::current());

  // `engine`: null where there is none; `joined_by` is what descriptions say.
  Workers(std::unique_ptr<Group> group, std::unique_ptr<Communicator> engine, std::string joined_by,
          double timeout_s);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool chief() const { return rank() == 0 && !newcomer_; }
  double timeout_s() const { return timeout_s_; }
  // "4 workers, joined by Gloo 0.5.0 over TCP: no launcher of MPI started them".
  std::string description() const;
  Group& group() { return *group_; }

  // What follows is called by all workers, in the same order, by one thread at a time. Each throws
  // errors::UnavailableError with the verdict where that cannot be, now and from then on; where another
  // worker gave up for a mistake, it throws an Error of that mistake's code.

  // Small parts (a MiB at most), by rank.
  std::vector<std::string> gather(std::string_view what, const std::string& part,
                                  std::source_location where = std::source_location::current());
  // Parts of any size.
  std::vector<std::string> gather_large(std::string_view what, const std::string& part,
                                        std::source_location where = std::source_location::current());
  // Throws Error(failed_precondition) at all of them where they differ: "the workers differ in the batch
  // size: rank 0 has 64; rank 2 (process 71 on host b) has 32".
  void require_equal(std::string_view what, const std::string& own,
                     std::source_location where = std::source_location::current());
  // The chief's bytes, or those of another rank, at all.
  void broadcast(std::string_view name, void* data, int64_t bytes, int root = 0);
  std::string broadcast(std::string_view name, const std::string& roots, int root = 0);

  // Memory of the host, with the engine. Do not allocate.
  void all_reduce_sum(std::string_view name, void* data, int64_t count, DType dtype);
  void all_to_all(std::string_view name, const void* source, std::span<const int64_t> send_bytes,
                  void* target, std::span<const int64_t> receive_bytes);
  // `target` has size() times as many bytes, by rank.
  void all_gather(std::string_view name, const void* source, void* target, int64_t bytes);

  // --- of elastic runs ---

  bool elastic() const { return rendezvous_ != nullptr; }
  // Counts the times that the workers have formed anew: what was made for one generation (ranks, shares of
  // work) does not hold in the next.
  int64_t generation() const { return generation_; }
  // Whether a call has failed, or will, because others are lost or form anew: in an elastic run form_anew()
  // is what comes next.
  bool broken() const;
  // Too few are left to form anew.
  bool deserted() const { return deserted_; }
  // Workers that wait to join, as far as this one knows: the chief does.
  int newcomers_waiting() const { return rendezvous_ ? rendezvous_->newcomers() : 0; }
  // With all who are left, and newcomers that wait; all of them have to call it. Nothing that uses the group
  // or the engine may be under way. `done`, `admits`: see Rendezvous::form(). Afterwards ranks and their
  // number are others; where the run has gone on without this worker, it is a newcomer. Throws
  // errors::UnavailableError where too few are left: each is alone then, and the first of them the chief.
  void form_anew(bool done, bool admits = true);
  // This worker is not in the run, which is under way: it is alone, rank 0 of 1, until join() returns.
  bool newcomer() const { return newcomer_; }
  // As many as the launcher has started.
  int launched() const { return launched_; }
  // Throws Passed where the run is past the place in the program that this worker has come to.
  void join();
  // A place in the program, counted up and the same for all workers, at which others can join the run; and
  // what those have to know who come to an earlier one.
  void come_to(int64_t place, std::string past);
  // What was said so last, here or by those whom this worker wanted to join.
  const std::string& past() const { return past_; }

  // Ends the run at all workers, `error` being what happened to this one; the first reason counts. From any
  // thread. A mistake ends the others as one, too: started again they would meet it again. Of an elastic run
  // the others go on without this one.
  void give_up(const std::string& reason, const std::exception& error) noexcept;
  // The last collectives, a line each.
  std::string flight_record(size_t most = FlightRecorder::kKept) const { return recorder_.text(most); }

 private:
  template <class Call>
  void collective(const char* kind, std::string_view name, int64_t bytes, Call call);
  void check_verdict();
  [[noreturn]] void end_with(const std::string& verdict, ErrorCode code);
  [[noreturn]] void stop(const std::string& engines_words);
  void look();
  void need_engine(const char* kind) const;
  template <class Call>
  auto through_group(Call call) -> decltype(call());
  // All processes of the group call these.
  static void require_equal(Group& group, std::string_view what, const std::string& own, double timeout_s,
                            std::source_location where);
  static std::unique_ptr<Communicator> join_engine(const CommunicatorBackend& library, Group& group,
                                                   double timeout_s);

  void open_rendezvous(const Cluster& cluster, const WorkersOptions& options, const std::string& host,
                       const std::string& secret);
  void interrupt(const std::string& reason);
  void begin_looking();
  void end_looking();
  void retire();
  void forget_verdict();
  void be_alone();
  bool enter(const Formation& formation);

  // Both are replaced where the workers form anew, with `lives_` held.
  std::unique_ptr<Group> group_;
  std::unique_ptr<Communicator> engine_;
  const std::string joined_by_;
  const double timeout_s_;
  FlightRecorder recorder_;  // of this generation's collectives the last is what is under way

  std::mutex lives_;
  std::unique_ptr<Rendezvous> rendezvous_;  // null: the run is not elastic
  std::string endpoints_;                   // of a newcomer: where it is let in
  std::string past_;
  int64_t generation_ = 0;
  int launched_ = 1;
  std::atomic<bool> newcomer_{false}, broken_{false}, gave_up_{false}, deserted_{false};

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::string verdict_;  // empty: all is well
  ErrorCode verdict_code_ = ErrorCode::io;
  bool ending_ = false;
  std::thread watcher_;
};

}  // namespace lockstep::comm
