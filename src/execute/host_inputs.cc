#include "execute/host_inputs.h"

namespace lockstep::execute {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

HostInputs::HostInputs(Device& device) : device_(device), copies_(backend_of(device).async_host_copies()) {
  if (!copies_) return;
  for (Block& block : blocks_) {
    block.sent = backend_of(device).new_event();
    block.read = backend_of(device).new_event();
  }
}

HostInputs::~HostInputs() {
  for (Block& block : blocks_) {
    try {
      let_go(block);
    } catch (...) {
      // This happens where the process ends and the driver has gone first.
    }
  }
}

void HostInputs::let_go(Block& block) {
  if (block.sources.empty()) return;
  block.sent->synchronize();
  block.sources.clear();
}

void HostInputs::begin() {
  pieces_.clear();
  sources_.clear();
  places_.clear();
  bytes_ = 0;
}

void HostInputs::add(const std::shared_ptr<Storage>& from, const void* source, size_t bytes, void*& place) {
  pieces_.push_back({.source = source, .offset = bytes_, .bytes = bytes});
  sources_.push_back(from);
  places_.push_back(&place);
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  backend_of(from->device()).count_copy(0, static_cast<int64_t>(bytes));
  backend_of(device_).count_copy(static_cast<int64_t>(bytes), 0);
}

void HostInputs::send() {
  if (pieces_.empty()) return;
  Stream& compute = backend_of(device_).compute_stream();
  // Launches of a run that failed may still read what was sent for it.
  if (queued_)
    for (const Block& block : blocks_) block.read->record(compute);
  Block& block = blocks_[++turn_ % blocks_.size()];
  let_go(block);
  if (!block.memory || block.memory->bytes() < bytes_) {
    block.memory = std::make_unique<Storage>(device_, bytes_, std::source_location::current());
    // Launches that are queued may still use the memory as what it was before.
    block.read->record(compute);
  }
  auto* const data = static_cast<char*>(block.memory->data());
  for (size_t i = 0; i < pieces_.size(); ++i) *places_[i] = data + pieces_[i].offset;
  queued_ = true;
  if (copies_->copy_async(data, pieces_, *block.read, *block.sent)) block.sources.swap(sources_);
  sources_.clear();
}

void HostInputs::finish() {
  if (!queued_) return;
  queued_ = false;
  blocks_[turn_ % blocks_.size()].read->record(backend_of(device_).compute_stream());
}

}  // namespace lockstep::execute
