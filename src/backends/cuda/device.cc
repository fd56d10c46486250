#include "backends/cuda/device.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/pinned_blocks.h"
#include "base/parallel.h"
#include "device/nvidia_driver.h"

namespace lockstep::cuda {
namespace {

constexpr double kMiB = 1 << 20;

// Of a GPU's free memory, what stays with the driver where everything is taken at once.
constexpr size_t kLeftFree = size_t{512} << 20;

void bind(int ordinal) { check(cudaSetDevice(ordinal), "cudaSetDevice"); }

class CudaGraph final : public CapturedGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override {
    // One that is still running may not go; where the process ends, the driver may have gone first.
    if (cudaStreamSynchronize(replayed_on_) == cudaSuccess) cudaGraphExecDestroy(graph_);
  }
  void replay(Stream& stream) override {
    stream.device().bind_thread();
    replayed_on_ = cuda_stream(stream);
    check(cudaGraphLaunch(graph_, replayed_on_), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t replayed_on_ = nullptr;
};

// GPUs whose memory others may read do so directly: sums over replicas, and copies without the host.
void enable_peers(int ordinal) {
  static std::mutex mutex;
  static auto* used = new std::vector<int>;
  const auto enable = [](int from, int to) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
    if (!can) return;
    bind(from);
    const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();
    else
      check(status, "cudaDeviceEnablePeerAccess");
  };
  const std::lock_guard lock(mutex);
  if (std::find(used->begin(), used->end(), ordinal) != used->end()) return;
  for (const int other : *used) {
    enable(ordinal, other);
    enable(other, ordinal);
  }
  used->push_back(ordinal);
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, int index, const PhysicalGpu& gpu, const GpuOptions& options)
    : DeviceBackend(DeviceKind::gpu, index, 1), ordinal_(ordinal), uuid_(gpu.uuid) {
  enable_peers(ordinal_);
  bind(ordinal_);
  check(cudaEventCreateWithFlags(&prefetch_copied_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  for (cudaEvent_t& event : marks_)
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  memory_.limit = options.memory_limit;
  allocator_.set_limit(static_cast<size_t>(options.memory_limit));
  if (options.growth) return;
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const size_t wanted = options.memory_limit > 0 ? static_cast<size_t>(options.memory_limit)
                                                 : free - std::min(free / 16, kLeftFree);
  if (!allocator_.reserve(wanted)) fail_out_of_memory(wanted, std::source_location::current());
  count_memory();
}

// Devices live until the process ends: what they hold goes with it.
CudaDevice::~CudaDevice() = default;

bool CudaDevice::reads(const DeviceBackend& other) const {
  if (other.kind() != DeviceKind::gpu) return false;
  const int from = static_cast<const CudaDevice&>(other).ordinal_;
  if (from == ordinal_) return true;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, ordinal_, from), "cudaDeviceCanAccessPeer");
  return can != 0;
}

// --- memory ------------------------------------------------------------------------------------------------

void* CudaDevice::take(size_t bytes) {
  bind(ordinal_);
  void* segment = nullptr;
  const cudaError_t status = cudaMalloc(&segment, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would be reported again by the next call that asks
    return nullptr;
  }
  check(status, "cudaMalloc");
  return segment;
}

void CudaDevice::give_back(void* segment, size_t) noexcept { cudaFree(segment); }

// What is kept for copies goes first where memory is short.
void* CudaDevice::try_allocate(size_t bytes) {
  void* data = allocator_.allocate(bytes);
  if (data || prefetch_kept_.empty()) return data;
  for (const auto& [block, prefetched] : prefetch_kept_) allocator_.deallocate(block);
  prefetch_kept_.clear();
  return allocator_.allocate(bytes);
}

void CudaDevice::count_memory() {
  const CachingAllocator::Statistics statistics = allocator_.statistics();
  size_t kept = 0;
  for (const auto& [block, prefetched] : prefetch_kept_) kept += prefetched.bytes;
  memory_.current = static_cast<int64_t>(statistics.used - kept);
  memory_.peak = std::max(memory_.peak, memory_.current);
  memory_.reserved = static_cast<int64_t>(statistics.reserved);
  memory_.largest_free = static_cast<int64_t>(statistics.largest_free);
}

void* CudaDevice::allocate(size_t bytes, std::source_location where) {
  const std::lock_guard lock(memory_mutex_);
  void* data = try_allocate(bytes);
  if (!data) fail_out_of_memory(bytes, where);
  count_memory();
  return data;
}

void CudaDevice::deallocate(void* data, size_t) noexcept {
  if (!data) return;
  const std::lock_guard lock(memory_mutex_);
  if (const auto found = prefetch_blocks_.find(data); found != prefetch_blocks_.end()) {
    try {
      if (prefetch_kept_.size() == kPrefetchBlocksKept) {
        allocator_.deallocate(prefetch_kept_.front().first);
        prefetch_kept_.erase(prefetch_kept_.begin());
      }
      prefetch_kept_.push_back(*found);
      prefetch_kept_.back().second.mark = mark();
    } catch (...) {
      // The process ends, and the driver went first.
    }
    prefetch_blocks_.erase(found);
  } else {
    allocator_.deallocate(data);
  }
  count_memory();
}

void* CudaDevice::allocate_for_prefetch(size_t bytes, std::source_location where) {
  const size_t rounded = CachingAllocator::rounded(bytes);
  const std::lock_guard lock(memory_mutex_);
  // The one that was given back first: the stream is most likely past it.
  const auto found = std::find_if(prefetch_kept_.begin(), prefetch_kept_.end(), [&](const auto& block) {
    return block.second.bytes >= rounded && block.second.bytes / 2 <= rounded;
  });
  void* data = nullptr;
  if (found != prefetch_kept_.end()) {
    data = found->first;
    prefetch_blocks_[data] = found->second;
    prefetch_kept_.erase(found);
  } else {
    data = try_allocate(rounded);
    if (!data) fail_out_of_memory(bytes, where);
    prefetch_blocks_[data] = {.bytes = rounded, .mark = mark()};
  }
  prefetch_blocks_[data].fresh = true;
  count_memory();
  return data;
}

void CudaDevice::fail_out_of_memory(size_t bytes, std::source_location where) {
  const CachingAllocator::Statistics statistics = allocator_.statistics();
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  const auto mib = [](size_t b) {
    return detail::concat(static_cast<int64_t>(static_cast<double>(b) / kMiB), " MiB");
  };
  const size_t cached = statistics.reserved - statistics.used;
  const size_t others = total - std::min(total, free + statistics.reserved);
  const std::string processes = nvidia::other_processes(uuid_);
  std::string help = "use a smaller batch or model";
  if (memory_.limit > 0) help = "raise the memory limit, " + help;
  if (cached > bytes) help += ", or steps of one shape (what is cached is in pieces)";
  if (others > bytes) help += ", or end other processes on the GPU";
  fail(ErrorCode::out_of_memory, where, "out of memory on ", name(), ": ", bytes, " bytes (", mib(bytes),
       ") were asked for; live tensors and plans hold ", mib(statistics.used), ", ", mib(cached),
       " are cached in pieces of at most ", mib(statistics.largest_free),
       memory_.limit > 0 ? ", the limit is " + mib(static_cast<size_t>(memory_.limit)) : "",
       "; of the GPU's ", mib(total), " ", mib(free), " are free and ", mib(others),
       " are held by other devices, processes and the driver",
       processes.empty() ? "" : " (other processes: " + processes + ")", "; ", help);
}

MemoryInfo CudaDevice::memory_info() const {
  const std::lock_guard lock(memory_mutex_);
  return memory_;
}

void CudaDevice::reset_peak_memory() {
  const std::lock_guard lock(memory_mutex_);
  memory_.peak = memory_.current;
}

void CudaDevice::set_memory_limit(int64_t bytes) {
  const std::lock_guard lock(memory_mutex_);
  require(bytes == 0 || bytes >= memory_.current, ErrorCode::invalid_argument,
          std::source_location::current(), "set_memory_limit: ", name(), " holds ", memory_.current,
          " bytes already, more than the limit of ", bytes);
  memory_.limit = bytes;
  allocator_.set_limit(static_cast<size_t>(bytes));
}

// --- copies ------------------------------------------------------------------------------------------------

// The next slot, once its last copy has happened. With the staging's mutex held.
char* CudaDevice::slot(Staging& s, size_t& index) {
  if (!s.data) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, Staging::kSlots * Staging::kSlotBytes, cudaHostAllocDefault), "cudaHostAlloc");
    for (cudaEvent_t& event : s.free)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    s.data = static_cast<char*>(data);
  }
  index = s.next++ % Staging::kSlots;
  check(cudaEventSynchronize(s.free[index]), "cudaEventSynchronize");
  return s.data + index * Staging::kSlotBytes;
}

namespace {

// One core copies 20 to 30 GB/s, half of what the bus takes: large pieces are copied by several, small ones
// are over before others have been woken.
void copy_to_pinned(char* target, const char* source, size_t bytes) {
  static const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 8);
  constexpr int64_t kGrain = 128 << 10;
  parallel_for(static_cast<int64_t>(bytes), kGrain, threads, [&](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

// With the staging's mutex held.
void CudaDevice::copy_pieces(void* target, const void* source, size_t bytes, Staging& staging,
                             cudaStream_t stream) {
  for (size_t at = 0; at < bytes; at += Staging::kSlotBytes) {
    const size_t piece = std::min(Staging::kSlotBytes, bytes - at);
    size_t index = 0;
    char* staged = slot(staging, index);
    copy_to_pinned(staged, static_cast<const char*>(source) + at, piece);
    check(cudaMemcpyAsync(static_cast<char*>(target) + at, staged, piece, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to the device");
    check(cudaEventRecord(staging.free[index], stream), "cudaEventRecord");
  }
}

void CudaDevice::copy_from_host(void* target, const void* source, size_t bytes) {
  if (bytes == 0) return;
  bind(ordinal_);
  int64_t read_until = -1;
  {
    const std::lock_guard lock(memory_mutex_);
    if (const auto found = prefetch_blocks_.find(target);
        found != prefetch_blocks_.end() && found->second.fresh) {
      found->second.fresh = false;
      read_until = found->second.mark;
    }
  }
  if (read_until < 0) {
    const std::lock_guard lock(staging_.mutex);
    return copy_pieces(target, source, bytes, staging_, stream_.handle());
  }
  const std::lock_guard lock(copy_staging_.mutex);
  check(
      cudaStreamWaitEvent(copy_stream_.handle(), marks_[static_cast<size_t>(read_until) % marks_.size()], 0),
      "cudaStreamWaitEvent");
  const bool direct = is_pinned(source, bytes);
  if (direct)
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, copy_stream_.handle()),
          "cudaMemcpyAsync to the device");
  else
    copy_pieces(target, source, bytes, copy_staging_, copy_stream_.handle());
  // The host fills the pinned slots slower than the bus empties them, so there is hardly anything left to
  // wait for.
  check(cudaEventRecord(prefetch_copied_, copy_stream_.handle()), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_.handle(), prefetch_copied_, 0), "cudaStreamWaitEvent");
  // The caller may write over what it gave as soon as this returns.
  if (direct) check(cudaEventSynchronize(prefetch_copied_), "cudaEventSynchronize");
}

bool CudaDevice::copy_async(void* target, std::span<const Piece> pieces, const Event& after, Event& sent) {
  // From here on the GPU reads pinned memory itself: it takes longer than a core to begin, but goes on
  // faster.
  constexpr size_t kDirect = size_t{256} << 10;
  bind(ordinal_);
  const std::lock_guard lock(copy_staging_.mutex);
  const cudaStream_t stream = copy_stream_.handle();
  const auto pinned = [](const Piece& p) { return p.bytes >= kDirect && is_pinned(p.source, p.bytes); };
  auto* const to = static_cast<char*>(target);
  bool still_read = false;
  after.wait(copy_stream_);
  // Small ones wait for each other in a slot, and go together.
  char* staged = nullptr;
  size_t index = 0, begin = 0, end = 0;  // of the slot: which, and the part of the target that it is for
  const auto flush = [&] {
    if (!staged) return;
    check(cudaMemcpyAsync(to + begin, staged, end - begin, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to the device");
    check(cudaEventRecord(copy_staging_.free[index], stream), "cudaEventRecord");
    staged = nullptr;
  };
  for (const Piece& piece : pieces) {
    if (pinned(piece)) {
      check(cudaMemcpyAsync(to + piece.offset, piece.source, piece.bytes, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync to the device");
      still_read = true;
    } else if (piece.bytes > Staging::kSlotBytes) {
      copy_pieces(to + piece.offset, piece.source, piece.bytes, copy_staging_, stream);
    } else {
      if (staged && piece.offset + piece.bytes - begin > Staging::kSlotBytes) flush();
      if (!staged) {
        staged = slot(copy_staging_, index);
        begin = piece.offset;
      }
      copy_to_pinned(staged + (piece.offset - begin), static_cast<const char*>(piece.source), piece.bytes);
      end = piece.offset + piece.bytes;
    }
  }
  flush();
  sent.record(copy_stream_);
  sent.wait(stream_);
  return still_read;
}

void CudaDevice::copy_to_host(void* target, const void* source, size_t bytes) {
  if (bytes == 0) return;
  if (bytes > Staging::kSlotBytes) return stream_.read(target, source, bytes);
  bind_thread();
  const std::lock_guard lock(staging_.mutex);
  size_t index = 0;
  char* staged = slot(staging_, index);
  stream_.read(staged, source, bytes);
  std::memcpy(target, staged, bytes);
}

void CudaDevice::copy_from_device(void* target, DeviceBackend& from, const void* source, size_t bytes) {
  if (bytes == 0) return;
  auto& other = static_cast<CudaDevice&>(from);
  stream_.wait_for(other.stream_);
  bind_thread();
  check(cudaMemcpyPeerAsync(target, ordinal_, source, other.ordinal_, bytes, stream_.handle()),
        "cudaMemcpyPeerAsync");
  // Nothing there overwrites the source before it is read.
  other.stream_.wait_for(stream_);
}

// --- order -------------------------------------------------------------------------------------------------

void CudaDevice::bind_thread() const { bind(ordinal_); }

std::unique_ptr<Stream> CudaDevice::new_stream() {
  return std::make_unique<CudaStream>(*this, CudaStream::Priority::urgent);
}

int64_t CudaDevice::mark() {
  bind_thread();
  const int64_t mark = next_mark_++;
  check(cudaEventRecord(marks_[static_cast<size_t>(mark) % marks_.size()], stream_.handle()),
        "cudaEventRecord");
  return mark;
}

std::unique_ptr<CapturedGraph> CudaDevice::capture_graph(std::span<const CapturedLaunch> launches) {
  bind_thread();
  const std::lock_guard lock(capture_mutex_);
  const cudaStream_t stream = capture_stream_.handle();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  try {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    // Before each launch the stream is told what it depends on, so that the graph has no other order than
    // that.
    std::vector<std::vector<cudaGraphNode_t>> ends(launches.size());
    for (size_t i = 0; i < launches.size(); ++i) {
      std::vector<cudaGraphNode_t> before;
      for (const size_t earlier : launches[i].after)
        before.insert(before.end(), ends[earlier].begin(), ends[earlier].end());
      check(cudaStreamUpdateCaptureDependencies(stream, before.data(), nullptr, before.size(),
                                                cudaStreamSetCaptureDependencies),
            "cudaStreamUpdateCaptureDependencies");
      launches[i].launch(capture_stream_);
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      const cudaGraphNode_t* last = nullptr;
      size_t count = 0;
      check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, nullptr, &count),
            "cudaStreamGetCaptureInfo");
      ends[i].assign(last, last + count);
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  } catch (...) {
    cudaGraph_t broken = nullptr;
    if (!graph) cudaStreamEndCapture(stream, &broken);
    for (const cudaGraph_t g : {graph, broken})
      if (g) cudaGraphDestroy(g);
    cudaGetLastError();
    throw;
  }
  cudaGraphDestroy(graph);
  return std::make_unique<CudaGraph>(made);
}

}  // namespace lockstep::cuda
