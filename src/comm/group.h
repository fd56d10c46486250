// The processes of a run: who is there, how far each has come, and who is missing.
//
// Rank 0 listens; the others connect to it and stay connected as long as they live. So the end of a process is seen at
// once by rank 0, which tells the others. What a collective library cannot say, which of the others a rank waits for,
// follows from what every rank says of its own progress.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>

namespace lockstep::comm {

struct GroupOptions {
  std::string address = "127.0.0.1:29400";  // host:port at which rank 0 listens
  int rank = 0;
  int size = 1;
  double timeout_s = 300;  // for all to come, and for share()
  // What all ranks know and nobody else: whoever does not show that it knows it is not heard. Empty: anybody who speaks
  // this protocol may join.
  std::string secret = {};
};

// Thread-safe.
class Group {
 public:
  // Returns when all ranks are there; until then it logs every few seconds for whom it waits. Throws Error(io) that names
  // those who are not when the time is over, or why rank 0 cannot listen (a port in use, and by whom), and
  // Error(invalid_argument) where ranks disagree on their number or two say that they are the same.
  explicit Group(const GroupOptions& options, std::source_location where = std::source_location::current());
  // Says goodbye: the others do not miss this rank from then on.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const;
  int size() const;

  // What rank 0 gives, at every rank. All call it, the same number of times. Throws Error(io) where a rank is lost or
  // the time is over.
  std::string share(const std::string& bytes, std::source_location where = std::source_location::current());

  // So many collectives this rank has begun, and so many have ended. Told to the others within a tenth of a second.
  void progress(int64_t begun, int64_t ended);
  // Who is gone without goodbye: "rank 2 (process 71 on host b) is gone: it closed the connection". Empty: nobody.
  std::string lost() const;
  // Who has begun fewer than `operation` collectives: "rank 2 (process 71 on host b) has begun 16". Empty: nobody that
  // is known of.
  std::string behind(int64_t operation) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm
