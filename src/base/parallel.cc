#include "base/parallel.h"

#include <omp.h>

#include <exception>

// libgomp is not instrumented, so its fork and join are told to the thread sanitizer by hand.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace lockstep {

int team_size() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

TeamScope::TeamScope(int threads) : previous_(omp_get_max_threads()) { omp_set_num_threads(threads); }
TeamScope::~TeamScope() { omp_set_num_threads(previous_); }

namespace detail {

// Not instrumented itself: the compiler hands the region's variables over in a block that it fills
// after the release. What runs inside, `body`, is.
__attribute__((no_sanitize("thread"))) void run_team(int threads, void (*body)(void*, int), void* context) {
  std::exception_ptr error;
  char fork = 0;
  char join = 0;
  __tsan_release(&fork);
#pragma omp parallel num_threads(threads) shared(error, fork, join)
  {
    __tsan_acquire(&fork);
    // A team can come up smaller than asked for; every index must still run.
    for (int index = omp_get_thread_num(); index < threads; index += omp_get_num_threads()) {
      try {
        body(context, index);
      } catch (...) {
#pragma omp critical(lockstep_team_error)
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
