#include "comm/tf_config.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::comm {
namespace {

using detail::concat;

constexpr const char* kName = "TF_CONFIG";
const std::vector<std::string> kJobs{"chief", "worker", "ps", "evaluator", "master"};

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value)
                                                                                   : std::nullopt;
}

// "host:port", where the host may be an IPv6 address in brackets.
std::string address_fault(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) return "has no port: write host:port";
  const auto port = number(std::string_view(address).substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return "has a port that is not between 1 and 65535";
  const std::string host = address.substr(0, colon);
  if (host.empty()) return "has no host: write host:port";
  if (host.find("//") != std::string::npos) return "is a URL: write host:port alone";
  if (host.find(':') != std::string::npos && !(host.front() == '[' && host.back() == ']'))
    return "is an IPv6 address without brackets: write [address]:port";
  return {};
}

// A name that every machine gives to itself.
bool is_local(const std::string& address) {
  return address.starts_with("localhost:") || address.starts_with("127.") || address.starts_with("[::1]:");
}

// The same for both ways of writing this machine's own.
std::string place_of(const std::string& address) {
  return address.starts_with("localhost:") ? "127.0.0.1" + address.substr(address.rfind(':')) : address;
}

class Check {
 public:
  explicit Check(const Json& config) : config_(config) {}

  std::vector<std::string> run() {
    if (!config_.is_object()) return {"it is not a JSON object"};
    const Json* cluster = config_.find("cluster");
    if (!cluster)
      add("it has no \"cluster\"");
    else if (!cluster->is_object() || cluster->members().empty())
      add("\"cluster\" is not an object of jobs, as {\"worker\": [\"host:port\", ...]}");
    else
      for (const auto& [job, addresses] : cluster->members()) look_at(job, addresses);
    look_for_localhost();
    if (const Json* task = config_.find("task"))
      look_at_task(*task, cluster);
    else
      add("it has no \"task\": every process needs its own, as {\"type\": \"worker\", \"index\": 0}");
    for (const auto& [key, value] : config_.members())
      if (key != "cluster" && key != "task" && key != "rpc_layer" && key != "environment" && key != "job")
        add(concat("\"", key, "\" is not one of its keys, cluster and task"));
    return std::move(faults_);
  }

 private:
  void add(std::string fault) { faults_.push_back(std::move(fault)); }

  void look_at(const std::string& job, const Json& addresses) {
    if (std::find(kJobs.begin(), kJobs.end(), job) == kJobs.end()) {
      const std::string meant = nearest_spelling(job, kJobs);
      add(concat("job \"", job, "\" is none of chief, worker, ps, evaluator",
                 meant.empty() ? "" : concat("; did you mean ", meant, "?")));
    }
    if (!addresses.is_list() || addresses.items().empty()) {
      add(concat("job \"", job, "\" is not a list of addresses, as [\"host:port\"]"));
      return;
    }
    if (job == "chief" && addresses.items().size() > 1)
      add(concat("there are ", addresses.items().size(), " chiefs: there can be one"));
    for (size_t i = 0; i < addresses.items().size(); ++i) {
      const std::string place = concat(job, " ", i);
      if (!addresses.at(i).is_string()) {
        add(concat(place, " is not an address but ", addresses.at(i).dump()));
        continue;
      }
      const std::string& address = addresses.at(i).as_string();
      if (const std::string fault = address_fault(address); !fault.empty())
        add(concat(place, ", \"", address, "\", ", fault));
      const auto first = std::find_if(places_.begin(), places_.end(), [&](const auto& other) {
        return place_of(other.first) == place_of(address);
      });
      if (first != places_.end())
        add(concat(first->second, " and ", place, " have the same address, ", address));
      places_.emplace_back(address, place);
    }
  }

  // It is no address of one machine among several.
  void look_for_localhost() {
    const auto local =
        std::find_if(places_.begin(), places_.end(), [&](const auto& p) { return is_local(p.first); });
    const auto other =
        std::find_if(places_.begin(), places_.end(), [&](const auto& p) { return !is_local(p.first); });
    if (local != places_.end() && other != places_.end())
      add(concat(local->second, " is at ", local->first, ", which ", other->second, " at ", other->first,
                 " cannot reach: write the host's name or address"));
  }

  void look_at_task(const Json& task, const Json* cluster) {
    const Json* type = task.find("type");
    const Json* index = task.find("index");
    if (!type || !type->is_string())
      add("\"task\" has no \"type\", as \"worker\"");
    else if (cluster && cluster->is_object() && !cluster->contains(type->as_string()) &&
             type->as_string() != "evaluator")
      add(concat("this task is of type \"", type->as_string(), "\", which is no job of the cluster"));
    else if (type->as_string() == "ps")
      add("this task is a parameter server, and there are none: workers exchange their gradients themselves; "
          "start the program for the tasks of type chief and worker alone");
    std::optional<int64_t> number_of_task;
    if (index && index->is_int()) number_of_task = index->as_int();
    if (index && index->is_string()) number_of_task = number(index->as_string());
    if (!number_of_task) {
      add(index ? concat("the \"index\" of \"task\" is not a number but ", index->dump())
                : "\"task\" has no \"index\", as 0");
      return;
    }
    if (!type || !type->is_string() || !cluster) return;
    const Json* job = cluster->find(type->as_string());
    if (!job || !job->is_list() || job->items().empty()) return;
    const auto size = static_cast<int64_t>(job->items().size());
    if (*number_of_task < 0 || *number_of_task >= size)
      add(concat("this task is ", type->as_string(), " ", *number_of_task, ", but there ",
                 size == 1 ? "is 1, number 0" : concat("are ", size, ", 0 to ", size - 1)));
  }

  const Json& config_;
  std::vector<std::string> faults_;
  std::vector<std::pair<std::string, std::string>> places_;  // an address, "worker 1"
};

int64_t task_index(const Json& task) {
  const Json& index = task.at("index");
  return index.is_string() ? *number(index.as_string()) : index.as_int();
}

}  // namespace

TfConfig parse_tf_config(std::string_view text) {
  const Json config = Json::parse(text, kName);
  TfConfig result;
  const Json* cluster = config.find("cluster");
  if (!cluster || cluster->members().empty()) return result;
  const Json& task = config.at("task");
  const std::string& type = task.at("type").as_string();
  const int64_t index = task_index(task);
  result.task = concat(type, " ", index);
  result.evaluator = type == "evaluator";
  for (const char* job : {"chief", "master", "worker"}) {
    const Json* addresses = cluster->find(job);
    if (!addresses) continue;
    if (type == job) result.rank = static_cast<int>(result.addresses.size()) + static_cast<int>(index);
    for (const Json& address : addresses->items()) result.addresses.push_back(address.as_string());
  }
  return result;
}

std::vector<std::string> tf_config_faults(std::string_view text) {
  try {
    const Json config = Json::parse(text, kName);
    return Check(config).run();
  } catch (const Error& error) {
    // Who tells of the faults says of what they are.
    const std::string &message = error.message(), source = concat(kName, ": ");
    return {message.starts_with(source) ? message.substr(source.size()) : message};
  }
}

}  // namespace lockstep::comm
