// Where the values of a plan lie in its arenas.
#pragma once

#include <vector>

#include "compile/planning/plan.h"

namespace lockstep::compile {

// Every value that is neither an argument nor a result of the program has a buffer, alive from the call that
// writes it to the last that reads it. While calls are being made an operand of an arena holds its buffer's
// number; place() gives all buffers, and the workspaces of calls, their places.
class ArenaLayout {
 public:
  // For a value that call number `position` of the plan writes.
  Operand new_buffer(size_t bytes, NodePlace place, int position);
  // The value is written as early as that already.
  void written_from(const Operand& value, int position);
  // Call number `position` reads or writes it. Operands outside of arenas may be named as well.
  void used_at(const Operand& value, int position);
  // Where nobody reads the input after this call, its kernel may write the output over it.
  void may_overwrite(int position, const KernelCall& call, const Operand& input, const Operand& output);
  // These calls run at the same time.
  void run_together(int begin, int end);
  // From here on operands hold places, and the plan the sizes of its arenas. Once.
  void place(Plan& plan);

 private:
  struct Buffer {
    size_t bytes = 0;
    int first = 0;
    int last = 0;
    bool per_replica = false;
    int device = 0;
    int same_as = -1;  // written over another buffer
  };
  ArenaSize place(Plan& plan, bool per_replica, int device);
  int resolve(int buffer) const;

  std::vector<Buffer> buffers_;
};

}  // namespace lockstep::compile
