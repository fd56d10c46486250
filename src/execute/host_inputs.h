// Asynchronous host-to-device copies of a step's arguments.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/async_host_copies.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// All arguments of a run are copied together, into one of two blocks of the device's memory that take turns:
// those of the next run arrive while the device reads the last one's. A captured graph holds for the pointers
// that it was captured with, so blocks stay where they are. No thread waits for the bus: a source that may
// still be read is held, so that its maker finds that it has another owner and writes elsewhere. The sources
// of the last two runs are held.
//
// Before a run: begin(), add() for each argument, send(). After its launches: finish(), unless they failed.
class HostInputs {
 public:
  explicit HostInputs(Device& device);
  // Waits until what was sent has been read.
  ~HostInputs();

  // Whether arguments in the memory of `from` are copied here.
  bool takes(const Device& from) const { return copies_ && from.kind() == DeviceKind::cpu; }
  void begin();
  // `source` is an address in the memory of `from`; send() sets `place` to the address at which the device
  // reads the copy.
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
  bool queued_ = false;  // send() was called, and finish() not yet
  size_t bytes_ = 0;
  std::vector<AsyncHostCopies::Piece> pieces_;
  std::vector<std::shared_ptr<Storage>> sources_;  // what the pieces lie in
  std::vector<void**> places_;
};

}  // namespace lockstep::execute
