// What the executor says of the order between streams is enough: devices whose queues are worked off in any
// order that keeps it, here on the CPU, give the bits of devices that do everything at once.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <mutex>
#include <random>

#include "device/host_memory_device_test.h"
#include "devices.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "models/models.h"

namespace lockstep {
namespace {

class Graph;
class QueueEvent;

// What is queued: a graph that is under way, or one event that passes or is waited for.
struct Item {
  Graph* graph = nullptr;
  std::vector<bool> done = {};             // of the graph's launches
  std::map<QueueEvent*, int> passes = {};  // and as what
  std::map<const QueueEvent*, int> waits = {};
};

struct Queue {
  bool beside = false;  // a side stream
  std::deque<Item> items;
};

// Thrown by a launch that would have to wait.
struct NotYet {};

// All queues. Whoever has to wait works at any of them.
struct World {
  std::recursive_mutex mutex;
  std::mt19937 random{11};
  std::vector<std::unique_ptr<Queue>> queues;
  Item* running = nullptr;  // whose launches are being made
  int overlapped = 0;       // launches of a side stream while a device's own were under way

  Queue& add(bool beside) {
    const std::lock_guard lock(mutex);
    queues.push_back(std::make_unique<Queue>());
    queues.back()->beside = beside;
    return *queues.back();
  }
  bool step(Queue& queue);  // false: there is nothing that can be done
  void drain(const Queue& queue) {
    work_until([&] { return queue.items.empty(); });
  }
  void work_until(const auto& done) {
    const std::lock_guard lock(mutex);
    for (int misses = 0; !done();) {
      misses = step(*queues[random() % queues.size()]) ? 0 : misses + 1;
      require(misses < 100'000, ErrorCode::internal, std::source_location::current(),
              "the queues wait for each other");
    }
  }
  void drain() {
    const std::lock_guard lock(mutex);
    for (const auto& queue : queues) drain(*queue);
  }
};

World& world() {
  static auto* instance = new World;
  return *instance;
}

// All that comes to it happens at once when the queue is empty; what is captured and events are queued.
// Without a queue: where the launches of the graph that is under way are made.
class QueueStream final : public HostStream {
 public:
  QueueStream(DeviceBackend& device, Queue* queue) : HostStream(device, true), queue_(queue) {}
  ~QueueStream() override { world().drain(); }

  Queue* queue() const { return queue_; }
  void drain() const {
    if (queue_) world().drain(*queue_);
  }
  void copy(void* target, const void* source, size_t bytes) override {
    drain();
    HostStream::copy(target, source, bytes);
  }
  void fill(void* target, uint64_t pattern, size_t width, size_t count) override {
    drain();
    HostStream::fill(target, pattern, width, count);
  }
  void read(void* host, const void* source, size_t bytes) override {
    drain();
    HostStream::read(host, source, bytes);
  }
  void synchronize() override { world().drain(); }

 private:
  Queue* const queue_;
};

Queue* queue_of(const Stream& stream) { return static_cast<const QueueStream&>(stream).queue(); }

class QueueEvent final : public Event {
 public:
  void wait(Stream& stream) const override {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    if (Queue* const queue = queue_of(stream))
      queue->items.push_back({.waits = {{this, queued_}}});
    else if (!reached(w.running->waits.try_emplace(this, queued_).first->second))
      throw NotYet{};
  }
  void synchronize() const override {
    world().work_until([&] { return reached(queued_); });
  }
  int64_t ns_since(const Event&) const override { return 0; }

  int queue() { return ++queued_; }
  int queued() const { return queued_; }
  void pass(int time) { reached_ = std::max(reached_, time); }
  bool reached(int time) const { return reached_ >= time; }

 private:
  void queue_record(Stream& stream) override {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    if (Queue* const queue = queue_of(stream)) {
      queue->items.push_back({.passes = {{this, ++queued_}}});
      return;
    }
    const auto [entry, unknown] = w.running->passes.try_emplace(this, queued_ + 1);
    if (unknown) ++queued_;
    pass(entry->second);
  }

  int queued_ = 0, reached_ = 0;  // times
};

class Graph final : public CapturedGraph {
 public:
  Graph(std::span<const CapturedLaunch> launches, DeviceBackend& device)
      : launches_(launches.begin(), launches.end()), making_(device, nullptr) {}
  ~Graph() override { world().drain(); }

  void replay(Stream& stream) override {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    Queue& queue = *queue_of(stream);
    Item item{.graph = this, .done = std::vector<bool>(launches_.size())};
    for (QueueEvent* event : passes_) item.passes[event] = event->queue();
    for (const QueueEvent* event : waits_) item.waits[event] = event->queued();
    queue.items.push_back(std::move(item));
    // When it has run once, it is known what it has to do with events.
    if (!std::exchange(known_, true)) w.drain(queue);
  }

  bool step(Item& item) {
    World& w = world();
    std::vector<size_t> ready;
    for (size_t i = 0; i < launches_.size(); ++i) {
      bool waits = item.done[i];
      for (const size_t earlier : launches_[i].after) waits = waits || !item.done[earlier];
      if (!waits) ready.push_back(i);
    }
    const size_t chosen = ready[w.random() % ready.size()];
    w.running = &item;
    try {
      launches_[chosen].launch(making_);
      item.done[chosen] = true;
    } catch (const NotYet&) {
    }
    w.running = nullptr;
    return item.done[chosen];
  }
  void ended(const Item& item) {
    passes_.clear();
    waits_.clear();
    for (const auto& [event, time] : item.passes) passes_.push_back(event);
    for (const auto& [event, time] : item.waits) waits_.push_back(event);
  }

 private:
  std::vector<CapturedLaunch> launches_;
  QueueStream making_;
  bool known_ = false;
  std::vector<QueueEvent*> passes_;
  std::vector<const QueueEvent*> waits_;
};

bool World::step(Queue& queue) {
  if (queue.items.empty()) return false;
  Item& item = queue.items.front();
  if (!item.graph) {
    for (const auto& [event, time] : item.waits)
      if (!event->reached(time)) return false;
    for (const auto& [event, time] : item.passes) event->pass(time);
  } else if (std::find(item.done.begin(), item.done.end(), false) != item.done.end()) {
    if (!item.graph->step(item)) return false;
    for (const auto& other : queues)
      if (queue.beside && !other->beside && !other->items.empty() && other->items.front().graph) ++overlapped;
    return true;
  } else {
    item.graph->ended(item);
  }
  queue.items.pop_front();
  return true;
}

// A CPU whose captured launches are queued.
class QueueingDevice final : public testing::HostMemoryDevice {
 public:
  QueueingDevice(int index, bool reads_others)
      : HostMemoryDevice(DeviceKind::cpu, index, 1), reads_(reads_others) {}

  int physical() const override { return index(); }
  bool reads(const DeviceBackend& other) const override { return reads_ || &other == this; }
  void copy_from_host(void* target, const void* source, size_t bytes) override {
    world().drain();
    HostMemoryDevice::copy_from_host(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, size_t bytes) override {
    world().drain();
    HostMemoryDevice::copy_to_host(target, source, bytes);
  }

  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override {
    return std::make_unique<QueueStream>(*this, &world().add(true));
  }
  std::unique_ptr<Event> new_event(Event::Timed) override { return std::make_unique<QueueEvent>(); }
  // Kernels follow, which happen at once: behind what is queued, or as part of the graph that is under way.
  void bind_thread() const override {
    const std::lock_guard lock(world().mutex);
    if (!world().running) stream_.drain();
  }
  bool captures_graphs() const override { return true; }
  std::unique_ptr<CapturedGraph> capture_graph(std::span<const CapturedLaunch> launches) override {
    require(!std::exchange(fails, false), ErrorCode::internal, std::source_location::current(),
            "nothing can be captured today");
    return std::make_unique<Graph>(launches, *this);
  }

  bool fails = false;  // the next capture

 private:
  QueueStream stream_{*this, &world().add(false)};
  const bool reads_;
};

std::vector<Device*> queueing_devices(int count, bool read_each_other = true) {
  static auto* all = new std::map<bool, std::vector<std::unique_ptr<Device>>>;
  auto& these = (*all)[read_each_other];
  while (static_cast<int>(these.size()) < count)
    these.push_back(std::make_unique<Device>(std::make_unique<QueueingDevice>(
        (read_each_other ? 300 : 400) + static_cast<int>(these.size()), read_each_other)));
  std::vector<Device*> devices;
  for (int i = 0; i < count; ++i) devices.push_back(these[static_cast<size_t>(i)].get());
  return devices;
}

struct Trained {
  std::vector<std::vector<float>> values;
  bool operator==(const Trained&) const = default;
};

using MakeModel = std::unique_ptr<models::Model> (*)();

Trained train(MakeModel make, const Shape& input, const std::vector<Device*>& devices, int64_t bucket_bytes,
              int steps) {
  const DeviceScope scope(*devices[0]);
  const auto model = make();
  auto optimizer = keras::optimizers::Adam();
  FunctionOptions options;
  options.replicas = {.devices = devices, .reproducible = true, .bucket_bytes = bucket_bytes};
  auto step = function(
      [&](const Tensor& x, const Tensor& y) { return models::train_step(*model, optimizer, x, y); }, options);
  const Tensor x = models::random_inputs(input, 1), y = models::random_labels(input[0], 10, 2);
  Trained trained;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss = step(x, y);
    // Some steps are left in the queues while the next ones come.
    if (i % 3 != 2) continue;
    devices[0]->synchronize();
    trained.values.push_back(loss.to_vector<float>());
  }
  devices[0]->synchronize();
  for (const Variable& variable : model->variables())
    trained.values.push_back(variable.value().to_vector<float>());
  return trained;
}

std::unique_ptr<models::Model> mlp() { return std::make_unique<models::Mlp>(7, 0, DType::float32, 30, 16); }
std::unique_ptr<models::Model> conv_net() {
  return std::make_unique<models::ConvNet>(7, true, DType::float32, 14, 4, 16);
}

constexpr int kSteps = 24;

TEST(OverlappedSums, HaveTheSameBitsInAnyOrderAndInBucketsOfAnySize) {
  const Trained expected = train(mlp, {16, 30}, first_devices(1), -1, kSteps);
  for (const int count : {1, 2, 3, 4})
    for (const int64_t bytes : {0, 64, 1024, -1}) {
      SCOPED_TRACE(::testing::Message() << count << " devices, buckets of " << bytes << " bytes");
      world().overlapped = 0;
      EXPECT_EQ(train(mlp, {16, 30}, queueing_devices(count), bytes, kSteps), expected);
      if (bytes == 64) {
        EXPECT_GT(world().overlapped, 0) << "no sum began before the backward pass had ended";
      }
    }
}

// Statistics are summed in the midst of the forward and the backward pass, and read by the replicas
// themselves.
TEST(OverlappedSums, OfManyPhasesHaveTheSameBits) {
  const Shape input{8, 14, 14, 1};
  const Trained expected = train(conv_net, input, first_devices(1), -1, kSteps);
  for (const int count : {2, 4})
    EXPECT_EQ(train(conv_net, input, queueing_devices(count), 256, kSteps), expected) << count;
}

// Replicas of unequal sizes, one of them empty: every device holds results of several plans, one announces
// without a replica.
TEST(OverlappedSums, OfUnequalSlicesHaveTheSameBits) {
  const Trained expected = train(mlp, {13, 30}, first_devices(1), -1, kSteps);
  for (const int count : {2, 3, 4, 8})
    EXPECT_EQ(train(mlp, {13, 30}, queueing_devices(count), 64, kSteps), expected) << count;
}

TEST(OverlappedSums, OfDevicesThatCannotReadEachOtherAddCopies) {
  const Trained expected = train(mlp, {16, 30}, first_devices(1), -1, kSteps);
  for (const int count : {2, 4})
    EXPECT_EQ(train(mlp, {16, 30}, queueing_devices(count, false), 64, kSteps), expected) << count;
}

TEST(OverlappedSums, LetEveryoneGoWhereADeviceFails) {
  const auto devices = queueing_devices(4);
  for (const size_t failing : {size_t{0}, size_t{3}}) {
    const DeviceScope scope(*devices[0]);
    const auto model = mlp();
    auto optimizer = keras::optimizers::Adam();
    FunctionOptions options;
    options.replicas = {.devices = devices, .reproducible = true, .bucket_bytes = 64};
    auto step = function(
        [&](const Tensor& x, const Tensor& y) { return models::train_step(*model, optimizer, x, y); },
        options);
    const Tensor x = models::random_inputs({16, 30}, 1), y = models::random_labels(16, 10, 2);
    step(x, y);
    static_cast<QueueingDevice&>(backend_of(*devices[failing])).fails = true;
    int failures = 0;
    for (int i = 0; i < 6; ++i) {
      try {
        step(x, y);
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("nothing can be captured today"), std::string::npos);
        ++failures;
      }
    }
    devices[0]->synchronize();
    EXPECT_EQ(failures, 1) << failing;
    EXPECT_TRUE(std::isfinite(step(x, y).to_vector<float>()[0]));
  }
}

}  // namespace
}  // namespace lockstep
