#include "workers/namespaces.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::testing {
namespace {

constexpr const char* kPrefix = "lockstep_";

struct Done {
  int status = 0;
  std::string output;
};

Done shell(const std::string& command) {
  Done done;
  std::FILE* const pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  std::array<char, 512> chunk{};
  while (const size_t read = std::fread(chunk.data(), 1, chunk.size(), pipe))
    done.output.append(chunk.data(), read);
  done.status = pclose(pipe);
  return done;
}

void must(const std::string& command) {
  const Done done = shell(command);
  require(done.status == 0, ErrorCode::io, std::source_location::current(), command, ": ", done.output);
}

// A token bucket with room for some packets.
std::string limit(int kilobits) {
  return detail::concat("tbf rate ", kilobits, "kbit burst 8kb latency 500ms");
}

// Tried once for all tests of the process.
std::string try_out(const std::string& command) {
  const Done done = shell(command);
  return done.status == 0 ? "" : command + ": " + done.output;
}

}  // namespace

std::string Namespaces::missing() {
  static const std::string* const why = [] {
    auto* const text = new std::string;
    if (shell("command -v ip").status != 0)
      *text = "there is no ip (iproute2)";
    else if (geteuid() != 0)
      *text = "making network namespaces takes root";
    else
      *text = try_out(detail::concat("ip netns add ", kPrefix, getpid(), "_try && ip -n ", kPrefix, getpid(),
                                     "_try link add try0 type veth peer name try1 && ip -n ", kPrefix,
                                     getpid(), "_try link add try2 type bridge; status=$?; ip netns del ",
                                     kPrefix, getpid(), "_try; exit $status"));
    return text;
  }();
  return *why;
}

std::string Namespaces::missing_slow() {
  static const std::string* const why = [] {
    if (const std::string none = missing(); !none.empty()) return new std::string(none);
    const std::string name = detail::concat(kPrefix, getpid(), "_try");
    return new std::string(try_out(detail::concat("ip netns add ", name, " && ip -n ", name,
                                                  " link add try0 type veth peer name try1 && ip netns exec ",
                                                  name, " tc qdisc add dev try0 root ", limit(1000),
                                                  "; status=$?; ip netns del ", name, "; exit $status")));
  }();
  return *why;
}

Namespaces::Namespaces(int machines) : machines_(machines) {
  try {
    must("ip netns add " + hub());
    must("ip -n " + hub() + " link add switch type bridge");
    must("ip -n " + hub() + " link set switch up");
    for (int m = 0; m < machines; ++m) {
      must("ip netns add " + name(m));
      must(detail::concat("ip -n ", hub(), " link add port", m, " type veth peer name eth0 netns ", name(m)));
      must(detail::concat("ip -n ", hub(), " link set port", m, " master switch up"));
      must(detail::concat("ip -n ", name(m), " addr add ", address(m), "/24 dev eth0"));
      must("ip -n " + name(m) + " link set eth0 up");
      must("ip -n " + name(m) + " link set lo up");
    }
  } catch (...) {
    remove();
    throw;
  }
}

Namespaces::~Namespaces() { remove(); }

void Namespaces::remove() const {
  for (int m = 0; m < machines_; ++m) shell("ip netns del " + name(m));
  shell("ip netns del " + hub());
}

std::string Namespaces::hub() const { return detail::concat(kPrefix, getpid(), "_hub"); }
std::string Namespaces::name(int machine) const { return detail::concat(kPrefix, getpid(), "_", machine); }
std::string Namespaces::address(int machine) const { return detail::concat("10.77.0.", machine + 1); }

std::vector<std::string> Namespaces::enter(int machine) const {
  return {"ip", "netns", "exec", name(machine)};
}

void Namespaces::cut(int machine) const {
  must(detail::concat("ip -n ", hub(), " link set port", machine, " down"));
}

void Namespaces::mend(int machine) const {
  must(detail::concat("ip -n ", hub(), " link set port", machine, " up"));
  // Nothing is there to be deleted where it was not slowed.
  shell(detail::concat("ip netns exec ", hub(), " tc qdisc del dev port", machine, " root"));
  shell(detail::concat("ip netns exec ", name(machine), " tc qdisc del dev eth0 root"));
}

void Namespaces::slow(int machine, int kilobits) const {
  const std::string how = " root " + limit(kilobits);
  must(detail::concat("ip netns exec ", hub(), " tc qdisc replace dev port", machine, how));
  must(detail::concat("ip netns exec ", name(machine), " tc qdisc replace dev eth0", how));
}

std::vector<std::string> Namespaces::all() {
  std::vector<std::string> names;
  std::istringstream lines(shell("ip netns list").output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kPrefix)) names.push_back(line.substr(0, line.find(' ')));
  return names;
}

}  // namespace lockstep::testing
