// The machines of a job as people write them: "a:2,user@b:2".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

struct Host {
  std::string name;  // as ssh takes it: "b", "user@b", "10.0.0.7", "fe80::1"
  int workers = 1;

  bool operator==(const Host&) const = default;
};

// Throws Error(invalid_argument) that names the entry, what is wrong with it and how it is written.
std::vector<Host> parse_hosts(std::string_view text);
// The hosts filled in order until all workers have a place; 0: as many as there are places. Throws
// Error(invalid_argument) where there are fewer places than workers.
std::vector<Host> fill_hosts(std::vector<Host> hosts, int workers);

// The name without the user: what other machines know it by.
std::string network_name(const std::string& host);
// Whether it names this machine whatever machine it is read on.
bool is_loopback(const std::string& host);
// Whether it is this machine, by the names that need no network to be known.
bool is_this_machine(const std::string& host);

}  // namespace lockstep::launch
