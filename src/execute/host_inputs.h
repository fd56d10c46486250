// The arguments of a step that lie in the host's memory, on their way to a device.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/sends_ahead.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// All of a run's travel together, into one of two blocks that take turns: those of the next run arrive while the device
// reads the last one's. A captured graph holds for the pointers that it was captured with, so blocks stay where they are.
//
// Before a run begin(), add() and then send(); behind its launches finish(), unless they failed.
class HostInputs {
 public:
  explicit HostInputs(Device& device);

  // Whether what lies there goes this way.
  bool takes(const Device& from) const { return sends_ && from.kind() == DeviceKind::cpu; }
  void begin();
  // `place` is to become the address that the device reads them at.
  void add(Device& from, const void* source, size_t bytes, void*& place);
  void send();
  // The launches that read what was sent are queued. Returns when the sources may be overwritten.
  void finish();
  // Whether there is something to finish.
  bool sent() const { return queued_; }

 private:
  struct Block {
    std::unique_ptr<Storage> memory;
    std::unique_ptr<Event> sent, read;
  };

  Device& device_;
  SendsAhead* sends_;  // null: the device cannot
  std::array<Block, 2> blocks_;
  size_t turn_ = 0;
  bool queued_ = false;      // something was sent, and not finished
  bool still_read_ = false;  // by what was sent
  size_t bytes_ = 0;
  std::vector<SendsAhead::Piece> pieces_;
  std::vector<void**> places_;
};

}  // namespace lockstep::execute
