#include "backends/cuda/deferred_errors.h"

#include <mutex>
#include <vector>

#include "backends/cuda/check.h"

namespace lockstep::cuda {

struct DeferredErrors::State {
  std::function<void(const DeferredError&)> raise;
  DeferredError* error = nullptr;
  const Stream* stream = nullptr;
  bool launched = false, abandoned = false;
};

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<DeferredErrors::State>> states;
  std::vector<DeferredError*> free;  // parts of slabs, which live as long as the process
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

void grow(Registry& r) {
  constexpr size_t kSlab = 128;
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, kSlab * sizeof(DeferredError), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  for (size_t i = 0; i < kSlab; ++i) r.free.push_back(static_cast<DeferredError*>(memory) + i);
}

}  // namespace

DeferredErrors::DeferredErrors(std::function<void(const DeferredError&)> raise)
    : state_(std::make_shared<State>()) {
  state_->raise = std::move(raise);
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.free.empty()) grow(r);
  state_->error = r.free.back();
  r.free.pop_back();
  *state_->error = {};
  r.states.push_back(state_);
}

// A kernel of this report may still run: its memory is given away when its stream has been waited for.
DeferredErrors::~DeferredErrors() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (state_->launched) {
    state_->abandoned = true;
    return;
  }
  r.free.push_back(state_->error);
  std::erase(r.states, state_);
}

DeferredError* DeferredErrors::on(const Stream& stream) const {
  if (!state_->launched || state_->stream != &stream) {
    const std::lock_guard lock(registry().mutex);
    state_->stream = &stream;
    state_->launched = true;
  }
  return state_->error;
}

void throw_deferred_errors(const Stream& stream) {
  Registry& r = registry();
  std::shared_ptr<DeferredErrors::State> found;
  DeferredError error{};
  {
    const std::lock_guard lock(r.mutex);
    std::erase_if(r.states, [&](const std::shared_ptr<DeferredErrors::State>& state) {
      if (!state->launched || state->stream != &stream) return false;
      const bool first = !found && state->error->found;
      if (first) {
        found = state;
        error = *state->error;
      }
      if (state->error->found) *state->error = {};
      if (!state->abandoned) return false;
      r.free.push_back(state->error);
      return true;
    });
  }
  if (found) found->raise(error);
}

}  // namespace lockstep::cuda
