#include "backends/mpi/mpi_communicator.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::mpi_engine {
namespace {

// A collective was abandoned: MPI_Finalize would wait for it for ever.
std::atomic<bool> abandoned{false};

void leave_world() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !abandoned) MPI_Finalize();
}

std::string words(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

void check_mpi(int code, const char* what) {
  require(code == MPI_SUCCESS, ErrorCode::io, std::source_location::current(), what, ": ", words(code));
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    case DType::int32: return MPI_INT32_T;
    case DType::int64: return MPI_INT64_T;
    case DType::uint8: return MPI_UINT8_T;
    case DType::bfloat16:
    case DType::float16:
    case DType::boolean: break;
  }
  fail(ErrorCode::dtype_mismatch, std::source_location::current(), "MPI has no sum of ", dtype);
}

// Through shared memory a message costs little, and what has arrived is summed out of the cache.
constexpr comm::MessageSizes kSizes{.one_round = 8 << 10, .message = 128 << 10};

// MPI counts in int: larger transfers are made in parts.
constexpr int64_t kMostElements = int64_t{1} << 28;

int as_int(int64_t value) {
  require(value <= std::numeric_limits<int>::max(), ErrorCode::unsupported, std::source_location::current(),
          "MPI counts to 2147483647, received ", value, "; set bucket_bytes to less");
  return static_cast<int>(value);
}

}  // namespace

void enter_world(int rank, int size) {
  static std::once_flag once;
  std::call_once(once, [] {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized) return;
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    require(provided >= MPI_THREAD_SERIALIZED, ErrorCode::unsupported, std::source_location::current(),
            "this MPI may be called by one thread only; Lockstep calls it from the thread that communicates");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit(leave_world);
  });
  int world_rank = 0, world_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  require(
      world_rank == rank && world_size == size, ErrorCode::unsupported, std::source_location::current(),
      "MPI knows this process as rank ", world_rank, " of ", world_size, ", the run as worker ", rank, " of ",
      size,
      ": it was not started by mpirun, or by an srun without MPI's support (srun --mpi=pmix); choose Gloo");
}

MpiCommunicator::MpiCommunicator(int rank, int size)
    : HostCommunicator("MPI", rank, size),
      direct_(*this, kSizes, rank, size),
      requests_(comm::DirectAllReduce::slots(size), MPI_REQUEST_NULL) {
  enter_world(rank, size);
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  for (auto* list : {&send_counts_, &send_offsets_, &receive_counts_, &receive_offsets_})
    list->resize(static_cast<size_t>(size));
}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !aborted() && !abandoned) MPI_Comm_free(&comm_);
}

void MpiCommunicator::wait_for(MPI_Request& request, const char* what) {
  constexpr int kSpins = 2000;
  constexpr int kYields = 20000;
  int done = 0;
  for (int polls = 0;; ++polls) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done) return;
    if (aborted()) {
      abandoned = true;
      check();
    }
    // Whoever is waited for may need this core.
    if (polls > kYields)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else if (polls > kSpins)
      sched_yield();
  }
}

template <class Begin>
void MpiCommunicator::complete(const char* what, Begin begin) {
  run(what, [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(begin(&request), what);
    wait_for(request, what);
  });
}

void MpiCommunicator::begin_send(size_t slot, int to, const void* data, size_t bytes) {
  check_mpi(MPI_Isend(data, as_int(static_cast<int64_t>(bytes)), MPI_BYTE, to, 0, comm_, &requests_[slot]),
            "MPI_Isend");
}

void MpiCommunicator::begin_receive(size_t slot, int from, void* data, size_t bytes) {
  check_mpi(MPI_Irecv(data, as_int(static_cast<int64_t>(bytes)), MPI_BYTE, from, 0, comm_, &requests_[slot]),
            "MPI_Irecv");
}

void MpiCommunicator::finish(size_t slot) { wait_for(requests_[slot], "a message"); }

void MpiCommunicator::all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream&) {
  if (count == 0) return;
  if (size() > 1 && size() <= comm::DirectAllReduce::kMostRanks) {
    if (source != target) std::memcpy(target, source, static_cast<size_t>(count) * size_of(dtype));
    run("all_reduce_sum", [&] { direct_.sum(target, count, dtype); });
    return;
  }
  const MPI_Datatype type = type_of(dtype);
  for (int64_t at = 0; at < count; at += kMostElements) {
    const int part = as_int(std::min(kMostElements, count - at));
    const size_t offset = static_cast<size_t>(at) * size_of(dtype);
    const void* const from = source == target ? MPI_IN_PLACE : static_cast<const char*>(source) + offset;
    complete("all_reduce_sum", [&](MPI_Request* request) {
      return MPI_Iallreduce(from, static_cast<char*>(target) + offset, part, type, MPI_SUM, comm_, request);
    });
  }
}

void MpiCommunicator::broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                                Stream&) {
  const int64_t bytes = count * static_cast<int64_t>(size_of(dtype));
  if (rank() == root && source != target) std::memcpy(target, source, static_cast<size_t>(bytes));
  for (int64_t at = 0; at < bytes; at += kMostElements) {
    const int part = as_int(std::min(kMostElements, bytes - at));
    complete("broadcast", [&](MPI_Request* request) {
      return MPI_Ibcast(static_cast<char*>(target) + at, part, MPI_BYTE, root, comm_, request);
    });
  }
}

void MpiCommunicator::all_gather(const void* source, void* target, int64_t count, DType dtype, Stream&) {
  const int bytes = as_int(count * static_cast<int64_t>(size_of(dtype)));
  complete("all_gather", [&](MPI_Request* request) {
    return MPI_Iallgather(source, bytes, MPI_BYTE, target, bytes, MPI_BYTE, comm_, request);
  });
}

void MpiCommunicator::all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                                 std::span<const int64_t> receive_bytes, Stream&) {
  int64_t sent = 0, received = 0;
  for (size_t r = 0; r < send_counts_.size(); ++r) {
    send_counts_[r] = as_int(send_bytes[r]);
    receive_counts_[r] = as_int(receive_bytes[r]);
    send_offsets_[r] = as_int(sent);
    receive_offsets_[r] = as_int(received);
    sent += send_bytes[r];
    received += receive_bytes[r];
  }
  complete("all_to_all", [&](MPI_Request* request) {
    return MPI_Ialltoallv(source, send_counts_.data(), send_offsets_.data(), MPI_BYTE, target,
                          receive_counts_.data(), receive_offsets_.data(), MPI_BYTE, comm_, request);
  });
}

void MpiCommunicator::barrier(Stream&) {
  complete("barrier", [&](MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
}

}  // namespace lockstep::mpi_engine
