// The variables of a program in the memory of every device that reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/memory_ledger.h"
#include "lockstep/graph/variable.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// What one device has to do with one variable of a step.
enum class VariableUse : uint8_t {
  unused,
  reads,
  updates,  // it writes the new value into whatever copy the device has
};

// A variable lives on one device, wherever that is at the moment. Each other one that uses it has a mirror,
// which is renewed before a step where the variable has changed since. One step at a time.
class VariableMirrors {
 public:
  // `updated[v]`: a step writes variable v. `uses`: by device, by variable. Where no device updates its own
  // copy, the step writes the variable where it lives; where some do and none of them is its home, that gets
  // the value of the first.
  VariableMirrors(std::vector<Device*> devices, std::vector<Variable> variables, std::vector<bool> updated,
                  std::vector<std::vector<VariableUse>> uses);

  // Before a step: from now on at() says where the device finds a variable that it uses.
  void renew();
  void* at(size_t device, size_t variable) const { return copies_[device][variable].data; }
  // After a step: variables that it writes have changed, here and in all copies that were updated.
  void commit();
  // After a step that failed: it may have updated some copies and not others, so what the variables
  // themselves hold counts, for this program and for all others.
  void invalidate();

 private:
  static constexpr uint64_t kNoVersion = ~uint64_t{0};
  struct Copy {
    VariableUse use = VariableUse::unused;
    void* data = nullptr;
    std::unique_ptr<Storage> mirror;  // null: there was no need for one yet
    uint64_t version = kNoVersion;    // of the variable that the mirror holds
  };

  const std::vector<Device*> devices_;
  const std::vector<Variable> variables_;
  const std::vector<bool> updated_;
  std::vector<bool> used_;                 // by variable
  std::vector<int> updater_;               // by variable: the first device that updates it; -1: none
  std::vector<std::vector<Copy>> copies_;  // by device, by variable
  const MemoryLedger::Use memory_use_;
};

}  // namespace lockstep::execute
