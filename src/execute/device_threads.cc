#include "execute/device_threads.h"

#include "base/parallel.h"

namespace lockstep::execute {

using observe::Category;

Waiting waiting_of(const std::vector<Device*>& devices) {
  int threads = 0;
  for (const Device* device : devices) threads += device->threads();
  return lockstep::waiting_of(threads);
}

DeviceThreads::DeviceThreads(const std::vector<Device*>& devices, std::function<void(int)> work,
                             std::function<void()> abandon, const StepObserver& observer)
    : work_(std::move(work)), abandon_(std::move(abandon)), observer_(observer) {
  int core = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    tasks_.push_back({this, static_cast<int>(d), core});
    core += devices[d]->threads();
    if (d > 0) workers_.push_back(std::make_unique<Worker>(waiting_of(devices)));
  }
}

void DeviceThreads::run() {
  // Alone it has nobody to wait for, and keeps the cores that its caller has.
  if (workers_.empty()) return work_(0);
  for (Task& task : tasks_) task.error = nullptr;
  for (size_t d = 1; d < tasks_.size(); ++d) {
    // Until its thread is awake.
    if (auto* clock = observer_.device(static_cast<int>(d))) clock->enter(Category::idle);
    workers_[d - 1]->start(run_woken, &tasks_[d]);
  }
  run(tasks_[0]);
  const auto scope = observer_.time(0, Category::waiting_for_others);
  for (const auto& worker : workers_) worker->wait();
  for (size_t d = 1; d < tasks_.size(); ++d)
    if (auto* clock = observer_.device(static_cast<int>(d))) clock->leave();
  for (const Task& task : tasks_)
    if (task.error) std::rethrow_exception(task.error);
}

void DeviceThreads::run_woken(void* context) {
  auto& task = *static_cast<Task*>(context);
  observe::ReplicaClock* const clock = task.self->observer_.device(task.device);
  if (clock) clock->leave();
  task.self->run(task);
  if (clock) clock->enter(Category::waiting_for_others);
}

void DeviceThreads::run(Task& task) const {
  set_first_core(task.first_core);
  try {
    work_(task.device);
  } catch (...) {
    task.error = std::current_exception();
    abandon_();
  }
}

}  // namespace lockstep::execute
