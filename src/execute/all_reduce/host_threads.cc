#include "execute/all_reduce/host_threads.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "device/copy.h"
#include "lockstep/base/clock.h"
#include "lockstep/observe/span.h"

namespace lockstep::compile {

using observe::Category;

namespace {

constexpr int64_t kLine = 64;           // elements: shares are whole cache lines
constexpr int64_t kGrain = kLine * 64;  // elements a thread adds at least
constexpr int64_t kWhole = 0;           // bucket size: all sums of a phase
constexpr size_t kStreamed = 16 << 20;  // bytes of a phase's results on all devices that outlive no cache
constexpr std::array<int64_t, 4> kTried = {kWhole, 4 << 20, 512 << 10, 64 << 10};  // bytes

// Empty slices come last and are left out of every sum.
int last_leaf(const ReplicaLayout& layout, int first, int last) {
  while (last > first && layout.slices[static_cast<size_t>(last) - 1].size == 0) --last;
  return last;
}

}  // namespace

CrossDeviceSums::CrossDeviceSums(const ReplicaLayout& layout, std::vector<ReplicaSum> sums, Waiting waiting)
    : layout_(layout),
      sums_(std::move(sums)),
      waiting_(waiting),
      barrier_(static_cast<int>(layout.devices.size()), waiting) {
  if (sums_.empty()) return;
  const bool on_gpus = backend_of(*layout.devices[0]).compute_stream().asynchronous();
  require(on_gpus || layout.cross_device_ops != CrossDeviceOps::nccl, ErrorCode::invalid_argument,
          std::source_location::current(), "CrossDeviceOps::nccl joins GPUs; ", layout.devices[0]->name(),
          " is none. Leave cross_device_ops at automatic");
  size_t scratch = 0;
  for (const ReplicaSum& sum : sums_) {
    scratch_.push_back(scratch);
    scratch += (static_cast<size_t>(sum.size) * partial_size(sum.dtype) + 63) / 64 * 64;
  }
  for (int r = 0; r < last_leaf(layout, 0, layout.replicas); ++r) leaves_.push_back({r, r + 1});
  if (on_gpus) {
    on_gpus_ = std::make_unique<GpuSums>(layout_, sums_, leaves_, barrier_);
    return;
  }
  const bool alone = layout.devices.size() == 1;
  for (size_t d = 0; d < layout.devices.size(); ++d) {
    auto state = std::make_unique<DeviceState>();
    state->device = layout.devices[d];
    const auto [first, last] = layout.replicas_of(static_cast<int>(d));
    state->nodes = largest_nodes(layout.replicas, first, last_leaf(layout, first, last));
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
  fetches_ = !alone && layout.cross_device_ops != CrossDeviceOps::ring &&
             layout.cross_device_ops != CrossDeviceOps::automatic;
  if (fetches_) works_ = 2;
  if (layout.cross_device_ops == CrossDeviceOps::tree && !alone) make_tree(scratch);
  // A single device adds up everything at the end of the phase.
  if (alone) return;
  if (layout.bucket_bytes >= 0) {
    divisions_.push_back(divide(layout.bucket_bytes));
  } else {
    for (const int64_t bytes : kTried) {
      Division division = divide(bytes);
      const auto same = [&](const Division& other) { return other.stops == division.stops; };
      if (std::none_of(divisions_.begin(), divisions_.end(), same)) divisions_.push_back(std::move(division));
    }
  }
  shortest_ns_.fill(std::numeric_limits<int64_t>::max());
  for (const auto& device : devices_) {
    size_t most = 0;
    for (const Division& division : divisions_)
      for (const auto& buckets : division.buckets) most = std::max(most, buckets.size());
    device->done.resize(most);
  }
}

CrossDeviceSums::~CrossDeviceSums() = default;

// --- construction --------------------------------------------------------------------------------------------------

int CrossDeviceSums::holder(int leaf) const {
  for (int d = 0; d < static_cast<int>(devices_.size()); ++d)
    if (const auto [first, last] = layout_.replicas_of(d); leaf >= first && leaf < last) return d;
  return 0;
}

void CrossDeviceSums::make_tree(size_t scratch) {
  link_up({0, layout_.replicas});
  if (links_.empty()) return;
  for (size_t l = 0; l + 1 < links_.size(); ++l)
    links_[l].partial =
        std::make_unique<Storage>(*layout_.devices[static_cast<size_t>(links_[l].device)],
                                  std::max<size_t>(scratch, 64), std::source_location::current());
  works_ = links_.back().level + 2;
}

// What holds the sum below `node`: an addend, ~link, or nothing (INT_MIN).
int CrossDeviceSums::link_up(TreeNode node) {
  constexpr int kNothing = std::numeric_limits<int>::min();
  if (const auto held = std::find(sum_nodes_.begin(), sum_nodes_.end(), node); held != sum_nodes_.end())
    return static_cast<int>(held - sum_nodes_.begin());
  if (node.last - node.first <= 1) return kNothing;
  const int middle = tree_middle(node);
  const int left = link_up({node.first, middle});
  const int right = link_up({middle, node.last});
  if (left == kNothing || right == kNothing) return left == kNothing ? right : left;
  const auto part = [&](int from) {
    return from >= 0 ? sum_nodes_[static_cast<size_t>(from)] : links_[static_cast<size_t>(~from)].node;
  };
  const auto level = [&](int from) { return from >= 0 ? -1 : links_[static_cast<size_t>(~from)].level; };
  Link link{.node = node,
            .parts = {part(left), part(right)},
            .from = {left, right},
            .level = std::max(level(left), level(right)) + 1,
            .device = holder(node.first),
            .partial = nullptr};
  links_.push_back(std::move(link));
  return ~static_cast<int>(links_.size() - 1);
}

CrossDeviceSums::Division CrossDeviceSums::divide(int64_t bytes) const {
  Division division{.bytes = bytes, .buckets = {}, .stops = {}};
  division.stops.resize(devices_.size());
  int phases = 0;
  for (const ReplicaSum& sum : sums_) phases = std::max(phases, sum.phase + 1);
  division.buckets.resize(static_cast<size_t>(phases));
  for (auto& stops : division.stops) stops.resize(static_cast<size_t>(phases));
  std::vector<size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // As the first device's last replica makes them.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sums_[a].ready[0] < sums_[b].ready[0]; });
  std::vector<int64_t> filled(static_cast<size_t>(phases), 0);
  for (const size_t s : order) {
    const ReplicaSum& sum = sums_[s];
    const auto phase = static_cast<size_t>(sum.phase);
    auto& buckets = division.buckets[phase];
    const auto width = static_cast<int64_t>(size_of(sum.dtype));
    const int64_t most = bytes == kWhole ? sum.size : std::max<int64_t>(kLine, bytes / width / kLine * kLine);
    for (int64_t at = 0; at < sum.size; at += most) {
      const Piece piece{s, at, std::min(sum.size, at + most)};
      const bool fits = !buckets.empty() && (bytes == kWhole || filled[phase] < bytes) &&
                        sums_[buckets.back().pieces[0].sum].conditions == sum.conditions;
      if (!fits) {
        buckets.emplace_back();
        filled[phase] = 0;
        for (auto& stops : division.stops) stops[phase].push_back(0);
      }
      buckets.back().pieces.push_back(piece);
      filled[phase] += (piece.last - piece.first) * width;
      for (size_t d = 0; d < devices_.size(); ++d) {
        auto& stops = division.stops[d][phase];
        const size_t before = stops.size() > 1 ? stops[stops.size() - 2] : 0;
        stops.back() = std::max({stops.back(), before, sum.ready[d]});
      }
    }
  }
  for (auto& buckets : division.buckets)
    for (Bucket& bucket : buckets) bucket.gates = std::make_unique<Gate[]>(static_cast<size_t>(works_));
  return division;
}

// --- running -------------------------------------------------------------------------------------------------------

void CrossDeviceSums::begin_run(observe::StepClock* clock) {
  clock_ = clock;
  if (on_gpus_) {
    barrier_.reset();
    on_gpus_->begin_run();
  }
  if (divisions_.empty()) return;
  if (divisions_.size() > 1 && trial_ < kTrials * static_cast<int>(divisions_.size())) {
    current_ = static_cast<size_t>(std::max(0, trial_)) % divisions_.size();
    began_ns_ = Clock::system().now_ns();
  }
  barrier_.reset();
  for (auto& buckets : divisions_[current_].buckets)
    for (Bucket& bucket : buckets)
      for (int w = 0; w < works_; ++w) bucket.gates[static_cast<size_t>(w)].reset();
  for (const auto& device : devices_) device->contributed = 0;
}

void CrossDeviceSums::end_run() {
  const int trials = kTrials * static_cast<int>(divisions_.size());
  if (divisions_.size() < 2 || trial_ >= trials) return;
  if (trial_ >= 0)
    shortest_ns_[current_] = std::min(shortest_ns_[current_], Clock::system().now_ns() - began_ns_);
  if (++trial_ == trials)
    current_ = static_cast<size_t>(std::min_element(shortest_ns_.begin(), shortest_ns_.end()) -
                                   shortest_ns_.begin());
}

int64_t CrossDeviceSums::bucket_bytes() const {
  return divisions_.empty() ? kWhole : divisions_[current_].bytes;
}

std::span<const size_t> CrossDeviceSums::stops(int d, int phase) const {
  if (divisions_.empty()) return {};
  const auto& by_phase = divisions_[current_].stops[static_cast<size_t>(d)];
  if (static_cast<size_t>(phase) >= by_phase.size()) return {};
  return by_phase[static_cast<size_t>(phase)];
}

void CrossDeviceSums::abort() {
  barrier_.abort();
  if (on_gpus_) on_gpus_->abort();
  if (divisions_.empty()) return;
  for (auto& buckets : divisions_[current_].buckets)
    for (Bucket& bucket : buckets)
      for (int w = 0; w < works_; ++w) bucket.gates[static_cast<size_t>(w)].abort();
}

void CrossDeviceSums::contribute(int d, int phase, size_t b, observe::ReplicaClock* clock) {
  Bucket& bucket = divisions_[current_].buckets[static_cast<size_t>(phase)][b];
  DeviceState& device = *devices_[static_cast<size_t>(d)];
  device.contributed = b + 1;
  if (!bucket.wanted_by(d, sums_)) {
    device.done[b] = works_;
    for (const Piece& piece : bucket.pieces) leave_out(d, piece);
    return;
  }
  device.done[b] = 0;
  add_own(d, bucket);
  bucket.gates[0].arrive(static_cast<int>(devices_.size()));
  advance(d, phase, false, clock);
}

// Does what the other devices are ready for. False where one of them failed.
bool CrossDeviceSums::advance(int d, int phase, bool waits, observe::ReplicaClock* clock) {
  auto& buckets = divisions_[current_].buckets[static_cast<size_t>(phase)];
  DeviceState& device = *devices_[static_cast<size_t>(d)];
  const int count = static_cast<int>(devices_.size());
  for (size_t b = 0; b < device.contributed; ++b)
    for (int& next = device.done[b]; next < works_;) {
      Gate& gate = buckets[b].gates[static_cast<size_t>(next)];
      if (!gate.open(count)) {
        if (!waits) break;
        const observe::TimeScope scope(clock, Category::waiting_for_others);
        if (!gate.wait(count, waiting_)) return false;
      }
      {
        const observe::Span span("all_reduce_sum", "communication", {.device = d});
        const observe::TimeScope scope(clock, Category::exposed_communication);
        work(d, buckets[b], next);
      }
      ++next;
      if (next < works_) buckets[b].gates[static_cast<size_t>(next)].arrive(count);
    }
  return true;
}

bool CrossDeviceSums::finish(int d, int phase, observe::ReplicaClock* clock) {
  if (on_gpus_) return on_gpus_->finish(d, phase, clock);
  if (divisions_.empty()) {
    if (std::none_of(sums_.begin(), sums_.end(), [&](const ReplicaSum& sum) { return sum.phase == phase; }))
      return true;
    const observe::Span span("all_reduce_sum", "communication", {.device = d});
    const observe::TimeScope scope(clock, Category::exposed_communication);
    for (size_t s = 0; s < sums_.size(); ++s)
      if (const Piece whole{s, 0, sums_[s].size}; sums_[s].phase == phase) {
        if (sums_[s].wanted(d))
          add_share(d, whole);
        else
          leave_out(d, whole);
      }
    return true;
  }
  const auto& all = divisions_[current_].buckets;
  if (static_cast<size_t>(phase) >= all.size()) return true;
  const auto& buckets = all[static_cast<size_t>(phase)];
  if (std::none_of(buckets.begin(), buckets.end(), [&](const Bucket& b) { return b.wanted_by(d, sums_); }))
    return true;
  if (!advance(d, phase, true, clock)) return false;
  // Nobody may overwrite a sum, or what goes into it, that others still read.
  const observe::TimeScope scope(clock, Category::waiting_for_others);
  return barrier_.meet();
}

void CrossDeviceSums::work(int d, const Bucket& bucket, int number) {
  for (const Piece& piece : bucket.pieces) {
    if (fetches_ && number == works_ - 1)
      fetch_shares(d, piece);
    else if (links_.empty())
      add_share(d, piece);
    else
      add_links(d, number, piece);
  }
}

void CrossDeviceSums::add_own(int d, const Bucket& bucket) {
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
                     sum_partially(sum.dtype, layout_.replicas, leaves, sum.inputs.data() + node.first,
                                   target, piece.first + begin, piece.first + end);
                   });
    }
  }
}

// Nobody uses the result, but a check of all values for NaNs must not find what some other value left there.
void CrossDeviceSums::leave_out(int d, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const size_t width = size_of(sum.dtype);
  for (void* result : sum.results[static_cast<size_t>(d)])
    if (result)
      std::memset(static_cast<char*>(result) + static_cast<size_t>(piece.first) * width, 0,
                  static_cast<size_t>(piece.last - piece.first) * width);
}

// The part of a piece that device d adds up for all.
std::pair<int64_t, int64_t> CrossDeviceSums::share(const Piece& piece, int64_t d) const {
  auto count = static_cast<int64_t>(devices_.size());
  switch (layout_.cross_device_ops) {
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

void CrossDeviceSums::add_share(int d, const Piece& piece) {
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
    sum_in_tree_order(sum.dtype, layout_.replicas, nodes, addends, targets, first + begin, first + end,
                      stores);
  });
}

void CrossDeviceSums::count_copy(size_t from, size_t to, int64_t bytes) {
  backend_of(*devices_[from]->device).count_copy(0, bytes);
  backend_of(*devices_[to]->device).count_copy(bytes, 0);
  count_sent(from, bytes);
}

void CrossDeviceSums::count_sent(size_t from, int64_t bytes) {
  if (clock_) clock_->replica(static_cast<int>(from)).count(observe::Counter::communication_bytes, bytes);
}

const void* CrossDeviceSums::operand(size_t sum, int from) const {
  if (from >= 0) return addends_[sum][static_cast<size_t>(from)];
  return static_cast<const char*>(links_[static_cast<size_t>(~from)].partial->data()) + scratch_[sum];
}

void CrossDeviceSums::add_links(int d, int level, const Piece& piece) {
  const ReplicaSum& sum = sums_[piece.sum];
  const Device& device = *devices_[static_cast<size_t>(d)]->device;
  for (const Link& link : links_) {
    if (link.level != level || link.device != d) continue;
    const int64_t bytes = static_cast<int64_t>(size_of(sum.dtype)) * (piece.last - piece.first);
    if (const int other = holder(link.parts[1].first); other != d)
      count_copy(static_cast<size_t>(other), static_cast<size_t>(d), bytes);
    if (!backend_of(device).has_memory()) continue;
    const void* addends[] = {operand(piece.sum, link.from[0]), operand(piece.sum, link.from[1])};
    parallel_for(piece.last - piece.first, kGrain, device.threads(), [&](int64_t begin, int64_t end) {
      if (link.partial)
        sum_partially(sum.dtype, layout_.replicas, link.parts, addends,
                      static_cast<char*>(link.partial->data()) + scratch_[piece.sum], piece.first + begin,
                      piece.first + end);
      else
        sum_in_tree_order(sum.dtype, layout_.replicas, link.parts, addends,
                          {sum.results[static_cast<size_t>(d)].data(), 1}, piece.first + begin,
                          piece.first + end);
    });
  }
}

// The addends that device d reads from the others' memory.
void CrossDeviceSums::count_addends(int d, int64_t bytes) {
  for (size_t e = 0; e < devices_.size(); ++e)
    if (static_cast<int>(e) != d)
      count_copy(e, static_cast<size_t>(d), bytes * static_cast<int64_t>(devices_[e]->nodes.size()));
}

void CrossDeviceSums::fetch_shares(int d, const Piece& piece) {
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

}  // namespace lockstep::compile
