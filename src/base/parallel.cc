#include "base/parallel.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/flush_to_zero.h"
#include "base/thread.h"

// libgomp is not instrumented, so its fork and join are told to the thread sanitizer by hand.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace lockstep {

namespace {

std::mutex error_mutex;  // of all teams: errors are rare

thread_local int first_core = 0;
thread_local int largest_team = 1;               // of this thread
thread_local std::span<const int> pinned_cores;  // of its team; empty: none have been given out
thread_local int callers_core = -1;              // the one of them that its own thread is left; none before

// The cores of the process: those of its first thread, for any other may have been given some of them.
const std::vector<int>& process_cores() {
  static const auto* cores = [] {
    auto* list = new std::vector<int>;
    cpu_set_t set;
    if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
      for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &set)) list->push_back(core);
    return list;
  }();
  return *cores;
}

bool pins_threads() {
  static const bool pins =
      env::read_bool("LOCKSTEP_PIN_THREADS", true) && omp_get_proc_bind() == omp_proc_bind_false;
  return pins;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  // Only a wish: a thread that stays where it is computes the same.
  sched_setaffinity(0, sizeof set, &set);
}

// The calling thread itself is the program's: it stays free, and the others keep off the core it is on.
void pin_team(std::span<const int> cores) {
  // A child of fork() has none of the team's threads: they must not be called together there.
  static const int in_children [[maybe_unused]] = pthread_atfork(nullptr, nullptr, [] { callers_core = -1; });
  pinned_cores = cores;
  const int here = sched_getcpu();
  const auto callers = std::find(cores.begin(), cores.end(), here);
  const size_t left_free = callers == cores.end() ? 0 : static_cast<size_t>(callers - cores.begin());
  callers_core = cores[left_free];
  // By the thread's own number: a team can come up smaller, and its caller then runs several indices.
  parallel(static_cast<int>(cores.size()), [&](int) {
    const auto own = static_cast<size_t>(omp_get_thread_num());
    if (own > 0) pin_to(cores[own == left_free ? 0 : own]);
  });
}

// A team of more threads than there are cores is left to the system.
void pin_new_team(int threads) {
  largest_team = threads;
  const std::span<const int> cores(process_cores());
  const auto first = static_cast<size_t>(first_core), count = static_cast<size_t>(threads);
  if (pins_threads() && first + count <= cores.size()) pin_team(cores.subspan(first, count));
}

// The system may move the caller to a core of one of its team, and then leaves both there for long: the
// one cannot go, and the other is never seen waiting.
bool caller_is_in_the_way() {
  if (callers_core < 0) return false;
  const int here = sched_getcpu();
  if (here == callers_core) return false;
  return std::find(pinned_cores.begin(), pinned_cores.end(), here) != pinned_cores.end();
}

}  // namespace

void set_first_core(int core) { first_core = core; }

int team_size() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

namespace {
thread_local int limit = std::numeric_limits<int>::max();
}
int thread_limit() { return limit; }
ThreadLimit::ThreadLimit(int threads) : previous_(std::exchange(limit, threads)) {}
ThreadLimit::~ThreadLimit() { limit = previous_; }

namespace {

// OpenMP ends the program where the system makes no thread for it, so that somebody else asks first.
void require_threads(int count) {
  std::vector<std::thread> all;
  std::promise<void> done;
  const std::shared_future<void> ends(done.get_future());
  try {
    for (int i = 0; i < count; ++i) all.push_back(start_thread([ends] { ends.wait(); }));
  } catch (Error& error) {
    done.set_value();
    for (std::thread& thread : all) thread.join();
    throw error.note("for a team of " + std::to_string(count + 1) + " threads");
  }
  done.set_value();
  for (std::thread& thread : all) thread.join();
}

}  // namespace

TeamScope::TeamScope(int threads)
    : previous_(omp_get_max_threads()), caller_flushes_to_zero_(flushes_to_zero()) {
  if (threads > largest_team && !omp_in_parallel()) require_threads(threads - 1);
  omp_set_num_threads(threads);
  set_flush_to_zero(true);
  if (omp_in_parallel()) return;
  if (threads > largest_team)
    pin_new_team(threads);
  else if (threads > 1 && caller_is_in_the_way())
    pin_team(pinned_cores);
}
TeamScope::~TeamScope() {
  omp_set_num_threads(previous_);
  set_flush_to_zero(caller_flushes_to_zero_);
}

namespace detail {

// Not instrumented itself: the compiler hands the region's variables over in a block that it fills
// after the release. What runs inside, `body`, is.
__attribute__((no_sanitize("thread"))) void run_team(int threads, void (*body)(void*, int), void* context) {
  std::exception_ptr error;
  char fork = 0;
  char join = 0;
  const bool flush = flushes_to_zero();
  // A smaller team would end threads that the next one starts anew: those that are not needed take no index
  // instead.
  [[maybe_unused]] const int team =
      threads < largest_team && largest_team <= omp_get_max_threads() ? largest_team : threads;
  __tsan_release(&fork);
#pragma omp parallel num_threads(team) shared(error, fork, join)
  {
    __tsan_acquire(&fork);
    // They keep it, so that libraries' regions on the same threads round as their caller's part does.
    set_flush_to_zero(flush);
    // A team can come up smaller than asked for; every index must still run.
    for (int index = omp_get_thread_num(); index < threads; index += omp_get_num_threads()) {
      try {
        body(context, index);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
    __tsan_release(&join);
  }
  __tsan_acquire(&join);
  if (error) std::rethrow_exception(error);
}

}  // namespace detail
}  // namespace lockstep
