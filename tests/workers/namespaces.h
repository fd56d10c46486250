// Machines of a test: network namespaces with an address each, joined by a switch.
//
//   lockstep_PID_hub        the switch: a bridge with a port per machine
//   lockstep_PID_0, _1, …   the machines: 10.77.0.1, 10.77.0.2, … and a loopback of their own
//
// A cut link loses what is sent without a word to either side, as a pulled cable behind the next switch does.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

class Namespaces {
 public:
  // Why this machine does not let a test make them; empty: it does.
  static std::string missing();
  // Why links cannot be slowed down (`tc tbf`); empty: they can.
  static std::string missing_slow();

  explicit Namespaces(int machines);
  // Nothing is left of them: processes that still run there keep a nameless one, without links.
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  int size() const { return machines_; }
  std::string address(int machine) const;
  // What stands in front of a command that runs on the machine; the command keeps the process' id.
  std::vector<std::string> enter(int machine) const;

  void cut(int machine) const;
  void mend(int machine) const;
  // What goes to the machine and comes from it passes no faster than so many kilobits per second, until it is
  // mended.
  void slow(int machine, int kilobits) const;

  // As `ip netns list` names them; of all tests that run now. For a test that looks whether any is left.
  static std::vector<std::string> all();
  std::string name(int machine) const;

 private:
  void remove() const;
  std::string hub() const;

  const int machines_;
};

}  // namespace lockstep::testing
