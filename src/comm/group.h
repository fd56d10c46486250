// The processes of a run: who is there, how far each has come, and who is missing.
//
// Rank 0 listens; the others connect to it and stay connected as long as they live. So the end of a process
// is seen at once by rank 0, which tells the others. What a collective library cannot say, which of the
// others a rank waits for, follows from what every rank says of its own progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::comm {

struct GroupOptions {
  std::string address = "127.0.0.1:29400";  // host:port at which rank 0 listens
  int rank = 0;
  int size = 1;
  double timeout_s = 300;  // for all to come, and for share()
  // What all ranks know and nobody else: whoever does not show that it knows it is not heard. Empty: anybody
  // who speaks this protocol may join.
  std::string secret = {};
  // A socket of rank 0's that is bound to the address already, for launchers that leave the choice of a port
  // to it; the group takes it. -1: rank 0 binds one.
  int bound_socket = -1;
  // In elastic runs (comm/rendezvous.h) the run may be under way without this process. Whoever listens at the
  // address then says so, or connects to rank 0 where that listens there: RunGoesOn is thrown.
  bool may_be_under_way = false;
  // Asked while ranks come: whether somebody is known to be gone, so that they never all will. Null: nobody
  // knows.
  std::function<bool()> hopeless = nullptr;
};

// Thrown where the run that a process wanted to begin goes on without it.
struct RunGoesOn {
  std::string endpoints;  // where it is let in: the body of MessageKind::goes_on
  std::string own_host;   // under which address this process was seen
};

// Thread-safe.
class Group {
 public:
  // Returns when all ranks are there; until then it logs every few seconds for whom it waits. Throws
  // Error(io) that names those who are not when the time is over, or why rank 0 cannot listen (a port in use,
  // and by whom), and Error(invalid_argument) where ranks disagree on their number or two say that they are
  // the same.
  explicit Group(const GroupOptions& options, std::source_location where = std::source_location::current());
  // Says goodbye: the others do not miss this rank from then on.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int size() const;
  // The address, without a port, under which the others can reach this process: that of its connections in
  // the group.
  std::string own_host() const;

  // What rank 0 gives, at every rank. All call it, the same number of times. Throws Error(io) where a rank is
  // lost or the time is over.
  std::string share(const std::string& bytes, std::source_location where = std::source_location::current());

  // What each rank gives, by rank, at every rank. All call it, in the same order; `what` names it, and ranks
  // that are at something else are told so: Error(failed_precondition). Throws Error(io) that names who did
  // not come and what it is doing where a rank is gone, has left, or does not come within `timeout_s`; every
  // few seconds until then the log names it. A part has a MiB at most.
  std::vector<std::string> gather(std::string_view what, const std::string& part, double timeout_s,
                                  std::source_location where = std::source_location::current());

  // What this rank has to say of itself, for rank 0 to look at when it likes; what it said before is
  // forgotten. Returns at once: a thread of the group's sends it, within a tenth of a second. A MiB at most.
  void post(std::string bytes);
  struct Post {
    std::string bytes;  // empty: nothing yet
    double age_s = 0;   // since it came
  };
  // At rank 0: what the others have posted last, by rank.
  std::vector<Post> posts() const;

  // So many collectives this rank has begun, and so many have ended; the last begun is `operation`. Told to
  // the others within a tenth of a second, with what the program is doing (observe/activity.h), and every
  // second as a sign of life.
  void progress(int64_t begun, int64_t ended, std::string_view operation = {});
  // This rank ends the run, and all others learn why: what they call throws Error(`code`) from then on. The
  // first reason counts.
  void give_up(const std::string& reason, ErrorCode code = ErrorCode::io);

  // Who is gone without goodbye, or gave up: "rank 2 (process 71 on host b) is gone: it closed the
  // connection". Empty: nobody.
  std::string lost() const;
  // What calls throw that cannot happen for it: io, or the code of the one who gave up.
  ErrorCode lost_code() const;
  // Who has left with goodbye: "rank 2 (process 71 on host b) has left: its program let go of the run".
  // Empty: nobody.
  std::string left() const;
  // Who has begun fewer than `operation` collectives: "rank 2 (process 71 on host b) has begun 16". Empty:
  // nobody that is known of.
  std::string behind(int64_t operation) const;
  // The same as a sentence on collective `operation`, called `name`: "rank 2 (process 71 on host b) has not
  // come to all_reduce #17 [dense/kernel]; for 61 s it is in Dataset::next". Ranks that are at another
  // collective of that number are named as well. Empty: all are there.
  std::string missing_from(int64_t operation, std::string_view name) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm
