// How the workers of a run meet: by what engine they are joined, and what they have to agree on.
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/environment.h"
#include "comm/address.h"
#include "comm/connection.h"
#include "comm/workers.h"
#include "device/plugin.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

std::string secret_of_run(std::source_location where) {
  if (const auto secret = env::read_string("LOCKSTEP_SECRET")) return *secret;
  const auto path = env::read_string("LOCKSTEP_SECRET_FILE");
  if (!path) return {};
  std::ifstream file(*path, std::ios::binary);
  std::string secret((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  require(!secret.empty(), ErrorCode::io, where, "LOCKSTEP_SECRET_FILE: \"", *path,
          "\" cannot be read, or holds nothing");
  return secret;
}

std::string random_secret() {
  unsigned char bytes[16] = {};
  require(getrandom(bytes, sizeof bytes, 0) == static_cast<ssize_t>(sizeof bytes), ErrorCode::io,
          std::source_location::current(), "the system gives no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Ranks of mpirun know each other, but no address: rank 0 chooses one and tells it through MPI.
GroupOptions meet_through_mpi(const Cluster& cluster, const WorkersOptions& options,
                              std::source_location where) {
  GroupOptions group{.rank = cluster.rank, .size = cluster.size, .timeout_s = options.join_timeout_s};
  std::string told;
  if (cluster.rank == 0) {
    const bool one_host = variable("OMPI_COMM_WORLD_LOCAL_SIZE") == std::to_string(cluster.size);
    const std::string host = one_host ? "127.0.0.1" : reachable_host();
    int port = 0;
    group.bound_socket = bind_any_port(host, port, where);
    told = detail::concat(host, ":", port, "\n", random_secret());
  }
  told = communicator_backend("mpi", where).share_at_launch(told, cluster.rank, cluster.size);
  const size_t line = told.find('\n');
  group.address = told.substr(0, line);
  group.secret = told.substr(line + 1);
  return group;
}

}  // namespace

EngineChoice choose_engine(const Cluster& cluster, const WorkersOptions& options, bool has_pmi,
                           const std::function<std::string(const char*)>& missing,
                           std::source_location where) {
  const auto choose = [&](const char* engine, const std::string& reason) -> EngineChoice {
    const std::string why = missing(engine);
    require(why.empty(), ErrorCode::unsupported, where, "workers cannot be joined by ", engine, ": ", why);
    return {engine, reason};
  };
  if (options.engine == Engine::mpi) return choose("mpi", "it was asked for");
  if (options.engine == Engine::gloo) return choose("gloo", "it was asked for");
  require(options.engine != Engine::nccl || options.devices_are_gpus, ErrorCode::invalid_argument, where,
          "CommunicationImplementation::nccl joins GPUs, and this worker has none; leave it at automatic");
  if (cluster.source == ClusterSource::mpi) return choose("mpi", "mpirun started the workers");
  if (cluster.source == ClusterSource::slurm && has_pmi && missing("mpi").empty())
    return {"mpi", "srun started the workers with MPI's support"};
  const std::string why = missing("gloo");
  if (why.empty()) return {"gloo", "no launcher of MPI's started the workers"};
  require(options.devices_are_gpus, ErrorCode::unsupported, where, "workers cannot be joined: ", why,
          "; without Gloo they can be started by mpirun, and joined by MPI");
  return {"", why};
}

std::shared_ptr<Workers> Workers::meet(const Cluster& cluster, const WorkersOptions& options,
                                       std::source_location where) {
  const bool has_pmi = !variable("PMIX_RANK").empty() || !variable("PMI_RANK").empty();
  const EngineChoice choice = choose_engine(
      cluster, options, has_pmi, [](const char* engine) { return missing_backend(engine); }, where);
  const bool elastic = options.min_workers > 0;
  require(!elastic || choice.engine == "gloo", ErrorCode::unsupported, where,
          "elastic runs are joined by Gloo, and these workers by ",
          choice.engine.empty() ? "NCCL alone" : choice.engine,
          "; start them with lockstep launch, or set communication.implementation to gloo");
  GroupOptions group_options = cluster.address.empty() ? meet_through_mpi(cluster, options, where)
                                                       : GroupOptions{.address = cluster.address,
                                                                      .rank = cluster.rank,
                                                                      .size = cluster.size,
                                                                      .timeout_s = options.join_timeout_s,
                                                                      .secret = secret_of_run(where)};
  group_options.may_be_under_way = elastic;
  std::unique_ptr<Group> group;
  try {
    group = std::make_unique<Group>(group_options, where);
  } catch (const RunGoesOn& run) {
    auto workers = std::make_shared<Workers>(
        std::make_unique<Group>(GroupOptions{.rank = 0, .size = 1}, where), nullptr,
        communicator_backend("gloo", where).description() + ": the run is elastic", options.timeout_s);
    workers->open_rendezvous(cluster, options, run.own_host, group_options.secret);
    workers->endpoints_ = run.endpoints;
    workers->be_alone();
    return workers;
  }
  const auto agree = [&](const char* what, const std::string& own) {
    require_equal(*group, what, own, options.join_timeout_s, where);
  };
  agree("the version of Lockstep", kPluginAbiTag);
  std::string addresses;
  for (const std::string& address : cluster.addresses) addresses += (addresses.empty() ? "" : ", ") + address;
  agree("the addresses of the cluster", addresses);
  agree("the engine that joins them", choice.engine);
  agree("whether they are elastic", detail::concat("min_workers ", options.min_workers));

  std::unique_ptr<Communicator> engine;
  std::string joined_by = "their group alone: " + choice.reason;
  if (!choice.engine.empty()) {
    const CommunicatorBackend& library = communicator_backend(choice.engine, where);
    engine = join_engine(library, *group, options.timeout_s);
    joined_by = library.description() + ": " + choice.reason;
  }
  auto workers =
      std::make_shared<Workers>(std::move(group), std::move(engine), std::move(joined_by), options.timeout_s);
  if (elastic) {
    workers->open_rendezvous(cluster, options, workers->group().own_host(), group_options.secret);
    const Member& self = workers->rendezvous_->self();
    Roster roster{1, {}};
    for (const std::string& one : workers->gather(
             "their endpoints",
             MessageWriter().put(self.id).put_text(self.endpoint).put_text(self.who).take(), where)) {
      MessageReader reader(one);
      Member& member = roster.members.emplace_back();
      member.id = reader.get<uint64_t>();
      member.endpoint = reader.get_text();
      member.who = reader.get_text();
    }
    workers->generation_ = roster.generation;
    workers->rendezvous_->enter(roster);
  }
  return workers;
}

}  // namespace lockstep::comm
