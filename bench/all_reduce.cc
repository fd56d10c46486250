#include "bench/all_reduce.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "base/worker.h"
#include "bench/engine.h"
#include "bench/floors/floor.h"
#include "execute/all_reduce/host_threads.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using compile::CrossDeviceSums;
using compile::ReplicaLayout;
using compile::ReplicaSum;

class AllReduce {
 public:
  AllReduce(int replicas, int64_t bucket_bytes) : layout_(layout(replicas, bucket_bytes)) {
    ReplicaSum sum;
    sum.phase = 1;
    sum.size = kReducedBytes / static_cast<int64_t>(sizeof(float));
    for (int d = 0; d < replicas; ++d) {
      Device& device = *layout_.devices[static_cast<size_t>(d)];
      inputs_.push_back(Tensor::full(DType::float32, {sum.size}, d + 1, device));
      results_.push_back(Tensor::full(DType::float32, {sum.size}, 0, device));
      sum.inputs.push_back(inputs_.back().impl()->data());
      sum.results.push_back({results_.back().impl()->data()});
      sum.ready.push_back(0);
    }
    const Waiting waiting = waiting_of(replicas);
    sums_ = std::make_unique<CrossDeviceSums>(layout_, std::vector{sum}, waiting);
    for (int d = 1; d < replicas; ++d) workers_.push_back(std::make_unique<Worker>(waiting));
    for (int d = 0; d < replicas; ++d) tasks_.push_back({sums_.get(), d});
  }

  void step() {
    sums_->begin_run(nullptr);
    for (size_t d = 1; d < tasks_.size(); ++d) workers_[d - 1]->start(run, &tasks_[d]);
    run(&tasks_[0]);
    for (const auto& worker : workers_) worker->wait();
    sums_->end_run();
    const auto replicas = static_cast<float>(tasks_.size());
    require(results_.back().data<float>()[results_.back().size() - 1] == replicas * (replicas + 1) / 2,
            ErrorCode::internal, std::source_location::current(), "the sum is wrong");
  }

 private:
  struct Task {
    CrossDeviceSums* sums;
    int device;
  };

  static ReplicaLayout layout(int replicas, int64_t bucket_bytes) {
    configure_devices();
    ReplicaLayout layout;
    layout.replicas = replicas;
    layout.bucket_bytes = bucket_bytes;
    for (Device* device : logical_devices())
      if (device->threads() == 1 && static_cast<int>(layout.devices.size()) < replicas)
        layout.devices.push_back(device);
    layout.slices = compile::slice_batch(replicas, replicas);
    return layout;
  }

  static void run(void* context) {
    const Task& task = *static_cast<Task*>(context);
    const size_t buckets = task.sums->stops(task.device, 1).size();
    for (size_t b = 0; b < buckets; ++b) task.sums->contribute(task.device, 1, b, nullptr);
    task.sums->finish(task.device, 1, nullptr);
  }

  const ReplicaLayout layout_;
  TensorList inputs_, results_;
  std::unique_ptr<CrossDeviceSums> sums_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Task> tasks_;
};

}  // namespace

std::vector<Candidate> all_reduce_candidates(int replicas) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::shared_ptr<Floor> floor = copy_floor(kReducedBytes * replicas, std::min(replicas, cores));
  std::vector<Candidate> list;
  list.push_back(in_process(
      "copy of as many bytes", [floor] { floor->step(); }, floor->chosen()));
  const auto add = [&](const char* name, int64_t bucket_bytes) {
    auto reduce = std::make_shared<AllReduce>(replicas, bucket_bytes);
    // Until the size of the buckets is chosen.
    for (int i = 0; i < 32; ++i) reduce->step();
    list.push_back(in_process(name, [reduce] { reduce->step(); }));
  };
  add("all-reduce", -1);
  add("in one bucket", 0);
  return list;
}

}  // namespace lockstep::bench
