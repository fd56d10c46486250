#include "cli/launch/hosts.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

#include "cli/launch/here.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"

namespace lockstep::launch {
namespace {

constexpr const char* kForm = "; hosts are written as --hosts a:2,b:2 (two workers on each)";

Host parse_host(std::string_view entry, std::string_view text) {
  const auto wrong = [&](const auto&... why) {
    fail(ErrorCode::invalid_argument, kHere, "--hosts \"", text, "\": ", why..., kForm);
  };
  if (entry.empty()) wrong("there is an empty entry");
  // [fe80::1]:2 has colons of its own.
  const size_t bracket = entry.find(']');
  const size_t colon = entry.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string name(entry.substr(0, colon));
  if (bracket != std::string_view::npos && colon != std::string_view::npos && colon != bracket + 1)
    wrong("\"", entry, "\" goes on behind its ]");
  std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
  if (name.empty()) wrong("\"", entry, "\" has no name");
  if (name.front() == '-') wrong("\"", name, "\" is an option of ssh, not a host");
  const bool odd = std::any_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isspace(c) || std::iscntrl(c) || c == '\'' || c == '"' || c == '/' || c == '=';
  });
  if (odd) wrong("\"", name, "\" is no name of a host");
  Host host{.name = name};
  if (colon == std::string_view::npos) return host;
  const std::string_view count = entry.substr(colon + 1);
  if (bracket == std::string_view::npos && count.find(':') != std::string_view::npos)
    wrong("\"", entry, "\" has several colons: an IPv6 address is written [fe80::1]:2");
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), host.workers);
  if (error != std::errc() || end != count.data() + count.size() || host.workers < 1)
    wrong("\"", entry, "\": the number of workers must be a whole number of at least 1, received \"", count,
          "\"");
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    Host host = parse_host(text.substr(begin, comma - begin), text);
    for (const Host& other : hosts)
      require(network_name(other.name) != network_name(host.name), ErrorCode::invalid_argument, kHere,
              "--hosts \"", text, "\": ", network_name(host.name), " is there twice; write ",
              network_name(host.name), ":", other.workers + host.workers, " for all of its workers");
    hosts.push_back(std::move(host));
    begin = comma + 1;
  }
  if (hosts.size() > 1)
    for (const Host& host : hosts)
      require(!is_loopback(host.name), ErrorCode::invalid_argument, kHere, "--hosts \"", text,
              "\": ", host.name,
              " is another machine on each of the hosts; write the name by which the others know it");
  return hosts;
}

std::vector<Host> fill_hosts(std::vector<Host> hosts, int workers) {
  const int places = std::accumulate(hosts.begin(), hosts.end(), 0,
                                     [](int sum, const Host& host) { return sum + host.workers; });
  require(workers <= places, ErrorCode::invalid_argument, kHere, "-n ", workers, " is more than the ", places,
          places == 1 ? " worker" : " workers",
          " that --hosts has room for; raise the numbers behind the colons, or leave -n out");
  int left = workers > 0 ? workers : places;
  for (Host& host : hosts) {
    host.workers = std::min(host.workers, left);
    left -= host.workers;
  }
  std::erase_if(hosts, [](const Host& host) { return host.workers == 0; });
  return hosts;
}

std::string network_name(const std::string& host) { return host.substr(host.rfind('@') + 1); }

bool is_loopback(const std::string& host) {
  const std::string name = network_name(host);
  return name == "localhost" || name == "::1" ||
         (name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string::npos);
}

bool is_this_machine(const std::string& host) {
  if (host.find('@') != std::string::npos) return false;  // as another user, perhaps
  return is_loopback(host) || host == host_name();
}

}  // namespace lockstep::launch
