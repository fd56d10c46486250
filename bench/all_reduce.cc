#include "bench/all_reduce.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "bench/engine.h"
#include "bench/floors/floor.h"
#include "device/device_backend.h"
#include "execute/all_reduce/all_reduce.h"
#include "execute/device_threads.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::bench {
namespace {

using execute::ReplicaLayout;
using execute::ReplicaSum;

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
    all_reduce_ = execute::make_all_reduce(execute::ReplicaGroup(layout_), std::vector{sum}, observer_);
    threads_.emplace(
        layout_.devices, [this](int d) { run(d); }, [this] { all_reduce_->abort(); }, observer_);
  }

  void step() {
    all_reduce_->begin_step();
    threads_->run();
    all_reduce_->end_step();
    const auto replicas = static_cast<float>(layout_.replicas);
    require(results_.back().data<float>()[results_.back().size() - 1] == replicas * (replicas + 1) / 2,
            ErrorCode::internal, std::source_location::current(), "the sum is wrong");
  }

 private:
  static ReplicaLayout layout(int replicas, int64_t bucket_bytes) {
    configure_devices();
    ReplicaLayout layout;
    layout.replicas = replicas;
    layout.bucket_bytes = bucket_bytes;
    for (Device* device : logical_devices())
      if (device->threads() == 1 && static_cast<int>(layout.devices.size()) < replicas)
        layout.devices.push_back(device);
    layout.slices = execute::slice_batch(replicas, replicas);
    return layout;
  }

  void run(int d) {
    Stream& stream = backend_of(*layout_.devices[static_cast<size_t>(d)]).compute_stream();
    for (const execute::PhaseSync::Mark& mark : all_reduce_->marks(d, 1)) mark.mark->reach(stream);
    all_reduce_->finish(d, 1);
  }

  const ReplicaLayout layout_;
  const execute::StepObserver observer_;
  TensorList inputs_, results_;
  std::unique_ptr<execute::AllReduce> all_reduce_;
  std::optional<execute::DeviceThreads> threads_;
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
