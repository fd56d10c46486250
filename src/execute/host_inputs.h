// The arguments of a step that lie in the host's memory, on their way to a device.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/async_host_copies.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// All of a run's travel together, into one of two blocks that take turns: those of the next run arrive while
// the device reads the last one's. A captured graph holds for the pointers that it was captured with, so
// blocks stay where they are. Nobody waits for the bus: sources that are still being read are held, so that
// whoever made them finds that they have another owner and writes elsewhere. Those of the last two runs are,
// until the next ones.
//
// Before a run begin(), add() and then send(); behind its launches finish(), unless they failed.
class HostInputs {
 public:
  explicit HostInputs(Device& device);
  // Waits until what was sent has been read.
  ~HostInputs();

  // Whether what lies there goes this way.
  bool takes(const Device& from) const { return copies_ && from.kind() == DeviceKind::cpu; }
  void begin();
  // `source` is a place in the memory of `from`; `place` is to become the address that the device reads it
  // at.
  void add(const std::shared_ptr<Storage>& from, const void* source, size_t bytes, void*& place);
  // Waits where the run before the last has sources that are still being read.
  void send();
  // The launches that read what was sent are queued.
  void finish();

 private:
  struct Block {
    std::unique_ptr<Storage> memory;
    std::unique_ptr<Event> sent, read;
    std::vector<std::shared_ptr<Storage>> sources;  // that are read until `sent` has happened
  };

  static void let_go(Block& block);

  Device& device_;
  AsyncHostCopies* copies_;  // null: the device has no copy stream
  std::array<Block, 2> blocks_;
  size_t turn_ = 0;
  bool queued_ = false;  // something was sent, and not finished
  size_t bytes_ = 0;
  std::vector<AsyncHostCopies::Piece> pieces_;
  std::vector<std::shared_ptr<Storage>> sources_;  // what the pieces lie in
  std::vector<void**> places_;
};

}  // namespace lockstep::execute
