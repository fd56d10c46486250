#include "execute/all_reduce/processes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <numeric>

#include "base/parallel.h"
#include "device/device_backend.h"
#include "lockstep/observe/span.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

using observe::Category;

namespace {

constexpr int64_t kBucketBytes = 1 << 20;  // where nobody says otherwise
constexpr size_t kNamesOfBucket = 2;       // so many of its sums are named
constexpr int64_t kBf16 = sizeof(uint16_t);

// To the nearest, ties to even, as BFloat16 does: here the compiler makes vectors of it.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}
inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

// Device d has filled a bucket.
class ProcessesAllReduce::BucketMark final : public LaunchMark {
 public:
  BucketMark(ProcessesAllReduce& owner, int d, int phase, size_t bucket)
      : owner_(owner), device_(d), phase_(phase), bucket_(bucket) {}
  void reach(Stream&) override { owner_.fill(device_, phase_, bucket_); }

 private:
  ProcessesAllReduce& owner_;
  const int device_, phase_;
  const size_t bucket_;
};

ProcessesAllReduce::ProcessesAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                       const StepObserver& observer)
    : group_(group),
      sums_(std::move(sums)),
      observer_(observer),
      workers_(*group.workers),
      has_memory_(backend_of(*group.devices[0]).has_memory()),
      thread_(Waiting::sleeps) {
  make_nodes();
  make_buckets();
  make_memory();
}

ProcessesAllReduce::~ProcessesAllReduce() {
  if (running_) thread_.wait();
}

// --- construction ------------------------------------------------------------------------------------------

void ProcessesAllReduce::make_nodes() {
  for (int r = 0; r < group_.replicas; ++r) leaves_.push_back({r, r + 1});
  size_t scratch = 0;
  for (const ReplicaSum& sum : sums_) {
    scratch_.push_back(scratch);
    scratch += (static_cast<size_t>(sum.size) * partial_size(sum.dtype) + 63) / 64 * 64;
  }
  for (size_t d = 0; d < group_.devices.size(); ++d) {
    device_nodes_.push_back(largest_nodes(group_.replicas, group_.held[d].first, group_.held[d].last));
    auto& sums = device_sums_.emplace_back();
    for (const TreeNode& node : device_nodes_.back()) {
      held_.push_back(node);
      sums.push_back(node.last - node.first > 1
                         ? std::make_unique<Storage>(*group_.devices[d], std::max<size_t>(scratch, 64),
                                                     std::source_location::current())
                         : nullptr);
    }
  }
  for (size_t s = 0; s < sums_.size(); ++s) {
    auto& held = held_sums_.emplace_back();
    for (size_t d = 0; d < device_nodes_.size(); ++d)
      for (size_t n = 0; n < device_nodes_[d].size(); ++n)
        held.push_back(device_sums_[d][n] ? static_cast<char*>(device_sums_[d][n]->data()) + scratch_[s]
                                          : sums_[s].inputs[static_cast<size_t>(device_nodes_[d][n].first)]);
    auto& results = results_.emplace_back();
    for (size_t d = 0; d < group_.devices.size(); ++d)
      for (void* result : sums_[s].results[d])
        if (result && backend_of(*group_.devices[d]).has_memory()) results.push_back(result);
  }
  for (const ReplicaRange& range : group_.worker_held) {
    worker_nodes_.push_back(largest_nodes(group_.replicas, range.first, range.last));
    all_nodes_.insert(all_nodes_.end(), worker_nodes_.back().begin(), worker_nodes_.back().end());
  }
}

// All processes come to the same buckets: nothing here depends on which replicas this one holds.
void ProcessesAllReduce::make_buckets() {
  const int64_t most = group_.bucket_bytes < 0 ? kBucketBytes : group_.bucket_bytes;
  std::vector<size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sums_[a].order < sums_[b].order; });
  int phases = 0;
  for (const ReplicaSum& sum : sums_) phases = std::max(phases, sum.phase + 1);
  phases_ = std::vector<Phase>(static_cast<size_t>(phases));
  for (Phase& phase : phases_) phase.marks.resize(group_.devices.size());
  for (const size_t s : order) {
    const ReplicaSum& sum = sums_[s];
    if (sum.size == 0) continue;
    Phase& phase = phases_[static_cast<size_t>(sum.phase)];
    const auto width = static_cast<int64_t>(size_of(sum.dtype));
    const int64_t part = most == 0 ? sum.size : std::max<int64_t>(kLine, most / width / kLine * kLine);
    for (int64_t at = 0; at < sum.size; at += part) {
      Bucket* last = phase.buckets.empty() ? nullptr : phase.buckets.back().get();
      if (!last || last->dtype != sum.dtype || last->compressed != compresses(sum) ||
          (most > 0 && last->size * width >= most) ||
          sums_[last->pieces[0].sum].conditions.empty() != sum.conditions.empty()) {
        phase.buckets.push_back(std::make_unique<Bucket>());
        for (auto& marks : phase.marks) marks.push_back({});
        last = phase.buckets.back().get();
        last->dtype = sum.dtype;
        last->compressed = compresses(sum);
      }
      Bucket& bucket = *last;
      const Piece piece{s, at, std::min(sum.size, at + part), bucket.size};
      if (bucket.pieces.size() < kNamesOfBucket) bucket.name += (bucket.name.empty() ? "" : ", ") + sum.name;
      if (bucket.pieces.size() == kNamesOfBucket) bucket.name += ", ...";
      bucket.pieces.push_back(piece);
      bucket.size += piece.last - piece.first;
      for (size_t d = 0; d < group_.devices.size(); ++d) {
        auto& marks = phase.marks[d];
        const size_t before = marks.size() > 1 ? marks[marks.size() - 2].launches : 0;
        marks.back().launches = std::max({marks.back().launches, before, sum.ready[d]});
      }
    }
  }
  for (size_t p = 0; p < phases_.size(); ++p)
    for (size_t d = 0; d < group_.devices.size(); ++d)
      for (size_t b = 0; b < phases_[p].marks[d].size(); ++b)
        phases_[p].marks[d][b].mark = bucket_marks_
                                          .emplace_back(std::make_unique<BucketMark>(
                                              *this, static_cast<int>(d), static_cast<int>(p), b))
                                          .get();
}

bool ProcessesAllReduce::compresses(const ReplicaSum& sum) const {
  return group_.bf16_gradients && sum.is_gradient && accumulator(sum.dtype) == DType::float32 &&
         sum.dtype != DType::float16;
}

void ProcessesAllReduce::make_memory() {
  const auto processes = static_cast<int64_t>(worker_nodes_.size());
  size_t sent = 64, received = 64, shares = 64;
  for (Phase& phase : phases_)
    for (const auto& bucket : phase.buckets) {
      const auto width = static_cast<int64_t>(size_of(bucket->dtype));
      const auto wide = static_cast<int64_t>(partial_size(bucket->dtype));
      const int64_t lines = (bucket->size + kLine - 1) / kLine;
      bucket->share = (lines + processes - 1) / processes * kLine;
      if (bucket->compressed) {
        const int64_t bytes = bucket->share * kBf16;
        bucket->send_bytes.assign(static_cast<size_t>(processes), bytes);
        bucket->receive_bytes = bucket->send_bytes;
        sent = std::max(sent, static_cast<size_t>(bucket->share * processes * wide));
        received = std::max(received, static_cast<size_t>(bytes * processes));
        shares = std::max(shares, static_cast<size_t>(bytes));
        continue;
      }
      const int64_t own = static_cast<int64_t>(worker_nodes_[static_cast<size_t>(workers_.rank())].size());
      int64_t all = 0;
      for (const auto& nodes : worker_nodes_) {
        bucket->send_bytes.push_back(own * bucket->share * wide);
        bucket->receive_bytes.push_back(static_cast<int64_t>(nodes.size()) * bucket->share * wide);
        all += bucket->receive_bytes.back();
      }
      const int64_t whole = bucket->share * processes;
      sent = std::max(sent, static_cast<size_t>(std::max<int64_t>(own, 1) * whole * wide));
      received = std::max(received, static_cast<size_t>(std::max(all, whole * width)));
      shares = std::max(shares, static_cast<size_t>(bucket->share * width));
    }
  sent_.resize(sent);
  if (!group_.reproducible && !group_.bf16_gradients) return;
  if (group_.bf16_gradients) rounded_.resize(received / sizeof(uint16_t));
  received_.resize(received);
  shares_.resize(shares);
  addends_.resize(all_nodes_.size());
}

// --- devices -----------------------------------------------------------------------------------------------

std::span<const PhaseSync::Mark> ProcessesAllReduce::marks(int d, int phase) const {
  if (static_cast<size_t>(phase) >= phases_.size()) return {};
  return phases_[static_cast<size_t>(phase)].marks[static_cast<size_t>(d)];
}

bool ProcessesAllReduce::wanted(int d, const Bucket& bucket) const {
  const auto& conditions = sums_[bucket.pieces[0].sum].conditions;
  return conditions.empty() || *conditions[static_cast<size_t>(d)];
}

void ProcessesAllReduce::fill(int d, int phase, size_t b) {
  Bucket& bucket = *phases_[static_cast<size_t>(phase)].buckets[b];
  const auto device = static_cast<size_t>(d);
  if (!wanted(d, bucket)) {
    leave_out(d, bucket);
  } else if (has_memory_) {
    for (size_t n = 0; n < device_nodes_[device].size(); ++n) {
      if (!device_sums_[device][n]) continue;
      const TreeNode node = device_nodes_[device][n];
      const std::span<const TreeNode> leaves(leaves_.data() + node.first,
                                             static_cast<size_t>(node.last - node.first));
      for (const Piece& piece : bucket.pieces) {
        const ReplicaSum& sum = sums_[piece.sum];
        void* const target = static_cast<char*>(device_sums_[device][n]->data()) + scratch_[piece.sum];
        parallel_for(piece.last - piece.first, kGrain, group_.devices[device]->threads(),
                     [&](int64_t begin, int64_t end) {
                       sum_partially(sum.dtype, group_.replicas, leaves, sum.inputs.data() + node.first,
                                     target, piece.first + begin, piece.first + end);
                     });
      }
    }
  }
  bucket.filled.arrive(static_cast<int>(group_.devices.size()));
}

// A sum that is not wanted is not used, but a check of all values for NaNs must not find what another value
// left in its place.
void ProcessesAllReduce::leave_out(int d, const Bucket& bucket) const {
  for (const Piece& piece : bucket.pieces) {
    const ReplicaSum& sum = sums_[piece.sum];
    const size_t width = size_of(sum.dtype);
    for (void* result : sum.results[static_cast<size_t>(d)])
      if (result && has_memory_)
        std::memset(static_cast<char*>(result) + static_cast<size_t>(piece.first) * width, 0,
                    static_cast<size_t>(piece.last - piece.first) * width);
  }
}

bool ProcessesAllReduce::finish(int d, int phase) {
  if (static_cast<size_t>(phase) >= phases_.size()) return true;
  Phase& at = phases_[static_cast<size_t>(phase)];
  if (at.buckets.empty()) return true;
  const auto scope = observer_.time(d, Category::exposed_communication);
  if (d == 0 && at.by_device()) return exchange_here(at);
  if (at.done.wait(1, Waiting::sleeps)) return true;
  // The first of this process' devices throws what went wrong; the others only return.
  if (d == 0 && error_) std::rethrow_exception(error_);
  return false;
}

// --- the thread that exchanges -----------------------------------------------------------------------------

void ProcessesAllReduce::begin_step() {
  if (running_) thread_.wait();
  for (Phase& phase : phases_) {
    phase.done.reset();
    for (const auto& bucket : phase.buckets) bucket->filled.reset();
  }
  error_ = nullptr;
  const auto by_thread = [](const Phase& phase) { return !phase.buckets.empty() && !phase.by_device(); };
  running_ = std::any_of(phases_.begin(), phases_.end(), by_thread);
  if (running_)
    thread_.start([](void* self) { static_cast<ProcessesAllReduce*>(self)->exchange_all(); }, this);
}

void ProcessesAllReduce::end_step() {
  if (running_) thread_.wait();
  running_ = false;
}

void ProcessesAllReduce::abort() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    workers_.give_up(detail::concat("worker ", workers_.rank(), " cannot go on: ", error.what()), error);
  } catch (...) {
    workers_.give_up(detail::concat("worker ", workers_.rank(), " cannot go on, see its own message"),
                     std::exception());
  }
  for (Phase& phase : phases_) {
    phase.done.abort();
    for (const auto& bucket : phase.buckets) bucket->filled.abort();
  }
}

void ProcessesAllReduce::exchange_all() {
  const int devices = static_cast<int>(group_.devices.size());
  try {
    for (Phase& phase : phases_) {
      // No bucket behind it is filled before that has happened.
      if (phase.by_device()) continue;
      for (const auto& bucket : phase.buckets) {
        if (!bucket->filled.wait(devices, Waiting::sleeps)) return;
        if (wanted(0, *bucket)) exchange(*bucket);
      }
      phase.done.arrive(1);
    }
  } catch (...) {
    error_ = std::current_exception();
    for (Phase& phase : phases_) phase.done.abort();
  }
}

bool ProcessesAllReduce::exchange_here(Phase& phase) {
  Bucket& bucket = *phase.buckets[0];
  if (!bucket.filled.wait(static_cast<int>(group_.devices.size()), Waiting::sleeps)) return false;
  try {
    if (wanted(0, bucket)) exchange(bucket);
  } catch (...) {
    for (Phase& each : phases_) each.done.abort();
    throw;
  }
  phase.done.arrive(1);
  return true;
}

// Sums elements [first, last) of a bucket over these nodes of the tree, as partial sums.
void ProcessesAllReduce::sum_over(const Bucket& bucket, std::span<const TreeNode> nodes, int64_t first,
                                  int64_t last, char* target) {
  const auto wide = static_cast<int64_t>(partial_size(bucket.dtype));
  const auto begin = nodes.empty() ? held_.end() : std::find(held_.begin(), held_.end(), nodes[0]);
  for (const Piece& piece : bucket.pieces) {
    const int64_t from = std::max(first, piece.at), to = std::min(last, piece.at + piece.last - piece.first);
    if (from >= to) continue;
    char* const out = target + (from - first) * wide;
    if (begin == held_.end() || !has_memory_) {
      std::memset(out, 0, static_cast<size_t>((to - from) * wide));
      continue;
    }
    const int64_t element = piece.first + (from - piece.at);
    sum_partially(bucket.dtype, group_.replicas, nodes,
                  held_sums_[piece.sum].data() + (begin - held_.begin()), out - element * wide, element,
                  element + to - from);
  }
}

void ProcessesAllReduce::exchange(const Bucket& bucket) {
  const observe::Span span("all_reduce_sum", "communication", {.device = 0});
  int64_t sent = 0;
  if (bucket.compressed) {
    exchange_rounded(bucket);
    sent = 2 * bucket.share * kBf16 * (workers_.size() - 1);
  } else if (group_.reproducible) {
    pack_shares(bucket);
    workers_.all_to_all(bucket.name, sent_.data(), bucket.send_bytes, received_.data(), bucket.receive_bytes);
    finish_share(bucket);
    const int64_t share = bucket.share * static_cast<int64_t>(size_of(bucket.dtype));
    workers_.all_gather(bucket.name, shares_.data(), received_.data(), share);
    deliver(bucket, received_.data(), false);
    sent = bucket.send_bytes[0] * (workers_.size() - 1) + share * (workers_.size() - 1);
  } else {
    sum_over(bucket, held_, 0, bucket.size, sent_.data());
    workers_.all_reduce_sum(bucket.name, sent_.data(), bucket.size, accumulator(bucket.dtype));
    deliver(bucket, sent_.data(), true);
    sent = 2 * bucket.size * static_cast<int64_t>(partial_size(bucket.dtype)) * (workers_.size() - 1) /
           workers_.size();
  }
  observer_.count(0, observe::Counter::communication_bytes, sent);
}

// Rounded once on the way to the owner of a share and once on the way back; every process takes the same
// bits, its owner too.
void ProcessesAllReduce::exchange_rounded(const Bucket& bucket) {
  sum_over(bucket, held_, 0, bucket.size, sent_.data());
  auto* const sums = reinterpret_cast<float*>(sent_.data());
  const auto processes = static_cast<int64_t>(workers_.size());
  const int64_t whole = bucket.share * processes;
  for (int64_t i = 0; i < bucket.size; ++i) rounded_[static_cast<size_t>(i)] = to_bf16(sums[i]);
  std::fill(rounded_.begin() + bucket.size, rounded_.begin() + whole, uint16_t{0});
  workers_.all_to_all(bucket.name, rounded_.data(), bucket.send_bytes, received_.data(),
                      bucket.receive_bytes);
  const auto* const received = reinterpret_cast<const uint16_t*>(received_.data());
  std::fill(sums, sums + bucket.share, 0.0f);
  for (int64_t p = 0; p < processes; ++p)
    for (int64_t i = 0; i < bucket.share; ++i) sums[i] += from_bf16(received[p * bucket.share + i]);
  auto* const share = reinterpret_cast<uint16_t*>(shares_.data());
  for (int64_t i = 0; i < bucket.share; ++i) share[i] = to_bf16(sums[i]);
  workers_.all_gather(bucket.name, share, received_.data(), bucket.share * kBf16);
  for (int64_t i = 0; i < bucket.size; ++i) sums[i] = from_bf16(received[i]);
  deliver(bucket, sent_.data(), true);
}

// For each owner, the sums below each of this process' nodes.
void ProcessesAllReduce::pack_shares(const Bucket& bucket) {
  const auto wide = static_cast<int64_t>(partial_size(bucket.dtype));
  char* target = sent_.data();
  for (int64_t owner = 0; owner < workers_.size(); ++owner) {
    const int64_t first = std::min(bucket.size, owner * bucket.share);
    const int64_t last = std::min(bucket.size, first + bucket.share);
    for (const TreeNode& node : worker_nodes_[static_cast<size_t>(workers_.rank())]) {
      // The devices' nodes that lie below it.
      const auto begin =
          std::find_if(held_.begin(), held_.end(), [&](const TreeNode& n) { return n.first >= node.first; });
      const auto end =
          std::find_if(begin, held_.end(), [&](const TreeNode& n) { return n.first >= node.last; });
      sum_over(bucket, {begin, end}, first, last, target);
      target += bucket.share * wide;
    }
  }
}

// What this process owns, in the order of the tree.
void ProcessesAllReduce::finish_share(const Bucket& bucket) {
  const int64_t first = std::min(bucket.size, workers_.rank() * bucket.share);
  const int64_t size = std::min(bucket.size, first + bucket.share) - first;
  if (size == 0) return;
  const auto block = static_cast<size_t>(bucket.share) * partial_size(bucket.dtype);
  for (size_t n = 0; n < addends_.size(); ++n) addends_[n] = received_.data() + n * block;
  void* const target = shares_.data();
  sum_of_partials(bucket.dtype, group_.replicas, all_nodes_, addends_.data(), {&target, 1}, 0, size);
}

void ProcessesAllReduce::deliver(const Bucket& bucket, const char* sums, bool are_partial) {
  if (!has_memory_) return;
  const size_t width = are_partial ? partial_size(bucket.dtype) : size_of(bucket.dtype);
  for (const Piece& piece : bucket.pieces) {
    const char* const source = sums + static_cast<size_t>(piece.at) * width;
    for (void* result : results_[piece.sum]) {
      if (are_partial && width != size_of(bucket.dtype)) {
        const TreeNode all{0, group_.replicas};
        const void* addend = source - static_cast<size_t>(piece.first) * width;
        sum_of_partials(bucket.dtype, group_.replicas, {&all, 1}, &addend, {&result, 1}, piece.first,
                        piece.last);
        continue;
      }
      std::memcpy(static_cast<char*>(result) + static_cast<size_t>(piece.first) * width, source,
                  static_cast<size_t>(piece.last - piece.first) * width);
    }
  }
}

}  // namespace lockstep::execute
