#include "comm/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/environment.h"
#include "comm/addition.h"
#include "comm/connection.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

// What one process writes at a time: two processes' halves stay in a core's own cache. Where processes share
// cores every wait is a change of who runs, and fewer blocks are better, as far as memory allows.
constexpr int64_t kBlock = 128 << 10;
constexpr int64_t kCrowdedBlock = 1 << 20;
constexpr int64_t kMostMemory = 32 << 20;
constexpr int64_t kRooms = 4;  // of a process: two halves for what it writes, and two for its sums

int64_t block_bytes(int size, bool crowded) {
  return crowded ? std::clamp(kMostMemory / (kRooms * size), kBlock, kCrowdedBlock) / 4096 * 4096 : kBlock;
}

// Less than this goes to everybody whole: a second round takes longer than to read it all.
constexpr int64_t kOneRound = 8 << 10;
constexpr int64_t kLine = 64;

// Until a wait sleeps: some hundred microseconds on a core of its own, and as many more while others may have
// it.
constexpr int kSpins = 4000;
constexpr int kYields = 500;
// A sleep is ended by who counts; the limit is for what nobody counts any more.
constexpr timespec kSleep{.tv_sec = 0, .tv_nsec = 20'000'000};

enum class Kind : uint64_t { all_reduce = 1, all_gather, all_to_all };

uint64_t call_of(Kind kind, int64_t count, uint64_t width) {
  return static_cast<uint64_t>(count) << 8 | width << 3 | static_cast<uint64_t>(kind);
}

void sleep_at(std::atomic<uint32_t>& atom, uint32_t value) {
  syscall(SYS_futex, &atom, FUTEX_WAIT, value, &kSleep, nullptr, 0);
}
void wake_at(std::atomic<uint32_t>& atom) {
  syscall(SYS_futex, &atom, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void pause_here() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line;
}

// The same for processes that can open each other's files, and whose network is the same: a machine of a
// test, or a container, with a network of its own is a machine of its own.
std::string machine() {
  std::error_code ignored;
  std::string text = first_line("/proc/sys/kernel/random/boot_id");
  for (const char* name : {"net", "pid", "user"})
    text += " " + std::filesystem::read_symlink(std::string("/proc/self/ns/") + name, ignored).string();
  return text + " " + std::to_string(geteuid());
}

std::string cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

// Fewer cores in all than processes. Where one does not know its own, nobody does.
bool are_crowded(const std::vector<std::string>& cores_of_all) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const std::string& cores : cores_of_all) {
    cpu_set_t set;
    if (cores.size() != sizeof set) return false;
    std::memcpy(&set, cores.data(), sizeof set);
    CPU_OR(&all, &all, &set);
  }
  return CPU_COUNT(&all) < static_cast<int>(cores_of_all.size());
}

}  // namespace

// Of a process, written by it alone.
struct alignas(2 * kLine) SharedMemory::Header {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> interrupted;
  uint64_t calls[2];   // by the half
  uint64_t blocks[2];  // of an all_to_all: so many this process needs
  // Others that sleep until it counts.
  alignas(kLine) std::atomic<uint32_t> sleepers;
};

namespace {

// By which processes know that they have mapped the same.
struct alignas(2 * kLine) Mark {
  uint64_t number;
};

template <class Header>
size_t bytes_of(int size, bool crowded) {
  return sizeof(Mark) + static_cast<size_t>(size) *
                            (sizeof(Header) + static_cast<size_t>(kRooms * block_bytes(size, crowded)));
}

}  // namespace

int SharedMemory::make_file(int size, bool crowded) {
  const int file = memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  require(file >= 0, ErrorCode::io, std::source_location::current(), "memfd_create: ", std::strerror(errno));
  // Taken now: memory that is missing later would end the process that writes to it.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes_of<Header>(size, crowded)));
  if (error == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return file;
  close(file);
  fail(ErrorCode::io, std::source_location::current(), "shared memory of ", bytes_of<Header>(size, crowded),
       " bytes: ", std::strerror(error != 0 ? error : errno));
}

SharedMemory::SharedMemory(int file, int rank, int size, bool crowded)
    : rank_(rank), size_(size), crowded_(crowded), block_bytes_(block_bytes(size, crowded)) {
  void* const mapped =
      mmap(nullptr, bytes_of<Header>(size, crowded), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  require(mapped != MAP_FAILED, ErrorCode::io, std::source_location::current(),
          "shared memory cannot be mapped: ", std::strerror(errno));
  memory_ = static_cast<char*>(mapped);
}

SharedMemory::~SharedMemory() { munmap(memory_, bytes_of<Header>(size_, crowded_)); }

std::unique_ptr<SharedMemory> SharedMemory::join(Group& group, double timeout_s) {
  const int rank = group.rank(), size = group.size();
  const bool wanted = env::read_bool("LOCKSTEP_SHARED_MEMORY", true);
  std::vector<std::string> all_cores;
  bool together = size > 1 && size <= kMostRanks;
  const std::string own = wanted ? machine() : std::string();
  for (const std::string& one : group.gather(
           "which machines they are on", MessageWriter().put_text(own).put_text(cores()).take(), timeout_s)) {
    MessageReader reader(one);
    const std::string theirs = reader.get_text();
    together = together && !theirs.empty() && theirs == own;
    all_cores.push_back(reader.get_text());
  }
  // All have heard the same of all but themselves, and `own` is among what the others have heard.
  if (!together) return nullptr;

  const bool crowded = are_crowded(all_cores);
  int file = -1;
  std::string place;
  std::unique_ptr<SharedMemory> memory;
  const auto mark_of = [](const SharedMemory& of) { return reinterpret_cast<Mark*>(of.memory_); };
  try {
    if (rank == 0) {
      file = make_file(size, crowded);
      memory = std::make_unique<SharedMemory>(file, rank, size, crowded);
      std::random_device random;
      mark_of(*memory)->number = uint64_t{random()} << 32 | random();
      place = MessageWriter()
                  .put_text("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file))
                  .put(mark_of(*memory)->number)
                  .take();
    }
  } catch (const Error& error) {
    log(LogLevel::info, "workers do not share memory: ", error.message());
  }
  place = group.share(place);
  if (rank != 0 && !place.empty()) try {
      MessageReader reader(place);
      const std::string path = reader.get_text();
      const auto number = reader.get<uint64_t>();
      file = open(path.c_str(), O_RDWR | O_CLOEXEC);
      require(file >= 0, ErrorCode::io, std::source_location::current(), path, ": ", std::strerror(errno));
      memory = std::make_unique<SharedMemory>(file, rank, size, crowded);
      require(mark_of(*memory)->number == number, ErrorCode::io, std::source_location::current(), path,
              " is not what rank 0 has made");
    } catch (const Error& error) {
      log(LogLevel::info, "workers do not share memory: ", error.message());
      memory.reset();
    }
  bool shared = true;
  for (const std::string& one :
       group.gather("whether they share memory", std::string(memory ? "yes" : "no"), timeout_s))
    shared = shared && one == "yes";
  if (file >= 0) close(file);
  if (!shared) memory.reset();
  return memory;
}

// --- where things are --------------------------------------------------------------------------------------

SharedMemory::Header& SharedMemory::header(int rank) const {
  return reinterpret_cast<Header*>(memory_ + sizeof(Mark))[rank];
}

char* SharedMemory::written(int rank, uint64_t block) const {
  char* const rooms = memory_ + sizeof(Mark) + static_cast<size_t>(size_) * sizeof(Header);
  return rooms + (static_cast<int64_t>(rank) * kRooms + static_cast<int64_t>(block % 2)) * block_bytes_;
}

char* SharedMemory::sums(int rank, uint64_t block) const { return written(rank, block) + 2 * block_bytes_; }

// --- counting and waiting ----------------------------------------------------------------------------------

SharedMemory::Count SharedMemory::publish(uint64_t block) {
  header(rank_).calls[block % 2] = call_;
  return publish();
}

SharedMemory::Count SharedMemory::publish() {
  Header& own = header(rank_);
  // Who goes to sleep says so first and looks again then: one of the two sees the other.
  own.count.store(++count_, std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_seq_cst) > 0) wake_at(own.count);
  return count_;
}

void SharedMemory::wait(Count count, uint64_t block) {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    wait_for(r, count);
    require(header(r).calls[block % 2] == call_, ErrorCode::io, std::source_location::current(), "rank ", r,
            " is at another collective, or at one of another size");
  }
}

void SharedMemory::wait_for(int rank, Count count) {
  Header& other = header(rank);
  const auto reached = [&](uint32_t seen) { return static_cast<int32_t>(seen - count) >= 0; };
  for (int waits = crowded_ ? kSpins : 0; !reached(other.count.load(std::memory_order_acquire)); ++waits) {
    if (interrupted_.load(std::memory_order_relaxed)) check_interrupted();
    if (waits < kSpins) {
      pause_here();
    } else if (waits < kSpins + kYields) {
      sched_yield();
    } else {
      check_interrupted();
      other.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t seen = other.count.load(std::memory_order_seq_cst);
      if (!reached(seen)) sleep_at(other.count, seen);
      other.sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

void SharedMemory::check_interrupted() const {
  require(!interrupted_, ErrorCode::io, std::source_location::current(), "the wait was ended");
  for (int r = 0; r < size_; ++r)
    require(header(r).interrupted.load(std::memory_order_acquire) == 0, ErrorCode::io,
            std::source_location::current(), "rank ", r, " has given up");
}

void SharedMemory::interrupt() noexcept {
  interrupted_ = true;
  header(rank_).interrupted.store(1, std::memory_order_release);
  for (int r = 0; r < size_; ++r) wake_at(header(r).count);
}

// --- collectives -------------------------------------------------------------------------------------------
//
// Why a half of the room may be written again: block b has the half of block b - 2. In one round, whoever has
// ended block b - 1 has seen all others publish that, which they do after they have read block b - 2. In two
// rounds, block b is published when b - 1 has been seen of all, and b - 2 has ended: all have published their
// sums of b - 2, for which they had read all of it. The sums of b are written when b has been seen of all,
// and they published that when they had read the sums of b - 2.

void SharedMemory::all_reduce_sum(void* data, int64_t count, DType dtype) {
  const auto width = static_cast<int64_t>(size_of(dtype));
  call_ = call_of(Kind::all_reduce, count, static_cast<uint64_t>(width));
  if (count * width * (size_ - 1) <= kOneRound)
    sum_in_one_round(static_cast<char*>(data), count, dtype);
  else
    sum_in_two_rounds(static_cast<char*>(data), count, dtype);
}

void SharedMemory::add_up(char* target, const char* data, int64_t first, int64_t last, DType dtype,
                          uint64_t block) const {
  const auto width = static_cast<int64_t>(size_of(dtype));
  // The own addend is not written where nobody else reads it.
  const auto addend = [&](int r) { return (r == rank_ ? data : written(r, block)) + first * width; };
  add(target, addend(0), addend(1), last - first, dtype);
  for (int r = 2; r < size_; ++r) add(target, target, addend(r), last - first, dtype);
}

void SharedMemory::sum_in_one_round(char* data, int64_t count, DType dtype) {
  const uint64_t block = block_++;
  char* const own = written(rank_, block);
  std::memcpy(own, data, static_cast<size_t>(count) * size_of(dtype));
  wait(publish(block), block);
  // Of two addends the own one is read where its sum goes; of more the first sum overwrites it.
  add_up(data, size_ == 2 ? data : own, 0, count, dtype, block);
}

void SharedMemory::sum_in_two_rounds(char* data, int64_t count, DType dtype) {
  const auto width = static_cast<int64_t>(size_of(dtype));
  const int64_t step = block_bytes_ / width;
  const uint64_t first_block = block_;
  const auto blocks = static_cast<uint64_t>((count + step - 1) / step);
  block_ += blocks;
  const auto begin_of = [&](uint64_t n) { return data + static_cast<int64_t>(n) * step * width; };
  const auto size_of_block = [&](uint64_t n) {
    return std::min(step, count - static_cast<int64_t>(n) * step);
  };
  // Of a block: where the share of a process begins.
  const auto share = [&](uint64_t n, int r) {
    const int64_t line = kLine / width, lines = (size_of_block(n) + line - 1) / line;
    return std::min(size_of_block(n), (lines * r + size_ - 1) / size_ * line);
  };
  const auto write = [&](uint64_t n) {
    const uint64_t block = first_block + n;
    const int64_t own = share(n, rank_) * width, behind = share(n, rank_ + 1) * width;
    char* const target = written(rank_, block);
    std::memcpy(target, begin_of(n), static_cast<size_t>(own));
    std::memcpy(target + behind, begin_of(n) + behind,
                static_cast<size_t>(size_of_block(n) * width - behind));
    return publish(block);
  };

  Count next = write(0);
  for (uint64_t n = 0; n < blocks; ++n) {
    const uint64_t block = first_block + n;
    wait(next, block);
    // Read by the others while this process sums.
    if (n + 1 < blocks) next = write(n + 1);
    const int64_t own = share(n, rank_), behind = share(n, rank_ + 1);
    char* const sum = sums(rank_, block) + own * width;
    add_up(sum, begin_of(n), own, behind, dtype, block);
    const Count added = publish();
    std::memcpy(begin_of(n) + own * width, sum, static_cast<size_t>((behind - own) * width));
    // Each begins with another.
    for (int distance = 1; distance < size_; ++distance) {
      const int r = (rank_ + distance) % size_;
      wait_for(r, added);
      const int64_t from = share(n, r) * width, to = share(n, r + 1) * width;
      std::memcpy(begin_of(n) + from, sums(r, block) + from, static_cast<size_t>(to - from));
    }
  }
}

void SharedMemory::all_gather(const void* source, void* target, int64_t bytes) {
  call_ = call_of(Kind::all_gather, bytes, 1);
  for (int64_t at = 0; at < bytes; at += block_bytes_) {
    const uint64_t block = block_++;
    const auto part = static_cast<size_t>(std::min(block_bytes_, bytes - at));
    std::memcpy(written(rank_, block), static_cast<const char*>(source) + at, part);
    wait(publish(block), block);
    for (int r = 0; r < size_; ++r)
      std::memcpy(static_cast<char*>(target) + r * bytes + at, written(r, block), part);
  }
}

void SharedMemory::all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                              std::span<const int64_t> receive_bytes) {
  call_ = call_of(Kind::all_to_all, 0, 1);
  const int64_t room = block_bytes_ / size_ / kLine * kLine;  // for each of the others
  const int64_t most = *std::max_element(send_bytes.begin(), send_bytes.end());
  auto blocks = static_cast<uint64_t>(std::max<int64_t>(1, (most + room - 1) / room));
  const auto own_blocks = blocks;
  for (uint64_t n = 0; n < blocks; ++n) {
    const uint64_t block = block_++;
    const int64_t at = static_cast<int64_t>(n) * room;
    const auto part = [&](int64_t bytes) {
      return static_cast<size_t>(std::clamp<int64_t>(bytes - at, 0, room));
    };
    const char* from = static_cast<const char*>(source);
    const char* own = from;
    for (int r = 0; r < size_; ++r) {
      const int64_t bytes = send_bytes[static_cast<size_t>(r)];
      if (r == rank_)
        own = from + at;
      else if (part(bytes) > 0)
        std::memcpy(written(rank_, block) + r * room, from + at, part(bytes));
      from += bytes;
    }
    header(rank_).blocks[block % 2] = own_blocks;
    wait(publish(block), block);
    char* to = static_cast<char*>(target);
    for (int r = 0; r < size_; ++r) {
      blocks = std::max(blocks, header(r).blocks[block % 2]);
      const int64_t bytes = receive_bytes[static_cast<size_t>(r)];
      if (part(bytes) > 0)
        std::memcpy(to + at, r == rank_ ? own : written(r, block) + rank_ * room, part(bytes));
      to += bytes;
    }
  }
}

}  // namespace lockstep::comm
