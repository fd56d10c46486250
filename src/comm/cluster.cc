#include "comm/cluster.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "comm/tf_config.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using detail::concat;

// What the variables of one launcher say, with errors that name them.
class Reader {
 public:
  Reader(const EnvironmentLookup& environment, std::source_location where)
      : environment_(environment), where_(where) {}

  std::source_location where() const { return where_; }
  std::optional<std::string> text(std::string_view name) const { return environment_(name); }
  bool has(std::string_view name) const { return text(name).has_value(); }

  int number(std::string_view name, int64_t min, int64_t max) const {
    const std::string value = text(name).value_or("");
    int64_t parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    require(error == std::errc() && end == value.data() + value.size() && parsed >= min && parsed <= max,
            ErrorCode::invalid_argument, where_, name, ": a number from ", min, " to ", max,
            " is expected, received \"", value, "\"");
    return static_cast<int>(parsed);
  }

  // `name` is set, so `other` has to be.
  void need(std::string_view name, std::string_view other, std::string_view launcher) const {
    require(has(other), ErrorCode::invalid_argument, where_, name, " is set, but ", other,
            " is not: ", launcher, " sets both; set ", other, " too, or unset ", name,
            " to train with one worker");
  }

  // Rank and number of ranks from two variables.
  void place(Cluster& cluster, std::string_view rank, std::string_view size) const {
    cluster.size = number(size, 1, kMostRanks);
    cluster.rank = number(rank, 0, kMostRanks - 1);
    require(cluster.rank < cluster.size, ErrorCode::invalid_argument, where_, rank, "=", cluster.rank,
            " is not below ", size, "=", cluster.size, ": ranks are counted from 0");
  }

 private:
  static constexpr int64_t kMostRanks = 1 << 20;
  const EnvironmentLookup& environment_;
  std::source_location where_;
};

std::string worker_of(const Cluster& cluster) {
  return concat("worker ", cluster.rank, " of ", cluster.size);
}

std::string with_port(const std::string& host, int64_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return bare_ipv6 ? concat("[", host, "]:", port) : concat(host, ":", port);
}

Cluster from_tf_config(const Reader& reader, const std::string& text) {
  Cluster cluster{.source = ClusterSource::tf_config};
  // TensorFlow takes {} for a process that is alone.
  const std::vector<std::string> faults = tf_config_faults(text);
  const bool alone = faults.size() == 2 && faults[0].find("no \"cluster\"") != std::string::npos &&
                     faults[1].find("no \"task\"") != std::string::npos;
  if (!alone && !faults.empty()) {
    std::string all;
    for (const std::string& fault : faults) all += concat(all.empty() ? "" : "; ", fault);
    fail(ErrorCode::invalid_argument, reader.where(), "TF_CONFIG: ", all, ". Received ", text);
  }
  const TfConfig config = parse_tf_config(text);
  if (config.evaluator) {
    cluster.evaluator = true;
    cluster.description = concat("an evaluator beside the run, from TF_CONFIG (task ", config.task, ")");
    return cluster;
  }
  if (config.addresses.empty()) {
    cluster.description = "one worker: TF_CONFIG has no cluster";
    return cluster;
  }
  cluster.rank = config.rank;
  cluster.size = static_cast<int>(config.addresses.size());
  cluster.addresses = config.addresses;
  cluster.address = config.addresses[0];
  cluster.description = concat(worker_of(cluster), ", from TF_CONFIG (task ", config.task, ")");
  return cluster;
}

Cluster from_mpi(const Reader& reader, std::string_view rank, std::string_view size) {
  Cluster cluster{.source = ClusterSource::mpi};
  reader.need(rank, size, "mpirun");
  reader.place(cluster, rank, size);
  cluster.description = concat(worker_of(cluster), ", from mpirun (", rank, ", ", size, ")");
  return cluster;
}

// Below the ports that machines give to connections by themselves (32768 and up on Linux), another for every
// step.
int64_t slurm_port(const Reader& reader) {
  if (reader.has("MASTER_PORT")) return reader.number("MASTER_PORT", 1, 65535);
  constexpr int64_t kFirst = 12000, kPorts = 20000;
  const int64_t job = reader.has("SLURM_JOB_ID") ? reader.number("SLURM_JOB_ID", 0, INT32_MAX) : 0;
  const int64_t step = reader.number("SLURM_STEP_ID", 0, INT32_MAX);
  return kFirst + (job * 61 + step) % kPorts;
}

Cluster from_slurm(const Reader& reader) {
  Cluster cluster{.source = ClusterSource::slurm};
  const std::string_view size = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  reader.need("SLURM_PROCID", size, "srun");
  reader.place(cluster, "SLURM_PROCID", size);
  cluster.description = concat(worker_of(cluster), ", from srun (SLURM_PROCID, ", size, ")");
  if (cluster.size == 1) return cluster;
  const std::string_view nodes =
      reader.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  reader.need("SLURM_PROCID", nodes, "srun");
  const std::string first =
      reader.text("MASTER_ADDR").value_or(expand_host_list(*reader.text(nodes), reader.where())[0]);
  cluster.address = with_port(first, slurm_port(reader));
  return cluster;
}

Cluster from_torchrun(const Reader& reader) {
  Cluster cluster{.source = ClusterSource::torchrun};
  reader.need("RANK", "WORLD_SIZE", "torchrun");
  reader.place(cluster, "RANK", "WORLD_SIZE");
  cluster.description = concat(worker_of(cluster), ", from RANK and WORLD_SIZE");
  if (cluster.size == 1) return cluster;
  reader.need("WORLD_SIZE", "MASTER_ADDR", "torchrun");
  reader.need("MASTER_ADDR", "MASTER_PORT", "torchrun");
  int64_t port = reader.number("MASTER_PORT", 1, 65535);
  // The agent of torchrun listens there itself.
  if (reader.has("TORCHELASTIC_RUN_ID")) port += port < 65535 ? 1 : -1;
  cluster.address = with_port(*reader.text("MASTER_ADDR"), port);
  return cluster;
}

Cluster from_lockstep_launch(const Reader& reader) {
  Cluster cluster{.source = ClusterSource::lockstep_launch};
  reader.need("LOCKSTEP_RANK", "LOCKSTEP_WORKERS", "lockstep launch");
  reader.place(cluster, "LOCKSTEP_RANK", "LOCKSTEP_WORKERS");
  cluster.description = concat(worker_of(cluster), ", from lockstep launch");
  if (cluster.size == 1) return cluster;
  reader.need("LOCKSTEP_RANK", "LOCKSTEP_ADDRESS", "lockstep launch");
  cluster.address = *reader.text("LOCKSTEP_ADDRESS");
  return cluster;
}

}  // namespace

Cluster read_cluster(const EnvironmentLookup& environment, std::source_location where) {
  const Reader reader(environment, where);
  if (const auto config = reader.text("TF_CONFIG")) return from_tf_config(reader, *config);
  if (reader.has("OMPI_COMM_WORLD_RANK"))
    return from_mpi(reader, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (reader.has("PMI_RANK") && !reader.has("SLURM_STEP_ID")) return from_mpi(reader, "PMI_RANK", "PMI_SIZE");
  // A batch script has SLURM_PROCID too, but only srun starts steps.
  if (reader.has("SLURM_PROCID") && reader.has("SLURM_STEP_ID")) return from_slurm(reader);
  if (reader.has("RANK")) return from_torchrun(reader);
  require(!reader.has("WORLD_SIZE"), ErrorCode::invalid_argument, where,
          "WORLD_SIZE is set, but RANK is not: torchrun sets both; set RANK too, or unset WORLD_SIZE to "
          "train with one "
          "worker");
  if (reader.has("LOCKSTEP_RANK")) return from_lockstep_launch(reader);
  Cluster alone;
  alone.description =
      reader.has("SLURM_JOB_ID")
          ? "one worker: this is a Slurm allocation, but srun did not start the program; \"srun PROGRAM\" "
            "starts one worker per task"
          : "one worker: neither TF_CONFIG nor mpirun, srun, torchrun or lockstep launch names others; "
            "\"lockstep launch -n 4 -- PROGRAM\" starts four on this machine";
  return alone;
}

Cluster read_cluster(std::source_location where) {
  return read_cluster(
      [](std::string_view name) -> std::optional<std::string> {
        const char* value = std::getenv(std::string(name).c_str());
        if (!value || !*value) return std::nullopt;
        return std::string(value);
      },
      where);
}

namespace {

// Adds prefix01 ... prefix03 for "01-03", with as many digits as the first number has.
void add_range(std::vector<std::string>& hosts, const std::string& prefix, std::string_view range,
               std::string_view list, std::source_location where) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto parse = [&](std::string_view digits) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    require(error == std::errc() && end == digits.data() + digits.size() && value >= 0,
            ErrorCode::invalid_argument, where, "host list \"", list, "\": \"", range,
            "\" is no range of numbers, as 01-03");
    return value;
  };
  const int64_t begin = parse(first), end = parse(last);
  constexpr int64_t kMost = 1 << 20;
  require(begin <= end && end - begin < kMost, ErrorCode::invalid_argument, where, "host list \"", list,
          "\": \"", range, "\" does not go from a number to a larger one");
  for (int64_t i = begin; i <= end; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    hosts.push_back(prefix + digits);
  }
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list, std::source_location where) {
  std::vector<std::string> hosts;
  std::string prefix;
  for (size_t at = 0; at <= list.size(); ++at) {
    if (at == list.size() || list[at] == ',') {
      if (!prefix.empty()) hosts.push_back(std::exchange(prefix, {}));
      continue;
    }
    if (list[at] != '[') {
      require(list[at] != ']', ErrorCode::invalid_argument, where, "host list \"", list,
              "\": a ] without its [");
      prefix += list[at];
      continue;
    }
    const size_t close = list.find(']', at);
    require(close != std::string_view::npos, ErrorCode::invalid_argument, where, "host list \"", list,
            "\": a [ without its ]");
    require(close + 1 == list.size() || list[close + 1] == ',', ErrorCode::unsupported, where, "host list \"",
            list, "\": names go on behind a ]; set MASTER_ADDR to the host of rank 0");
    for (std::string_view ranges = list.substr(at + 1, close - at - 1); !ranges.empty();) {
      const size_t comma = ranges.find(',');
      add_range(hosts, prefix, ranges.substr(0, comma), list, where);
      ranges = comma == std::string_view::npos ? std::string_view() : ranges.substr(comma + 1);
    }
    prefix.clear();
    at = close;
  }
  require(!hosts.empty(), ErrorCode::invalid_argument, where, "host list \"", list,
          "\": there is no host in it");
  return hosts;
}

}  // namespace lockstep::comm
