#include "data/stages/auto_shard.h"

#include "data/node.h"
#include "data/stages/options.h"

namespace lockstep::data {
namespace {

using Shares = Node::Shares;

struct Share {
  int64_t count, index;
};

// What keeps a dataset's files from being shared: "take [main.cc:12]" or "range [main.cc:10]".
std::string place(const Node& node) {
  return detail::concat(node.name(), " [", node.where().file_name(), ":", node.where().line(), "]");
}

// Every source with its share of the files. None, with the reason, where a source has too few or is no file, or where
// a stage on the way counts elements: each worker would take(100) of its own.
NodePtr by_files(const NodePtr& node, const Share& share, std::string& reason) {
  if (NodePtr source = node->shard_files(share.count, share.index)) return source;
  if (node->inputs().empty()) {
    reason = place(*node) + " does not read as many files as there are workers";
    return nullptr;
  }
  if (node->shares() == Shares::nothing) {
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

// A shard stage as near to the source as it can be: what belongs to others is then dropped before anything is done to
// it, each worker shuffles among its own, and batches are of one worker's elements. It stays behind the first stage
// that must see all elements, or their neighbours, to give what one worker alone would get.
NodePtr by_elements(const NodePtr& node, const Share& share, std::source_location where) {
  if (node->inputs().size() == 1 && node->shares() == Shares::elements_and_files)
    return node->with_inputs({by_elements(node->inputs()[0], share, where)});
  return Dataset(node).shard(share.count, share.index, where).node();
}

}  // namespace

std::optional<Dataset> shard_by_files(const Dataset& dataset, int64_t count, int64_t index,
                                      std::string& reason) {
  if (NodePtr sharded = by_files(dataset.node(), {count, index}, reason)) return Dataset(std::move(sharded));
  return std::nullopt;
}

Dataset Dataset::auto_shard(int64_t count, int64_t index, std::source_location where) const {
  require(count > 0 && index >= 0 && index < count, ErrorCode::invalid_argument, where,
          "auto_shard: index must be from 0 to count - 1, received count ", count, " and index ", index);
  const Share share{count, index};
  const AutoShardPolicy policy = options_of(*node_).auto_shard;
  if (policy == AutoShardPolicy::off || count == 1) return *this;
  if (policy != AutoShardPolicy::data) {
    std::string reason;
    if (std::optional<Dataset> sharded = shard_by_files(*this, count, index, reason))
      return *std::move(sharded);
    require(policy != AutoShardPolicy::file, ErrorCode::failed_precondition, where,
            "auto_shard: the files cannot be shared among ", count, " workers: ", reason,
            "; write more files, or set Options::auto_shard to data");
  }
  return Dataset(by_elements(node_, share, where));
}

}  // namespace lockstep::data
