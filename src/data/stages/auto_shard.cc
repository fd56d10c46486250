#include "data/stages/auto_shard.h"

#include "data/node.h"
#include "data/stages/options.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

struct Share {
  int64_t count, index;
};

// What keeps a dataset's files from being shared: "take [main.cc:12]" or "range [main.cc:10]".
std::string place(const Node& node) {
  return detail::concat(node.name(), " [", node.where().file_name(), ":", node.where().line(), "]");
}

std::string why_not_by_files(const Node& source, int64_t workers) {
  if (source.files() == 0) return place(source) + " reads no files";
  return detail::concat(place(source), " reads ", source.files(), source.files() == 1 ? " file" : " files",
                        ", which is not enough for ", workers, " workers");
}

// Every source with its share of the files. None, with the reason, where a source has too few or is no file,
// or where a stage on the way counts elements: each worker would take(100) of its own.
NodePtr by_files(const NodePtr& node, const Share& share, std::string& reason) {
  if (NodePtr source = node->shard_files(share.count, share.index)) return source;
  if (node->inputs().empty()) {
    reason = why_not_by_files(*node, share.count);
    return nullptr;
  }
  if (!node->shares_files()) {
    reason = place(*node) + " gives something else where each worker has other files";
    return nullptr;
  }
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) {
    inputs.push_back(by_files(input, share, reason));
    if (!inputs.back()) return nullptr;
  }
  return node->with_inputs(std::move(inputs));
}

// As TensorFlow does: of the elements that the dataset gives, every count-th. What only hands them on stays
// behind it.
NodePtr by_elements(const NodePtr& node, const Share& share, std::source_location where) {
  if (node->hands_on()) return node->with_inputs({by_elements(node->inputs()[0], share, where)});
  return Dataset(node).shard(share.count, share.index, where).node();
}

// The sources that read files.
void add_file_sources(const Node& node, std::vector<const Node*>& sources) {
  if (node.files() > 0) sources.push_back(&node);
  for (const NodePtr& input : node.inputs()) add_file_sources(*input, sources);
}

std::vector<const Node*> file_sources(const Node& node) {
  std::vector<const Node*> sources;
  add_file_sources(node, sources);
  return sources;
}

std::string order_hazard(const Node& node, const Options& options) {
  if (const std::string hazard = node.order_hazard(options); !hazard.empty())
    return place(node) + " " + hazard;
  for (const NodePtr& input : node.inputs())
    if (std::string hazard = order_hazard(*input, options); !hazard.empty()) return hazard;
  return {};
}

void add_order_seeds(const Node& node, std::string& text) {
  if (const std::optional<uint64_t> seed = node.order_seed())
    text += detail::concat(text.empty() ? "" : ", ", place(node), " with seed ", *seed);
  for (const NodePtr& input : node.inputs()) add_order_seeds(*input, text);
}

// --- what people do not expect ---

void say_that_nothing_is_shared(int64_t workers, std::source_location where) {
  log_once(LogAt(LogLevel::info, where), "auto_shard: the policy is off: each of the ", workers,
           " workers goes through all of the data, so that together they see every element ", workers,
           " times");
}

void say_that_all_read_all(const std::string& reason, int64_t workers, std::source_location where) {
  log_once(
      LogAt(LogLevel::info, where), "auto_shard: ", reason,
      ": every worker reads all of it and keeps one of ", workers,
      " elements. As many files as workers, or a multiple, let each read its own; Options::auto_shard = data "
      "says that this is meant");
}

void say_where_files_are_uneven(const Node& node, int64_t workers, std::source_location where) {
  for (const Node* source : file_sources(node))
    if (const int64_t more = source->files() % workers; more != 0)
      log_once(LogAt(LogLevel::info, where), "auto_shard: ", place(*source), " reads ", source->files(),
               " files for ", workers, " workers: ", more, more == 1 ? " reads " : " read ",
               "one more than the others, which have nothing "
               "left to do meanwhile; a multiple of ",
               workers, " files keeps all busy");
}

}  // namespace

std::optional<Dataset> shard_by_files(const Dataset& dataset, int64_t count, int64_t index,
                                      std::string& reason) {
  if (NodePtr sharded = by_files(dataset.node(), {count, index}, reason)) return Dataset(std::move(sharded));
  return std::nullopt;
}

std::string order_hazard(const Dataset& dataset) {
  return order_hazard(*dataset.node(), options_of(*dataset.node()));
}

std::string order_seeds(const Dataset& dataset) {
  std::string text;
  add_order_seeds(*dataset.node(), text);
  return text;
}

Dataset Dataset::auto_shard(int64_t count, int64_t index, std::source_location where) const {
  require(count > 0 && index >= 0 && index < count, ErrorCode::invalid_argument, where,
          "auto_shard: index must be from 0 to count - 1, received count ", count, " and index ", index);
  const Share share{count, index};
  const AutoShardPolicy policy = options_of(*node_).auto_shard;
  if (count == 1) return *this;
  if (policy == AutoShardPolicy::off) {
    say_that_nothing_is_shared(count, where);
    return *this;
  }
  if (policy != AutoShardPolicy::data) {
    std::string reason;
    if (std::optional<Dataset> sharded = shard_by_files(*this, count, index, reason)) {
      say_where_files_are_uneven(*node_, count, where);
      return *std::move(sharded);
    }
    require(policy != AutoShardPolicy::file, ErrorCode::failed_precondition, where,
            "auto_shard: the files cannot be shared among ", count, " workers: ", reason,
            "; write more files, or set Options::auto_shard to data");
    if (!file_sources(*node_).empty()) say_that_all_read_all(reason, count, where);
  }
  const std::string hazard = order_hazard(*this);
  require(hazard.empty(), ErrorCode::failed_precondition, where,
          "auto_shard: the elements cannot be shared among ", count, " workers: ", hazard,
          ", so that each would count them in another order, and some would be seen twice and some "
          "never; give it a seed, or call random::set_seed, or leave deterministic out");
  return Dataset(by_elements(node_, share, where));
}

}  // namespace lockstep::data
