#include "backends/nccl/nccl_communicator.h"

#include <algorithm>

#include "backends/cuda/stream.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::nccl {
namespace {

using std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr auto kPoll = std::chrono::microseconds(50);
constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr double kFarewell = 10;  // seconds for the others to finish as well

steady_clock::time_point in_seconds(double s) {
  return steady_clock::now() +
         std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(s));
}

void check_cuda(cudaError_t status, const char* what) {
  require(status == cudaSuccess, ErrorCode::internal, std::source_location::current(), what,
          " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return ncclFloat32;
    case DType::float64: return ncclFloat64;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float16: return ncclFloat16;
    case DType::int32: return ncclInt32;
    case DType::int64: return ncclInt64;
    case DType::uint8: return ncclUint8;
    case DType::boolean: break;
  }
  fail(ErrorCode::dtype_mismatch, std::source_location::current(),
       "all_reduce_sum: booleans have no sum; cast() them first");
}

bool is_capturing(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(cuda::cuda_stream(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

std::string NcclCommunicator::Operation::text() const {
  return count < 0 ? std::string(what) : detail::concat(what, " of ", count, " ", dtype);
}

NcclCommunicator::NcclCommunicator(Device& device, const ncclUniqueId& id, int rank, int size,
                                   const comm::CommunicatorOptions& options)
    : nccl_(library()), device_(device), rank_(rank), size_(size), options_(options) {
  backend_of(device_).bind_thread();
  void* meeting = nullptr;
  check_cuda(cudaMalloc(&meeting, sizeof(int)), "cudaMalloc");
  meeting_ = static_cast<int*>(meeting);
  check_cuda(cudaMemset(meeting_, 0, sizeof(int)), "cudaMemset");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl_.comm_init_rank(&comm_, size, id, rank, &config);
  require(result == ncclSuccess || result == ncclInProgress, ErrorCode::io, std::source_location::current(),
          "NCCL, rank ", rank, " of ", size, " on ", device.name(), ": connecting failed: ", words(result));
  watcher_ = std::thread([this] { look(); });
}

void NcclCommunicator::connect() {
  const std::lock_guard lock(comm_mutex_);
  settle(ncclInProgress, "connecting");
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  try {
    backend_of(device_).bind_thread();
    const std::lock_guard lock(comm_mutex_);
    if (comm_ && !failed()) {
      const Moment until = in_seconds(kFarewell);
      ncclResult_t result = nccl_.comm_finalize(comm_);
      while (result == ncclInProgress && steady_clock::now() < until) {
        std::this_thread::sleep_for(kPoll);
        if (nccl_.comm_get_async_error(comm_, &result) != ncclSuccess) break;
      }
      if (result == ncclSuccess) {
        nccl_.comm_destroy(comm_);
        comm_ = nullptr;
      }
    }
  } catch (...) {
    // The process ends, and the driver went first.
  }
  abort_communicator();
  for (const Queued& q : queued_) cudaEventDestroy(q.ended);
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
  cudaFree(meeting_);
}

// --- collectives -------------------------------------------------------------------------------------------

template <class Call>
void NcclCommunicator::queue(const Operation& operation, Stream& stream, Call call) {
  check();
  stream.device().bind_thread();
  {
    const std::lock_guard lock(comm_mutex_);
    // Inside a batch nothing is done yet, and nothing to be waited for.
    if (const ncclResult_t result = comm_ ? call() : ncclSuccess; !in_batch_ || result != ncclInProgress)
      settle(result, operation.text());
  }
  check();
  if (in_batch_) {
    batch_ = operation;
    batch_stream_ = &stream;
  } else {
    note(operation, stream);
  }
}

void NcclCommunicator::all_reduce_sum(const void* source, void* target, int64_t count, DType dtype,
                                      Stream& stream) {
  const ncclDataType_t type = type_of(dtype);
  queue({"all_reduce_sum", count, dtype}, stream, [&] {
    return nccl_.all_reduce(source, target, static_cast<size_t>(count), type, ncclSum, comm_,
                            cuda::cuda_stream(stream));
  });
}

void NcclCommunicator::broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                                 Stream& stream) {
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  queue({"broadcast", count, dtype}, stream, [&] {
    return nccl_.broadcast(source, target, bytes, ncclUint8, root, comm_, cuda::cuda_stream(stream));
  });
}

void NcclCommunicator::all_gather(const void* source, void* target, int64_t count, DType dtype,
                                  Stream& stream) {
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  queue({"all_gather", count, dtype}, stream,
        [&] { return nccl_.all_gather(source, target, bytes, ncclUint8, comm_, cuda::cuda_stream(stream)); });
}

void NcclCommunicator::all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                                  std::span<const int64_t> receive_bytes, Stream& stream) {
  begin_batch();
  const auto* from = static_cast<const char*>(source);
  auto* to = static_cast<char*>(target);
  for (int r = 0; r < size_; ++r) {
    const auto sent = static_cast<size_t>(send_bytes[static_cast<size_t>(r)]);
    const auto received = static_cast<size_t>(receive_bytes[static_cast<size_t>(r)]);
    queue({"all_to_all", send_bytes[static_cast<size_t>(r)], DType::uint8}, stream, [&] {
      const ncclResult_t result =
          sent == 0 ? ncclSuccess : nccl_.send(from, sent, ncclUint8, r, comm_, cuda::cuda_stream(stream));
      if (received == 0 || (result != ncclSuccess && result != ncclInProgress)) return result;
      return nccl_.receive(to, received, ncclUint8, r, comm_, cuda::cuda_stream(stream));
    });
    from += sent;
    to += received;
  }
  end_batch();
}

void NcclCommunicator::begin_batch() {
  check();
  nccl_.group_start();
  in_batch_ = true;
  batch_stream_ = nullptr;
}

void NcclCommunicator::end_batch() {
  in_batch_ = false;
  {
    const std::lock_guard lock(comm_mutex_);
    const ncclResult_t result = nccl_.group_end();
    if (comm_) settle(result, batch_.text());
  }
  check();
  if (batch_stream_) note(batch_, *batch_stream_);
}

void NcclCommunicator::barrier(Stream& stream) {
  queue({.what = "barrier"}, stream, [&] {
    return nccl_.all_reduce(meeting_, meeting_, 1, ncclInt32, ncclSum, comm_, cuda::cuda_stream(stream));
  });
  wait(stream);
}

void NcclCommunicator::watch(const char* what, Stream& stream) { note({.what = what}, stream); }

void NcclCommunicator::wait(Stream& stream) {
  // Not cudaStreamSynchronize: it would not return where an aborted kernel does not end.
  Moment give_up_at = Moment::max();
  for (int polls = 0;; ++polls) {
    const cudaError_t status = cudaStreamQuery(cuda::cuda_stream(stream));
    if (status == cudaSuccess) break;
    if (status != cudaErrorNotReady) {
      give_up(detail::concat("waiting for the stream: ", cudaGetErrorString(status)));
      break;
    }
    if (failed() && give_up_at == Moment::max()) give_up_at = in_seconds(kFarewell);
    if (steady_clock::now() > give_up_at) break;
    if (polls > 100) std::this_thread::sleep_for(kPoll);
  }
  check();
}

// --- failures ----------------------------------------------------------------------------------------------

// Behind what was queued: from now on it is looked at until it has ended. What is being captured does not
// happen now.
void NcclCommunicator::note(const Operation& operation, Stream& stream) {
  stream.device().bind_thread();
  if (is_capturing(stream)) return;
  const std::lock_guard lock(mutex_);
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  check_cuda(cudaEventRecord(event, cuda::cuda_stream(stream)), "cudaEventRecord");
  queued_.push_back({operation, ++begun_, event, in_seconds(options_.timeout_s)});
}

std::string NcclCommunicator::words(ncclResult_t result) const {
  std::string text = nccl_.get_error_string(result);
  const char* more = nccl_.get_last_error(comm_);
  if (more && *more) text += detail::concat(" (", more, ")");
  return text;
}

// A call of NCCL, until it has done what it can without the stream. With comm_mutex_ held.
void NcclCommunicator::settle(ncclResult_t result, const std::string& what) {
  const Moment until = in_seconds(options_.timeout_s);
  while (result == ncclInProgress) {
    if (failed()) return;
    if (steady_clock::now() > until) {
      give_up(detail::concat(what, " did not begin within ", options_.timeout_s, " s"));
      return;
    }
    std::this_thread::sleep_for(kPoll);
    if (const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &result); asked != ncclSuccess)
      result = asked;
  }
  if (result != ncclSuccess) give_up(detail::concat(what, " failed: ", words(result)));
}

void NcclCommunicator::give_up(std::string reason) noexcept {
  try {
    // Where a connection of NCCL's breaks, the group's is about to.
    std::string lost;
    for (int i = 0; options_.group && i < 10 && (lost = options_.group->lost()).empty() && !failed(); ++i)
      std::this_thread::sleep_for(kPatience / 10);
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = detail::concat("NCCL, rank ", rank_, " of ", size_, " on ", device_.name(), ": ", reason,
                             lost.empty() ? "" : "; " + lost);
  } catch (...) {
  }
  failed_.store(true, std::memory_order_release);
  wake_.notify_all();
}

void NcclCommunicator::abort(const std::string& reason) noexcept { give_up(reason); }

void NcclCommunicator::check() {
  if (!failed()) [[likely]]
    return;
  const std::lock_guard lock(mutex_);
  fail(ErrorCode::io, std::source_location::current(), reason_);
}

void NcclCommunicator::abort_communicator() noexcept {
  const std::lock_guard lock(comm_mutex_);
  if (comm_) nccl_.comm_abort(comm_);
  comm_ = nullptr;
}

// The watcher's thread.
void NcclCommunicator::look() {
  try {
    backend_of(device_).bind_thread();
    std::unique_lock lock(mutex_);
    while (!ending_ && !failed()) {
      wake_.wait_for(lock, kLookEvery, [&] { return ending_ || failed(); });
      while (!queued_.empty() && cudaEventQuery(queued_.front().ended) == cudaSuccess) {
        spare_.push_back(queued_.front().ended);
        ended_ = queued_.front().number;
        queued_.pop_front();
      }
      std::string reason;
      if (!queued_.empty() && steady_clock::now() > queued_.front().until)
        reason = detail::concat(queued_.front().operation.text(), " (number ", queued_.front().number,
                                ") has not ended within ", options_.timeout_s, " s");
      const int64_t begun = begun_, ended = ended_;
      const int64_t waited_for = queued_.empty() ? 0 : queued_.front().number;
      const std::string operation = queued_.empty() ? std::string() : queued_.front().operation.text();
      lock.unlock();
      if (options_.group) {
        options_.group->progress(begun, ended);
        if (!reason.empty()) {
          const std::string behind = options_.group->behind(waited_for);
          reason += behind.empty() ? "; all ranks have begun it" : "; " + behind;
        } else if (!options_.group->lost().empty()) {
          reason = operation.empty() ? "nothing can be joined any more" : operation + " cannot end";
        }
      }
      ncclResult_t error = ncclSuccess;
      if (reason.empty() && comm_mutex_.try_lock()) {
        const std::lock_guard held(comm_mutex_, std::adopt_lock);
        if (comm_ && nccl_.comm_get_async_error(comm_, &error) == ncclSuccess && error != ncclSuccess &&
            error != ncclInProgress)
          reason = detail::concat(operation.empty() ? "a connection" : operation, " failed: ", words(error));
      }
      if (!reason.empty()) give_up(reason);
      lock.lock();
    }
  } catch (const std::exception& error) {
    give_up(detail::concat("looking after the communicator failed: ", error.what()));
  }
  if (failed()) abort_communicator();
}

}  // namespace lockstep::nccl
