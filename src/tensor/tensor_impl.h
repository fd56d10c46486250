// What a Tensor handle points to.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "device/device_backend.h"
#include "lockstep/device/device.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A block of device memory; freed with its last owner.
class Storage {
 public:
  // `for_prefetch`: see DeviceBackend::allocate_for_prefetch().
  Storage(Device& device, size_t bytes, std::source_location where, bool for_prefetch = false)
      : device_(device),
        bytes_(bytes),
        data_(for_prefetch ? backend_of(device).allocate_for_prefetch(bytes, where)
                           : backend_of(device).allocate(bytes, where)),
        own_(true),
        use_(backend_of(device).ledger().add(bytes)) {}
  // Host memory that is `owner`'s: read alone, and not the device's to account for. `lent`: until
  // keep_copy().
  Storage(Device& device, const void* data, size_t bytes, std::shared_ptr<const void> owner, bool lent)
      : device_(device),
        bytes_(bytes),
        data_(const_cast<void*>(data)),
        borrowed_(true),
        lent_(lent),
        lender_(std::move(owner)) {}
  ~Storage() {
    if (!own_) return;
    backend_of(device_).ledger().remove(use_, bytes_);
    backend_of(device_).deallocate(data(), bytes_);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return device_; }
  size_t bytes() const { return bytes_; }
  void* data() const { return data_.load(std::memory_order_acquire); }
  // Whether it began as somebody else's memory, which nobody may write to.
  bool borrowed() const { return borrowed_; }
  // Whether it is somebody else's memory for a time, so that nothing may show its elements in place.
  bool lent() const { return lent_.load(std::memory_order_acquire); }
  // From here on data() is a copy of what was borrowed, and the lender is let go. Others may be reading
  // meanwhile, as long as the memory lives; one thread calls it. Where there is no room for the copy it
  // throws, and nothing has changed.
  void keep_copy();
  // What the device's ledger knows it as from now on.
  void set_use(MemoryLedger::Use use) {
    if (!own_) return;
    backend_of(device_).ledger().move(use_, use, bytes_);
    use_ = use;
  }

 private:
  Device& device_;
  size_t bytes_;
  std::atomic<void*> data_;
  bool own_ = false;  // data_ was allocated here
  const bool borrowed_ = false;
  std::atomic<bool> lent_ = false;
  MemoryLedger::Use use_ = MemoryLedger::kTensors;
  std::shared_ptr<const void> lender_;
};

// Where a symbolic tensor stands in its traced graph.
struct Symbol {
  uint64_t trace = 0;  // identity of the trace; 0: not symbolic
  int32_t node = -1;
  int32_t output = -1;
};

struct TensorImpl {
  TensorSpec spec;
  Strides strides;
  int64_t offset = 0;  // in elements
  std::shared_ptr<Storage> storage;
  Symbol symbol;
  uint64_t id = next_id();  // never reused: what tapes know a tensor by
  // Which positions of a sequence count: what the layer that made this tensor says of it to the next. Set
  // before the tensor is handed to anyone.
  mutable std::shared_ptr<const TensorImpl> mask;

  void* data() const {
    return static_cast<char*>(storage->data()) + offset * static_cast<int64_t>(size_of(spec.dtype));
  }

  static uint64_t next_id();
};

// Whether nobody else holds this tensor or its memory, and that is not borrowed, so that it may be
// overwritten. What others read from it before they let go happens before this returns true.
bool sole_owner(const Tensor& tensor);

// `count` elements in host memory become `value`.
void fill_elements(DType dtype, int64_t count, double value, void* data);

// "[[1. 2.]\n [3. 4.]]": elements in host memory, in every dimension `edges` of each end; -1: all.
std::string elements_text(const TensorSpec& spec, const Strides& strides, const void* data, int64_t edges);

Tensor make_tensor(std::shared_ptr<Storage> storage, const TensorSpec& spec);
Tensor make_view(const TensorImpl& base, const TensorSpec& spec, const Strides& strides, int64_t offset);
Tensor make_symbolic(const TensorSpec& spec, Symbol symbol);

// Copies elements between strided layouts of the same shape, row-major order kept. Host memory.
void copy_strided(DType dtype, const Shape& shape, const void* source, const Strides& source_strides,
                  void* target, const Strides& target_strides);

}  // namespace lockstep
