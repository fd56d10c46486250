#include "backends/cuda/report.h"

#include <mutex>
#include <vector>

#include "backends/cuda/check.h"

namespace lockstep::cuda {

struct Report::State {
  std::function<void(const Finding&)> complain;
  Finding* finding = nullptr;
  const Stream* stream = nullptr;
  bool launched = false, abandoned = false;
};

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Report::State>> states;
  std::vector<Finding*> free;  // parts of slabs, which live as long as the process
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

void grow(Registry& r) {
  constexpr size_t kSlab = 128;
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, kSlab * sizeof(Finding), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  for (size_t i = 0; i < kSlab; ++i) r.free.push_back(static_cast<Finding*>(memory) + i);
}

}  // namespace

Report::Report(std::function<void(const Finding&)> complain) : state_(std::make_shared<State>()) {
  state_->complain = std::move(complain);
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.free.empty()) grow(r);
  state_->finding = r.free.back();
  r.free.pop_back();
  *state_->finding = {};
  r.states.push_back(state_);
}

// A kernel of this report may still run: its memory is given away when its stream has been waited for.
Report::~Report() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (state_->launched) {
    state_->abandoned = true;
    return;
  }
  r.free.push_back(state_->finding);
  std::erase(r.states, state_);
}

Finding* Report::on(const Stream& stream) const {
  if (!state_->launched || state_->stream != &stream) {
    const std::lock_guard lock(registry().mutex);
    state_->stream = &stream;
    state_->launched = true;
  }
  return state_->finding;
}

void throw_findings(const Stream& stream) {
  Registry& r = registry();
  std::shared_ptr<Report::State> found;
  Finding finding{};
  {
    const std::lock_guard lock(r.mutex);
    std::erase_if(r.states, [&](const std::shared_ptr<Report::State>& state) {
      if (!state->launched || state->stream != &stream) return false;
      const bool first = !found && state->finding->found;
      if (first) {
        found = state;
        finding = *state->finding;
      }
      if (state->finding->found) *state->finding = {};
      if (!state->abandoned) return false;
      r.free.push_back(state->finding);
      return true;
    });
  }
  if (found) found->complain(finding);
}

}  // namespace lockstep::cuda
