#include "execute/all_reduce/host_threads.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "device/copy.h"
#include "device/device_backend.h"
#include "lockstep/base/clock.h"
#include "lockstep/observe/span.h"

namespace lockstep::execute {

using observe::Category;

namespace {

constexpr int64_t kWhole = 0;           // bucket size: all sums of a phase
constexpr size_t kStreamed = 16 << 20;  // bytes of a phase's results on all devices that outlive no cache
constexpr std::array<int64_t, 4> kTried = {kWhole, 4 << 20, 512 << 10, 64 << 10};  // bytes

}  // namespace

// Device d has filled a bucket.
class HostThreadsAllReduce::BucketMark final : public LaunchMark {
 public:
  BucketMark(HostThreadsAllReduce& owner, int d, int phase, size_t bucket)
      : owner_(owner), device_(d), phase_(phase), bucket_(bucket) {}
  void reach(Stream&) override { owner_.contribute(device_, phase_, bucket_); }

 private:
  HostThreadsAllReduce& owner_;
  const int device_, phase_;
  const size_t bucket_;
};

HostThreadsAllReduce::HostThreadsAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                           const StepObserver& observer)
    : group_(group),
      sums_(std::move(sums)),
      observer_(observer),
      leaves_(group.leaves()),
      barrier_(static_cast<int>(group.devices.size()), group.waiting) {
  size_t scratch = 0;
  for (const ReplicaSum& sum : sums_) {
    scratch_.push_back(scratch);
    scratch += (static_cast<size_t>(sum.size) * partial_size(sum.dtype) + 63) / 64 * 64;
  }
  const bool alone = group.devices.size() == 1;
  for (size_t d = 0; d < group.devices.size(); ++d) {
    auto state = std::make_unique<DeviceState>();
    state->device = group.devices[d];
    state->nodes = largest_nodes(group.replicas, group.held[d].first, group.held[d].last);
    for (const TreeNode& node : state->nodes) {
      sum_nodes_.push_back(node);
      state->partials.push_back(
          node.last - node.first > 1 && !alone && scratch > 0
              ? std::make_unique<Storage>(*state->device, scratch, std::source_location::current())
              : nullptr);
    }
    devices_.push_back(std::move(state));
  }
  for (size_t s = 0; s < sums_.size(); ++s) {
    auto& addends = addends_.emplace_back();
    for (const auto& device : devices_)
      for (size_t n = 0; n < device->nodes.size(); ++n)
        addends.push_back(device->partials[n] ? static_cast<char*>(device->partials[n]->data()) + scratch_[s]
                                              : sums_[s].inputs[static_cast<size_t>(device->nodes[n].first)]);
  }
  std::vector<size_t> bytes;
  for (const ReplicaSum& sum : sums_) {
    auto& all = all_results_.emplace_back();
    for (size_t d = 0; d < devices_.size(); ++d)
      for (void* result : sum.results[d])
        if (result && backend_of(*devices_[d]->device).has_memory()) all.push_back(result);
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(sum.phase) + 1));
    bytes[static_cast<size_t>(sum.phase)] += sum.bytes() * all.size();
  }
  for (const size_t total : bytes) stores_.push_back(total < kStreamed ? Stores::cached : Stores::streaming);
  fetches_ = !alone && group.cross_device_ops != CrossDeviceOps::ring &&
             group.cross_device_ops != CrossDeviceOps::automatic;
  if (fetches_) stages_ = 2;
  if (group.cross_device_ops == CrossDeviceOps::tree && !alone) make_tree(scratch);
  // A single device sums everything at the end of the phase.
  if (alone) return;
  if (group.bucket_bytes >= 0) {
    bucketings_.push_back(make_buckets(group.bucket_bytes));
  } else {
    for (const int64_t bytes : kTried) {
      Bucketing bucketing = make_buckets(bytes);
      const auto same = [&](const Bucketing& other) { return same_marks(other, bucketing); };
      if (std::none_of(bucketings_.begin(), bucketings_.end(), same))
        bucketings_.push_back(std::move(bucketing));
    }
  }
  for (Bucketing& bucketing : bucketings_) make_marks(bucketing);
  shortest_ns_.fill(std::numeric_limits<int64_t>::max());
  for (const auto& device : devices_) {
    size_t most = 0;
    for (const Bucketing& bucketing : bucketings_)
      for (const auto& buckets : bucketing.buckets) most = std::max(most, buckets.size());
    device->done.resize(most);
  }
}

HostThreadsAllReduce::~HostThreadsAllReduce() = default;

// --- construction ------------------------------------------------------------------------------------------

// Bucketings whose buckets are filled at the same times are the same.
bool HostThreadsAllReduce::same_marks(const Bucketing& a, const Bucketing& b) {
  const auto launches = [](const Bucketing& bucketing) {
    std::vector<size_t> all;
    for (const auto& by_phase : bucketing.marks)
      for (const auto& marks : by_phase) {
        all.push_back(marks.size());
        for (const PhaseSync::Mark& mark : marks) all.push_back(mark.launches);
      }
    return all;
  };
  return launches(a) == launches(b);
}

void HostThreadsAllReduce::make_marks(Bucketing& bucketing) {
  for (size_t d = 0; d < bucketing.marks.size(); ++d)
    for (size_t phase = 0; phase < bucketing.marks[d].size(); ++phase)
      for (size_t b = 0; b < bucketing.marks[d][phase].size(); ++b)
        bucketing.marks[d][phase][b].mark = bucket_marks_
                                                .emplace_back(std::make_unique<BucketMark>(
                                                    *this, static_cast<int>(d), static_cast<int>(phase), b))
                                                .get();
}

void HostThreadsAllReduce::make_tree(size_t scratch) {
  link_up({0, group_.replicas});
  if (links_.empty()) return;
  for (size_t l = 0; l + 1 < links_.size(); ++l)
    links_[l].partial =
        std::make_unique<Storage>(*group_.devices[static_cast<size_t>(links_[l].device)],
                                  std::max<size_t>(scratch, 64), std::source_location::current());
  stages_ = links_.back().level + 2;
}

// Which value is the sum below `node`: the number of an addend, ~link, or INT_MIN where there is none.
int HostThreadsAllReduce::link_up(TreeNode node) {
  constexpr int kNothing = std::numeric_limits<int>::min();
  if (const auto held = std::find(sum_nodes_.begin(), sum_nodes_.end(), node); held != sum_nodes_.end())
    return static_cast<int>(held - sum_nodes_.begin());
  if (node.last - node.first <= 1) return kNothing;
  const int middle = tree_middle(node);
  const int left = link_up({node.first, middle});
  const int right = link_up({middle, node.last});
  if (left == kNothing || right == kNothing) return left == kNothing ? right : left;
  const auto part = [&](int from) {
    return from >= 0 ? sum_nodes_[static_cast<size_t>(from)] : link(from).node;
  };
  const auto level = [&](int from) { return from >= 0 ? -1 : link(from).level; };
  Link link{.node = node,
            .parts = {part(left), part(right)},
            .from = {left, right},
            .level = std::max(level(left), level(right)) + 1,
            .device = group_.holder(node.first),
            .partial = nullptr};
  links_.push_back(std::move(link));
  return ~static_cast<int>(links_.size() - 1);
}

HostThreadsAllReduce::Bucketing HostThreadsAllReduce::make_buckets(int64_t bytes) const {
  Bucketing bucketing{.bytes = bytes, .buckets = {}, .marks = {}};
  bucketing.marks.resize(devices_.size());
  int phases = 0;
  for (const ReplicaSum& sum : sums_) phases = std::max(phases, sum.phase + 1);
  bucketing.buckets.resize(static_cast<size_t>(phases));
  for (auto& marks : bucketing.marks) marks.resize(static_cast<size_t>(phases));
  std::vector<size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The order in which the first device's last replica makes the addends.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sums_[a].ready[0] < sums_[b].ready[0]; });
  std::vector<int64_t> filled(static_cast<size_t>(phases), 0);
  for (const size_t s : order) {
    const ReplicaSum& sum = sums_[s];
    const auto phase = static_cast<size_t>(sum.phase);
    auto& buckets = bucketing.buckets[phase];
    const auto width = static_cast<int64_t>(size_of(sum.dtype));
    const int64_t most = bytes == kWhole ? sum.size : std::max<int64_t>(kLine, bytes / width / kLine * kLine);
    for (int64_t at = 0; at < sum.size; at += most) {
      const Piece piece{s, at, std::min(sum.size, at + most)};
      const bool fits = !buckets.empty() && (bytes == kWhole || filled[phase] < bytes) &&
                        sums_[buckets.back().pieces[0].sum].conditions == sum.conditions;
      if (!fits) {
        buckets.emplace_back();
        filled[phase] = 0;
        for (auto& marks : bucketing.marks) marks[phase].push_back({});
      }
      buckets.back().pieces.push_back(piece);
      filled[phase] += (piece.last - piece.first) * width;
      for (size_t d = 0; d < devices_.size(); ++d) {
        auto& marks = bucketing.marks[d][phase];
        const size_t before = marks.size() > 1 ? marks[marks.size() - 2].launches : 0;
        marks.back().launches = std::max({marks.back().launches, before, sum.ready[d]});
      }
    }
  }
  for (auto& buckets : bucketing.buckets)
    for (Bucket& bucket : buckets) bucket.gates = std::make_unique<Gate[]>(static_cast<size_t>(stages_));
  return bucketing;
}

// --- running -----------------------------------------------------------------------------------------------

void HostThreadsAllReduce::begin_step() {
  if (bucketings_.empty()) return;
  if (bucketings_.size() > 1 && trial_ < kTrials * static_cast<int>(bucketings_.size())) {
    current_ = static_cast<size_t>(std::max(0, trial_)) % bucketings_.size();
    began_ns_ = Clock::system().now_ns();
  }
  barrier_.reset();
  for (auto& buckets : bucketings_[current_].buckets)
    for (Bucket& bucket : buckets)
      for (int s = 0; s < stages_; ++s) bucket.gates[static_cast<size_t>(s)].reset();
  for (const auto& device : devices_) device->contributed = 0;
}

void HostThreadsAllReduce::end_step() {
  const int trials = kTrials * static_cast<int>(bucketings_.size());
  if (bucketings_.size() < 2 || trial_ >= trials) return;
  if (trial_ >= 0)
    shortest_ns_[current_] = std::min(shortest_ns_[current_], Clock::system().now_ns() - began_ns_);
  if (++trial_ == trials)
    current_ = static_cast<size_t>(std::min_element(shortest_ns_.begin(), shortest_ns_.end()) -
                                   shortest_ns_.begin());
}

int64_t HostThreadsAllReduce::bucket_bytes() const {
  return bucketings_.empty() ? kWhole : bucketings_[current_].bytes;
}

std::span<const PhaseSync::Mark> HostThreadsAllReduce::marks(int d, int phase) const {
  if (bucketings_.empty()) return {};
  const auto& by_phase = bucketings_[current_].marks[static_cast<size_t>(d)];
  if (static_cast<size_t>(phase) >= by_phase.size()) return {};
  return by_phase[static_cast<size_t>(phase)];
}

void HostThreadsAllReduce::abort() {
  barrier_.abort();
  if (bucketings_.empty()) return;
  for (auto& buckets : bucketings_[current_].buckets)
    for (Bucket& bucket : buckets)
      for (int s = 0; s < stages_; ++s) bucket.gates[static_cast<size_t>(s)].abort();
}

bool HostThreadsAllReduce::wanted(int d, const ReplicaSum& sum) const {
  return sum.conditions.empty() || *sum.conditions[static_cast<size_t>(d)];
}

void HostThreadsAllReduce::contribute(int d, int phase, size_t b) {
  Bucket& bucket = bucketings_[current_].buckets[static_cast<size_t>(phase)][b];
  DeviceState& device = *devices_[static_cast<size_t>(d)];
  device.contributed = b + 1;
  if (!wanted(d, bucket)) {
    device.done[b] = stages_;
    for (const Piece& piece : bucket.pieces) leave_out(d, piece);
    return;
  }
  device.done[b] = 0;
  add_own(d, bucket);
  bucket.gates[0].arrive(static_cast<int>(devices_.size()));
  advance(d, phase, false);
}

// Runs the stages that the other devices are ready for. False where one of them failed.
bool HostThreadsAllReduce::advance(int d, int phase, bool waits) {
  auto& buckets = bucketings_[current_].buckets[static_cast<size_t>(phase)];
  DeviceState& device = *devices_[static_cast<size_t>(d)];
  const int count = static_cast<int>(devices_.size());
  for (size_t b = 0; b < device.contributed; ++b)
    for (int& next = device.done[b]; next < stages_;) {
      Gate& gate = buckets[b].gates[static_cast<size_t>(next)];
      if (!gate.open(count)) {
        if (!waits) break;
        const auto scope = observer_.time(d, Category::waiting_for_others);
        if (!gate.wait(count, group_.waiting)) return false;
      }
      {
        const observe::Span span("all_reduce_sum", "communication", {.device = d});
        const auto scope = observer_.time(d, Category::exposed_communication);
        run_stage(d, buckets[b], next);
      }
      ++next;
      if (next < stages_) buckets[b].gates[static_cast<size_t>(next)].arrive(count);
    }
  return true;
}

bool HostThreadsAllReduce::finish(int d, int phase) {
  if (bucketings_.empty()) {
    if (std::none_of(sums_.begin(), sums_.end(), [&](const ReplicaSum& sum) { return sum.phase == phase; }))
      return true;
    const observe::Span span("all_reduce_sum", "communication", {.device = d});
    const auto scope = observer_.time(d, Category::exposed_communication);
    for (size_t s = 0; s < sums_.size(); ++s)
      if (const Piece whole{s, 0, sums_[s].size}; sums_[s].phase == phase) {
        if (wanted(d, sums_[s]))
          add_share(d, whole);
        else
          leave_out(d, whole);
      }
    return true;
  }
  const auto& all = bucketings_[current_].buckets;
  if (static_cast<size_t>(phase) >= all.size()) return true;
  const auto& buckets = all[static_cast<size_t>(phase)];
  if (std::none_of(buckets.begin(), buckets.end(), [&](const Bucket& b) { return wanted(d, b); }))
    return true;
  if (!advance(d, phase, true)) return false;
  // Nobody may overwrite a sum, or what goes into it, that others still read.
  const auto scope = observer_.time(d, Category::waiting_for_others);
  return barrier_.meet();
}

void HostThreadsAllReduce::run_stage(int d, const Bucket& bucket, int stage) {
  for (const Piece& piece : bucket.pieces) {
    if (fetches_ && stage == stages_ - 1)
      fetch_shares(d, piece);
    else if (links_.empty())
      add_share(d, piece);
    else
      add_links(d, stage, piece);
  }
}

void HostThreadsAllReduce::add_own(int d, const Bucket& bucket) {
  DeviceState& device = *devices_[static_cast<size_t>(d)];
  if (!backend_of(*device.device).has_memory()) return;
  for (size_t n = 0; n < device.nodes.size(); ++n) {
    if (!device.partials[n]) continue;
    const TreeNode node = device.nodes[n];
    const std::span<const TreeNode> leaves(leaves_.data() + node.first,
                                           static_cast<size_t>(node.last - node.first));
    for (const Piece& piece : bucket.pieces) {
      const ReplicaSum& sum = sums_[piece.sum];
      void* target = static_cast<char*>(device.partials[n]->data()) + scratch_[piece.sum];
      parallel_for(piece.last - piece.first, kGrain, device.device->threads(),
                   [&](int64_t begin, int64_t end) {
                     sum_partially(sum.dtype, group_.replicas, leaves, sum.inputs.data() + node.first, target,
                                   piece.first + begin, piece.first + end);
                   });
    }
  }
}

// A sum that is not wanted is not used, but a check of all values for NaNs must not find what another value
// left in its place.
void HostThreadsAllReduce::leave_out(int d, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const size_t width = size_of(sum.dtype);
  for (void* result : sum.results[static_cast<size_t>(d)])
    if (result)
      std::memset(static_cast<char*>(result) + static_cast<size_t>(piece.first) * width, 0,
                  static_cast<size_t>(piece.last - piece.first) * width);
}

// The share of a piece that device d sums for all.
std::pair<int64_t, int64_t> HostThreadsAllReduce::share(const Piece& piece, int64_t d) const {
  auto count = static_cast<int64_t>(devices_.size());
  switch (group_.cross_device_ops) {
    case CrossDeviceOps::automatic:
    case CrossDeviceOps::nccl:
    case CrossDeviceOps::ring: break;
    case CrossDeviceOps::hierarchical_copy:
      if (d % 2 == 1) return {piece.last, piece.last};
      count = (count + 1) / 2;
      d /= 2;
      break;
    case CrossDeviceOps::reduction_to_one_device:
    case CrossDeviceOps::tree:
      return d > 0 ? std::pair(piece.last, piece.last) : std::pair(piece.first, piece.last);
  }
  const int64_t lines = (piece.last - piece.first + kLine - 1) / kLine;
  return {std::min(piece.last, piece.first + lines * d / count * kLine),
          std::min(piece.last, piece.first + lines * (d + 1) / count * kLine)};
}

void HostThreadsAllReduce::add_share(int d, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const Device& device = *devices_[static_cast<size_t>(d)]->device;
  const bool alone = devices_.size() == 1;
  const auto [first, last] = share(piece, d);
  const int64_t bytes = static_cast<int64_t>(size_of(sum.dtype)) * (last - first);
  if (!alone) count_addends(d, bytes);
  if (!fetches_)
    for (size_t e = 0; e < devices_.size(); ++e)
      if (static_cast<int>(e) != d) count_copy(static_cast<size_t>(d), e, bytes);
  if (!backend_of(device).has_memory()) return;
  const std::span<void* const> own(sum.results[static_cast<size_t>(d)].data(), 1);
  const std::span<void* const> targets = fetches_ ? own : std::span<void* const>(all_results_[piece.sum]);
  const std::span<const TreeNode> nodes = alone ? leaves_ : sum_nodes_;
  const void* const* addends = alone ? sum.inputs.data() : addends_[piece.sum].data();
  const Stores stores = fetches_ ? Stores::cached : stores_[static_cast<size_t>(sum.phase)];
  parallel_for(last - first, kGrain, device.threads(), [&, first = first](int64_t begin, int64_t end) {
    sum_in_tree_order(sum.dtype, group_.replicas, nodes, addends, targets, first + begin, first + end,
                      stores);
  });
}

void HostThreadsAllReduce::count_copy(size_t from, size_t to, int64_t bytes) {
  backend_of(*devices_[from]->device).count_copy(0, bytes);
  backend_of(*devices_[to]->device).count_copy(bytes, 0);
  count_sent(from, bytes);
}

void HostThreadsAllReduce::count_sent(size_t from, int64_t bytes) {
  observer_.count(static_cast<int>(from), observe::Counter::communication_bytes, bytes);
}

const void* HostThreadsAllReduce::operand(size_t sum, int from) const {
  if (from >= 0) return addends_[sum][static_cast<size_t>(from)];
  return static_cast<const char*>(link(from).partial->data()) + scratch_[sum];
}

void HostThreadsAllReduce::add_links(int d, int level, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const Device& device = *devices_[static_cast<size_t>(d)]->device;
  for (const Link& link : links_) {
    if (link.level != level || link.device != d) continue;
    const int64_t bytes = static_cast<int64_t>(size_of(sum.dtype)) * (piece.last - piece.first);
    if (const int other = group_.holder(link.parts[1].first); other != d)
      count_copy(static_cast<size_t>(other), static_cast<size_t>(d), bytes);
    if (!backend_of(device).has_memory()) continue;
    const void* addends[] = {operand(piece.sum, link.from[0]), operand(piece.sum, link.from[1])};
    parallel_for(piece.last - piece.first, kGrain, device.threads(), [&](int64_t begin, int64_t end) {
      if (link.partial)
        sum_partially(sum.dtype, group_.replicas, link.parts, addends,
                      static_cast<char*>(link.partial->data()) + scratch_[piece.sum], piece.first + begin,
                      piece.first + end);
      else
        sum_in_tree_order(sum.dtype, group_.replicas, link.parts, addends,
                          {sum.results[static_cast<size_t>(d)].data(), 1}, piece.first + begin,
                          piece.first + end);
    });
  }
}

// The addends that device d reads from the others' memory.
void HostThreadsAllReduce::count_addends(int d, int64_t bytes) {
  for (size_t e = 0; e < devices_.size(); ++e)
    if (static_cast<int>(e) != d)
      count_copy(e, static_cast<size_t>(d), bytes * static_cast<int64_t>(devices_[e]->nodes.size()));
}

void HostThreadsAllReduce::fetch_shares(int d, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const auto& results = sum.results[static_cast<size_t>(d)];
  auto* own = static_cast<char*>(results[0]);
  const size_t width = size_of(sum.dtype);
  for (size_t e = 0; e < devices_.size(); ++e) {
    if (static_cast<int>(e) == d) continue;
    const auto [first, last] = share(piece, static_cast<int64_t>(e));
    const size_t offset = static_cast<size_t>(first) * width;
    copy_across(*devices_[e]->device, static_cast<const char*>(sum.results[e][0]) + offset,
                *devices_[static_cast<size_t>(d)]->device, own + offset,
                static_cast<size_t>(last - first) * width);
    count_sent(e, (last - first) * static_cast<int64_t>(width));
  }
  const size_t begin = static_cast<size_t>(piece.first) * width;
  for (size_t p = 1; p < results.size(); ++p)
    if (results[p] && backend_of(*devices_[static_cast<size_t>(d)]->device).has_memory())
      std::memcpy(static_cast<char*>(results[p]) + begin, own + begin,
                  static_cast<size_t>(piece.last - piece.first) * width);
}

}  // namespace lockstep::execute
