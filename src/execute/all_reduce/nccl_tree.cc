#include "execute/all_reduce/nccl_tree.h"

#include <algorithm>
#include <numeric>

#include "lockstep/observe/span.h"

namespace lockstep::execute {
namespace {

int64_t bytes_of_partials(int64_t count, DType dtype) {
  return count * static_cast<int64_t>(partial_size(dtype));
}
int64_t bytes_of_sums(int64_t count, DType dtype) { return count * static_cast<int64_t>(size_of(dtype)); }

}  // namespace

NcclTreeAllReduce::NcclTreeAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                     const StepObserver& observer)
    : GpuStreamsAllReduce(group, std::move(sums), observer, Order::by_library),
      ranks_(NcclRanks::count(group)),
      states_(group.devices.size()) {
  for (const ReplicaRange& range : group.rank_held) {
    nodes_.push_back(largest_nodes(group.replicas, range.first, range.last));
    rounds_ = std::max(rounds_, nodes_.back().size());
  }
  for (size_t d = 0; d < states_.size(); ++d) prepare(states_[d], d);
}

NcclTreeAllReduce::~NcclTreeAllReduce() = default;

const std::vector<TreeNode>& NcclTreeAllReduce::nodes_of(size_t d) const {
  return nodes_[static_cast<size_t>(NcclRanks::rank_of(group(), d))];
}

// --- construction ------------------------------------------------------------------------------------------

// All ranks come to the same parts: nothing here depends on what this one holds.
std::vector<NcclTreeAllReduce::Part> NcclTreeAllReduce::parts_of(const Bucket& bucket) const {
  std::vector<Part> parts;
  std::vector<int64_t> sizes;
  for (const size_t s : bucket.sums) {
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.dtype == sum(s).dtype; });
    if (part == parts.end()) {
      part = parts.insert(parts.end(), Part());
      part->dtype = sum(s).dtype;
      sizes.push_back(0);
    }
    int64_t& size = sizes[static_cast<size_t>(part - parts.begin())];
    part->sums.push_back(s);
    part->begins.push_back(size);
    size += (sum(s).size + kLine - 1) / kLine * kLine;
  }
  for (size_t p = 0; p < parts.size(); ++p) parts[p].share = (sizes[p] / kLine + ranks_ - 1) / ranks_ * kLine;
  return parts;
}

void NcclTreeAllReduce::prepare(State& state, size_t d) {
  int64_t partials = kLine, sums = kLine;  // bytes of a share
  for (const Bucket& bucket : buckets())
    for (const Part& part : state.buckets.emplace_back(parts_of(bucket))) {
      partials = std::max(partials, bytes_of_partials(part.share, part.dtype));
      sums = std::max(sums, bytes_of_sums(part.share, part.dtype));
    }
  size_t all_nodes = 0;
  for (const auto& nodes : nodes_) all_nodes += nodes.size();
  const auto memory = [&](int64_t share, size_t shares) {
    return std::make_unique<Storage>(*group().devices[d], static_cast<size_t>(share) * shares,
                                     std::source_location::current());
  };
  for (size_t n = 0; n < nodes_of(d).size(); ++n)
    state.sent.push_back(memory(partials, static_cast<size_t>(ranks_)));
  state.received = memory(partials, all_nodes);
  state.share = memory(sums, 1);
  state.gathered = memory(sums, static_cast<size_t>(ranks_));
  for (std::vector<Part>& parts : state.buckets)
    for (Part& part : parts) prepare(state, d, part);
}

void NcclTreeAllReduce::prepare(State& state, size_t d, Part& part) {
  Device& device = *group().devices[d];
  const DType partial = accumulator(part.dtype);
  for (size_t n = 0; n < nodes_of(d).size(); ++n) {
    const TreeNode node = nodes_of(d)[n];
    std::vector<TreeNode> leaves;
    for (int r = node.first; r < node.last; ++r) leaves.push_back({r, r + 1});
    std::vector<TreeSum> trees;
    for (size_t i = 0; i < part.sums.size(); ++i) {
      const ReplicaSum& each = sum(part.sums[i]);
      TreeSum& tree = trees.emplace_back(TreeSum{.dtype = part.dtype,
                                                 .target_dtype = partial,
                                                 .size = each.size,
                                                 .target = static_cast<char*>(state.sent[n]->data()) +
                                                           bytes_of_partials(part.begins[i], part.dtype)});
      for (const TreeNode& leaf : leaves)
        tree.addends.push_back(each.inputs[static_cast<size_t>(leaf.first)]);
    }
    part.own.push_back(std::make_unique<TreeKernels>(device, trees, group().replicas, leaves));
  }
  // What comes in a round lies one rank after the other, the rounds behind each other.
  std::vector<TreeNode> all;
  TreeSum rest{
      .dtype = partial, .target_dtype = part.dtype, .size = part.share, .target = state.share->data()};
  const char* block = static_cast<const char*>(state.received->data());
  const int64_t bytes = bytes_of_partials(part.share, part.dtype);
  for (size_t round = 0; round < rounds_; ++round) {
    part.send.emplace_back(nodes_.size(), round < nodes_of(d).size() ? bytes : 0);
    auto& receive = part.receive.emplace_back();
    for (const auto& nodes : nodes_) {
      const bool comes = round < nodes.size();
      receive.push_back(comes ? bytes : 0);
      if (!comes) continue;
      all.push_back(nodes[round]);
      rest.addends.push_back(block);
      block += bytes;
    }
  }
  part.rest = std::make_unique<TreeKernels>(device, std::span(&rest, 1), group().replicas, all);
}

// --- running -----------------------------------------------------------------------------------------------

void NcclTreeAllReduce::begin_step() {
  GpuStreamsAllReduce::begin_step();
  communicators_.connect(group());
}

void NcclTreeAllReduce::abort() {
  GpuStreamsAllReduce::abort();
  communicators_.abort();
}

void NcclTreeAllReduce::exchange(State& state, size_t d, const Part& part, Stream& stream) {
  comm::Communicator& communicator = communicators_[d];
  for (const auto& kernels : part.own) kernels->launch(stream);
  char* received = static_cast<char*>(state.received->data());
  for (size_t round = 0; round < rounds_; ++round) {
    const void* const sent = round < state.sent.size() ? state.sent[round]->data() : nullptr;
    const std::vector<int64_t>& receive = part.receive[round];
    communicator.all_to_all(sent, part.send[round], received, receive, stream);
    received += std::accumulate(receive.begin(), receive.end(), int64_t{0});
  }
  part.rest->launch(stream);
  communicator.all_gather(state.share->data(), state.gathered->data(), bytes_of_sums(part.share, part.dtype),
                          DType::uint8, stream);
}

void NcclTreeAllReduce::reduce(size_t d, size_t b, Stream& stream) {
  const observe::Span span("all_reduce_sum", "communication", {.device = static_cast<int32_t>(d)});
  device(d).bind_thread();
  State& state = states_[d];
  for (const Part& part : state.buckets[b]) {
    exchange(state, d, part, stream);
    for (size_t i = 0; i < part.sums.size(); ++i) {
      const ReplicaSum& each = sum(part.sums[i]);
      if (each.size > 0)
        stream.copy(
            each.results[d][0],
            static_cast<const char*>(state.gathered->data()) + bytes_of_sums(part.begins[i], part.dtype),
            each.bytes());
    }
  }
  copy_results(d, b, stream);
}

GpuStreamsAllReduce::Traffic NcclTreeAllReduce::traffic(size_t d, size_t b) const {
  Traffic traffic;
  const auto others = static_cast<int64_t>(ranks_ - 1);
  int64_t their_nodes = -static_cast<int64_t>(nodes_of(d).size());
  for (const auto& nodes : nodes_) their_nodes += static_cast<int64_t>(nodes.size());
  for (const Part& part : states_[d].buckets[b]) {
    const int64_t partials = bytes_of_partials(part.share, part.dtype),
                  sums = bytes_of_sums(part.share, part.dtype);
    traffic.in += partials * their_nodes + sums * others;
    traffic.out += (partials * static_cast<int64_t>(nodes_of(d).size()) + sums) * others;
  }
  return traffic;
}

}  // namespace lockstep::execute
