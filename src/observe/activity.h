// What the program is doing now, in a few words, for whoever wonders from outside: the other workers of a
// run, that is, when this one does not come.
#pragma once

#include <cstdint>

namespace lockstep::observe {

// While one lives, the program does `what`, a literal, unless a scope inside says something closer. Of one
// thread at a time, the one that trains; cheap enough for every batch.
class ActivityScope {
 public:
  explicit ActivityScope(const char* what);
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  const char* outer_;
};

struct Activity {
  const char* what = "the program's own code";
  int64_t since_ns = 0;  // of Clock::system()
};

// Thread-safe.
Activity current_activity();

}  // namespace lockstep::observe
