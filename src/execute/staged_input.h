// An argument of a function where a device reads it.
#pragma once

#include <array>
#include <memory>

#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// One argument, or a replica's slice of one. Memory for a copy is kept from call to call.
class StagedInput {
 public:
  explicit StagedInput(Device& device);

  // Where the device finds these bytes of `from`: there, or in a copy. A captured graph holds for the
  // pointers that it was captured with, so a device that captures graphs also copies an argument of its own
  // memory that lies in another place with every call.
  void* bring(Device& from, void* source, size_t bytes);

 private:
  Stream& stream() const;
  bool is_usual(const void* source);

  Device* device_;
  bool captures_graphs_;
  std::unique_ptr<Storage> copy_;
  std::array<const void*, 2> usual_{};  // the first places in which it was seen
};

}  // namespace lockstep::execute
