#include "backends/gloo/gloo_communicator.h"

#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/transport/tcp/device.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "comm/addition.h"
#include "comm/connection.h"
#include "lockstep/base/error.h"

namespace lockstep::gloo_engine {
namespace {

using comm::MessageReader;
using comm::MessageWriter;

// What the ranks tell each other before they are connected. Every rank sets the same kinds of keys in the
// same order, so that each set() is a gathering of the group.
class GroupStore final : public ::gloo::rendezvous::Store {
 public:
  GroupStore(comm::Group& group, double timeout_s) : group_(group), timeout_s_(timeout_s) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string own =
        MessageWriter().put_text(key).put_text(std::string(data.begin(), data.end())).take();
    for (const std::string& part : group_.gather("the addresses of Gloo", own, timeout_s_)) {
      MessageReader reader(part);
      const std::string name = reader.get_text(), value = reader.get_text();
      values_[name].assign(value.begin(), value.end());
    }
  }
  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    require(found != values_.end(), ErrorCode::internal, std::source_location::current(), "Gloo asks for \"",
            key, "\", which no rank has told");
    return found->second;
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  comm::Group& group_;
  const double timeout_s_;
  std::map<std::string, std::vector<char>> values_;
};

// The connected sockets of this process.
std::vector<int> connected_sockets() {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6))
      sockets.push_back(fd);
  }
  return sockets;
}

// As Gloo calls it.
template <class T>
void add(void* sum, const void* a, const void* b, size_t count) {
  comm::add(static_cast<T*>(sum), static_cast<const T*>(a), static_cast<const T*>(b),
            static_cast<int64_t>(count));
}

// A message wakes up Gloo's thread, and that one the caller: few and large ones are best.
constexpr comm::MessageSizes kSizes{.one_round = 512 << 10, .message = 4 << 20};

constexpr uint64_t kMessages = uint64_t{0x80} << 56;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

char* bytes_of(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }

}  // namespace

GlooCommunicator::GlooCommunicator(int rank, int size, const comm::CommunicatorOptions& options)
    : HostCommunicator("Gloo", rank, size),
      direct_(*this, kSizes, rank, size),
      messages_(comm::DirectAllReduce::slots(size)),
      sent_to_(static_cast<size_t>(size)),
      received_from_(static_cast<size_t>(size)) {
  require(options.group != nullptr, ErrorCode::invalid_argument, std::source_location::current(),
          "Gloo joins the processes of a group, and there is none");
  context_ = std::make_shared<AbortableContext>(rank, size);
  // Until all are connected nobody can end a wait for one that dies meanwhile, but Gloo's own limit.
  context_->setTimeout(milliseconds(options.timeout_s));
  if (size == 1) return;
  run("connecting", [&] {
    ::gloo::transport::tcp::attr address;
    address.hostname = options.group->own_host();
    auto device = ::gloo::transport::tcp::CreateDevice(address);
    GroupStore store(*options.group, options.timeout_s);
    const std::vector<int> before = connected_sockets();
    context_->connectFullMesh(store, device);
    context_->watch();
    for (const int fd : connected_sockets())
      if (std::find(before.begin(), before.end(), fd) == before.end())
        sockets_.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  });
  // From here on whoever looks after the run ends what does not end, and knows who is missing, also in a
  // process that was stopped while the others closed their connections: Gloo's own limit is behind that.
  context_->setTimeout(milliseconds(options.timeout_s + 5));
}

GlooCommunicator::~GlooCommunicator() {
  messages_.clear();
  context_.reset();
  for (const int fd : sockets_) ::close(fd);
}

void GlooCommunicator::interrupt() noexcept {
  for (const int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
  context_->abort();
}

// Gloo tells messages between two ranks apart by numbers: theirs are beside those of its own collectives.
void GlooCommunicator::begin_send(size_t slot, int to, const void* data, size_t bytes) {
  Message& message = messages_[slot];
  message = {.buffer = context_->createUnboundBuffer(const_cast<void*>(data), bytes), .sent = true};
  message.buffer->send(to, kMessages | sent_to_[static_cast<size_t>(to)]++);
}

void GlooCommunicator::begin_receive(size_t slot, int from, void* data, size_t bytes) {
  Message& message = messages_[slot];
  message = {.buffer = context_->createUnboundBuffer(data, bytes), .sent = false};
  message.buffer->recv(from, kMessages | received_from_[static_cast<size_t>(from)]++);
}

void GlooCommunicator::finish(size_t slot) {
  Message& message = messages_[slot];
  const bool done = message.sent ? message.buffer->waitSend(context_->getTimeout())
                                 : message.buffer->waitRecv(context_->getTimeout());
  require(done, ErrorCode::io, std::source_location::current(), "the wait was ended");
  message.buffer.reset();
}

void GlooCommunicator::all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream&) {
  if (count == 0) return;
  if (size() == 1) {
    if (source != target) std::memcpy(target, source, static_cast<size_t>(count) * size_of(dtype));
    return;
  }
  if (size() <= comm::DirectAllReduce::kMostRanks) {
    if (source != target) std::memcpy(target, source, static_cast<size_t>(count) * size_of(dtype));
    run("all_reduce_sum", [&] {
      try {
        direct_.sum(target, count, dtype);
      } catch (...) {
        // Gloo's thread does not touch the memory of a buffer that is gone.
        for (Message& message : messages_) message.buffer.reset();
        throw;
      }
    });
    return;
  }
  dispatch(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      fail(ErrorCode::dtype_mismatch, std::source_location::current(),
           "all_reduce_sum: booleans have no sum; cast() them first");
    } else {
      run("all_reduce_sum", [&] {
        ::gloo::AllreduceOptions options(context_);
        if (source != target)
          options.setInput(static_cast<T*>(const_cast<void*>(source)), static_cast<size_t>(count));
        options.setOutput(static_cast<T*>(target), static_cast<size_t>(count));
        options.setReduceFunction(&add<T>);
        options.setTag(next_tag());
        ::gloo::allreduce(options);
      });
    }
  });
}

void GlooCommunicator::broadcast(const void* source, void* target, int64_t count, DType dtype, int root,
                                 Stream&) {
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  if (rank() == root && source != target) std::memcpy(target, source, bytes);
  if (size() == 1 || bytes == 0) return;
  run("broadcast", [&] {
    ::gloo::BroadcastOptions options(context_);
    options.setOutput(static_cast<char*>(target), bytes);
    options.setRoot(root);
    options.setTag(next_tag());
    ::gloo::broadcast(options);
  });
}

void GlooCommunicator::all_gather(const void* source, void* target, int64_t count, DType dtype, Stream&) {
  const size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  if (bytes == 0) return;
  if (size() == 1) {
    if (source != target) std::memcpy(target, source, bytes);
    return;
  }
  run("all_gather", [&] {
    ::gloo::AllgatherOptions options(context_);
    options.setInput(bytes_of(source), bytes);
    options.setOutput(static_cast<char*>(target), bytes * static_cast<size_t>(size()));
    options.setTag(next_tag());
    ::gloo::allgather(options);
  });
}

void GlooCommunicator::all_to_all(const void* source, std::span<const int64_t> send_bytes, void* target,
                                  std::span<const int64_t> receive_bytes, Stream&) {
  if (size() == 1) {
    std::memcpy(target, source, static_cast<size_t>(send_bytes[0]));
    return;
  }
  run("all_to_all", [&] {
    ::gloo::AlltoallvOptions options(context_);
    options.setInput(bytes_of(source), {send_bytes.begin(), send_bytes.end()});
    options.setOutput(static_cast<char*>(target), {receive_bytes.begin(), receive_bytes.end()});
    options.setTag(next_tag());
    ::gloo::alltoallv(options);
  });
}

void GlooCommunicator::barrier(Stream&) {
  if (size() == 1) return;
  run("barrier", [&] {
    ::gloo::BarrierOptions options(context_);
    options.setTag(next_tag());
    ::gloo::barrier(options);
  });
}

}  // namespace lockstep::gloo_engine
