// What a process knows of all ranks of its group: who they are, how far each has come, and who is missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/connection.h"
#include "lockstep/base/error.h"
#include "observe/activity.h"

namespace lockstep::comm {

// Of one thread at a time: the group asks with its lock held.
class Membership {
 public:
  // `names`: by rank, "process 71 on host b". All ranks are heard of now.
  Membership(int rank, const std::vector<std::string>& names);

  // "rank 2 (process 71 on host b)"
  std::string name(size_t r) const;

  // --- this rank ---
  // So many collectives it has begun and ended, the last begun is `operation`. False: that was known.
  bool set_progress(int64_t begun, int64_t ended, std::string_view operation);
  // The number of a gathering that it begins.
  int64_t begin_gathering() { return ++own().gathers; }
  void set_activity(const observe::Activity& activity, int64_t now_ns);

  // --- what ranks tell each other ---
  // Everybody tells rank 0 of itself, and rank 0 tells everybody of all.
  std::string told() const;
  // True: others have begun something since, so that rank 0 has to tell.
  bool take_told(const std::string& body);

  // --- who is gone ---
  void set_lost(size_t r, std::string why) { members_[r].lost = std::move(why); }
  void set_left(size_t r) { members_[r].left = true; }
  bool has_left(size_t r) const { return members_[r].left; }
  bool gone(size_t r) const { return members_[r].left || !members_[r].lost.empty(); }
  // Why the run ends; false: it had ended before, and the first reason counts.
  bool end(std::string verdict, ErrorCode code);
  const std::string& verdict() const { return verdict_; }

  // --- sentences on others; empty: there is none to be said ---
  // Who is gone without goodbye, or gave up.
  std::string lost() const;
  // What calls throw that cannot happen for it.
  ErrorCode lost_code() const { return verdict_.empty() ? ErrorCode::io : verdict_code_; }
  std::string left() const;
  // Who has begun fewer than `operation` collectives.
  std::string behind(int64_t operation) const;
  // Who has not come to a collective, called `name`, or is at another one of that number.
  std::string missing_from(int64_t operation, std::string_view name) const;
  // Who has not come to a gathering.
  std::string missing_from_gathering(int64_t number, const std::string& name) const;
  // What a rank does instead of coming to `what`.
  std::string absent(size_t r, const std::string& what) const;

 private:
  struct Member {
    std::string who;
    std::string lost;  // why; empty: it is there
    bool left = false;
    int64_t begun = 0, ended = 0;  // collectives
    int64_t gathers = 0;           // begun
    std::string operation;         // the collective begun last
    // What it was doing when it was last heard of, for how long, and when that was.
    std::string activity;
    double active_s = 0;
    Moment heard = SteadyClock::now();
  };

  Member& own() { return members_[static_cast<size_t>(rank_)]; }
  void put(MessageWriter& body, int r) const;
  bool take(MessageReader& body);

  const int rank_;
  std::vector<Member> members_;
  std::string verdict_;  // why the run ends; empty: it goes on
  ErrorCode verdict_code_ = ErrorCode::io;
};

// Sentences one behind the other.
void add_sentence(std::string& text, const std::string& sentence);

}  // namespace lockstep::comm
