#include "data/node.h"
#include "data/worker_pool.h"
#include "device/copy.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// The tensor on this device, by a copy that overlaps with what the device computes.
Tensor prefetched(const Tensor& tensor, Device& device) {
  static const MemoryLedger::Use use = memory_use("prefetched data");
  const MemoryUseScope scope(use);
  const TensorImpl& impl = *tensor.impl();
  Device& from = impl.storage->device();
  if (&from == &device || from.kind() != DeviceKind::cpu || !is_contiguous(impl.spec.shape, impl.strides))
    return tensor.to(device);
  auto storage = std::make_shared<Storage>(device, impl.spec.bytes(), std::source_location::current(), true);
  copy_across(from, impl.data(), device, storage->data(), impl.spec.bytes());
  return make_tensor(std::move(storage), impl.spec);
}

class PrefetchCursor final : public Cursor {
 public:
  PrefetchCursor(const Opening& opening, const Node& input, int64_t slots, Device* device)
      : Cursor(opening.stage),
        device_(device),
        pool_(opening, {.threads = 1, .slots = slots},
              [this](WorkerPool::WorkItem& work_item) { return fetch(work_item.item); }),
        input_(opening.open(input, 0, pool_.stop_token())) {}
  ~PrefetchCursor() override { pool_.stop(); }
  void save(StateWriter& state) override {
    pool_.save(state, [&] { state.cursor("input", *input_); });
  }
  void restore(const StateReader& state) override {
    pool_.restore(state);
    state.cursor("input", *input_);
  }

 private:
  bool fetch(Item& item) {
    if (!input_->next(item)) return false;
    if (device_)
      for (Tensor& tensor : item.element().flat()) tensor = prefetched(tensor, *device_);
    return true;
  }
  bool advance(Item& item) override {
    if (!pool_.take(item)) return false;
    // What was restored came from a file.
    if (device_)
      for (Tensor& tensor : item.element().flat()) tensor = tensor.to(*device_);
    return true;
  }

  Device* device_;
  WorkerPool pool_;
  std::unique_ptr<Cursor> input_;
};

class PrefetchNode final : public FilteringNode<PrefetchNode> {
 public:
  PrefetchNode(NodePtr input, int64_t slots, Device* device, std::source_location where)
      : FilteringNode(device ? "prefetch_to_device" : "prefetch", {std::move(input)}, where),
        slots_(slots),
        device_(device) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<PrefetchCursor>(opening, input(), slots_, device_);
  }
  bool shares_files() const override { return true; }
  bool hands_on() const override { return true; }
  int64_t cardinality() const override { return input().cardinality(); }
  std::string arguments() const override {
    return (device_ ? device_->name() + ", " : "") +
           (slots_ == AUTOTUNE ? "AUTOTUNE" : std::to_string(slots_));
  }

 private:
  int64_t slots_;
  Device* device_;
};

void check_slots(const char* stage, int64_t slots, std::source_location where) {
  require(slots > 0 || slots == AUTOTUNE, ErrorCode::invalid_argument, where, stage,
          ": buffer_size must be positive or AUTOTUNE, received ", slots);
}

}  // namespace

Dataset Dataset::prefetch(int64_t buffer_size, std::source_location where) const {
  check_slots("prefetch", buffer_size, where);
  return Dataset(std::make_shared<PrefetchNode>(node_, buffer_size, nullptr, where));
}

Dataset Dataset::prefetch_to_device(Device& device, int64_t buffer_size, std::source_location where) const {
  check_slots("prefetch_to_device", buffer_size, where);
  return Dataset(std::make_shared<PrefetchNode>(node_, buffer_size, &device, where));
}

}  // namespace lockstep::data
