// The rendezvous of an elastic run: where each process is found, and how those who are left form the next
// generation.
//
// Every process listens at an address of its own as long as it lives, its endpoint; all know those of all. A
// run goes through generations, each with its members and its own group and engine (comm/workers.h). Where
// one of them is lost, each of the others asks the members before it, in the order of their ranks, for the
// next generation; the first that finds none before it leads. It waits until every other member has come or
// is known to be dead, says who is in the new generation, and where the group of that meets. So the chief may
// be the one that is lost.
//
//   dead      its machine answers that nobody listens at its endpoint
//   silent    it is stopped, cut off, or busy for longer than the time set: the run goes on without it, and it
//             learns when it asks that it was expelled
//
// Whoever is silent may be alive, and have others with it. Those who have come go on where they are more than
// half of all who are not dead, or half of them with the first: two parts of a run never go on at the same
// time.
//
// A newcomer, a worker that was started again or was expelled, waits at the leader's endpoint until the
// members agree, between two steps, to form anew with it. It finds the run at the meeting address of its
// launcher: a member listens there whose machine has that address, and the leader looks there about once per
// second for a rank 0 that waits for others. It has to be where the members are in their program, in the same
// fit: one that waits at an earlier place learns that the run is past it, and what it has to know of that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/roster.h"

namespace lockstep::comm {

struct RendezvousOptions {
  std::string host;     // at which this process listens
  std::string meeting;  // where a worker that starts looks for the others; empty: nowhere
  std::string secret;
  std::string version;  // of the library: a newcomer of another is refused
  int most_workers = 1;
  int min_workers = 1;
  double timeout_s = 60;  // after which a member that is not heard of is silent
  double wait_s = 300;    // for workers to come, where there are fewer than min_workers
};

// A generation that its leader has announced, before its members have met.
struct Formation {
  Roster roster;
  int rank = 0;
  std::string address;  // of its group
  std::string secret;
  int bound_socket = -1;  // of its first
  // Whether one of them is gone before all have entered; with the others' connections, which it keeps open.
  std::function<bool()> hopeless;
};

// Thrown where too few are left.
struct TooFew {
  std::string reason;
  bool leads = false;  // this process is the first of those who are
};

// Thrown where the run has gone on without this process.
struct Expelled {
  std::string endpoints;  // where it is let in again
};

// Thrown where the run is past the place at which this process wants to join it.
struct Passed {
  std::string past;  // as the leader has set it
};

class Rendezvous {
 public:
  // `interrupt(reason)` is called from the rendezvous' own thread when another member forms anew while this
  // one works.
  Rendezvous(const RendezvousOptions& options, std::function<void(const std::string&)> interrupt);
  // Newcomers that wait look for another.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  const Member& self() const;

  // What follows is for one thread at a time.

  // This process is in that generation, and works.
  void enter(const Roster& roster);
  // With the others that are left and, where there is room and the leader `admits` them, newcomers that wait.
  // `done`: this process needs no further step; where that holds for all, they may be fewer than min_workers.
  // Throws Expelled or TooFew. Where the formation then fails, it is called again.
  Formation form(bool done, bool admits);
  // As a newcomer, at one of these endpoints: the body of a goes_on, RunGoesOn::endpoints or
  // Expelled::endpoints. Returns when it is let in. Throws Passed; Error(io) where the run has ended or
  // cannot be found, Error(failed_precondition) where it refuses this one.
  Formation join(const std::string& endpoints);

  // Where this process is in its program, counted up, and what is to be told to those who join at earlier
  // places.
  void come_to(int64_t place, const std::string& past);

  // The run is over: newcomers that wait are told so.
  void end();

  // How many wait to be let in, where this process leads. From any thread.
  int newcomers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::comm
