// What an op means to a megakernel: which kind of work it is, and the CUDA C of what is its own. A rule
// stands beside its op (src/ops/<family>/x_megakernel_cuda.cc); elementwise ops need none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/cuda/deferred_errors.h"
#include "backends/cuda/megakernel/op_graph.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {

// The code of one op, as a block runs it for the rows at hand (or for all).
class OpCode {
 public:
  explicit OpCode(const Op& op) : op_(op) {}
  virtual ~OpCode() = default;

  const Op& op() const { return op_; }
  // An element of input k, by its number among those of the rows at hand.
  virtual std::string in(size_t k, const std::string& number) const = 0;
  // A statement that makes `value` an element of output k.
  virtual std::string out(size_t k, const std::string& number, const std::string& value) const = 0;
  // An element of input k, which is read as a whole (OpRule::whole), by its number.
  virtual std::string whole(size_t k, const std::string& number) const = 0;
  // A pointer to a line, as long as the last dimension, of input k, which is dense. `first`: the number of
  // its first element.
  virtual std::string line(size_t k, const std::string& first) const = 0;
  // How many of something the rows at hand have, of `all` in all rows.
  virtual std::string count(int64_t all) const = 0;
  // A statement that defers an error about `value`, found in this thread's line (OpRule::deferred_error).
  virtual std::string defer_error(const std::string& value) const = 0;

  // One more line.
  template <class... Parts>
  void add(const Parts&... parts) {
    text_ += detail::concat(parts..., "\n");
  }
  const std::string& text() const { return text_; }

  // --- of ops of the kind `lines` --------------------------------------------------------------------------
  //
  // A few threads, the lanes, share a line of `length` elements. The code stands where `line` is the line's
  // number among those of the rows at hand, `live` whether there is one, `lane` the thread's number among
  // those of the line, and at(c) the line's element c, or 0 where there is no line. All lanes run all of it.

  int64_t length() const { return op_.length; }
  int lanes() const;
  // "for (...) " over the elements c of this lane.
  std::string over_line() const;

 private:
  const Op& op_;
  std::string text_;
};

// Rules of the kind `example` write code for one example: numbers of elements are those in it. Every thread
// of the block runs it; `scratch` points to floats in shared memory.
struct OpRule {
  Kind kind = Kind::lines;
  // Reads off the call and its operands what this kind of work needs to know. False: nothing that is known
  // here.
  bool (*read)(Op& op) = nullptr;
  const char* fold = nullptr;             // fold: the function, a type of the prelude
  void (*write)(OpCode& code) = nullptr;  // lines, elements
  // For ops that defer errors: what throws one.
  std::function<void(const DeferredError&)> (*deferred_error)(const Op& op) = nullptr;
  unsigned whole = 0;                          // example: by input, whether it is the same for all examples
  int64_t (*scratch)(const Op& op) = nullptr;  // example: how many floats
  // Makes several ops of the last one: sums over all examples come behind what each gives to them.
  void (*split)(OpGraph& graph) = nullptr;
};

class RegisterOpRule {
 public:
  RegisterOpRule(const OpDef& op, const OpRule& rule);
};
// Null where there is none.
const OpRule* find_rule(const OpDef& op);
std::vector<const OpDef*> ops_with_rules();

// The code of an epilogue.
std::string activated(Epilogue epilogue, const std::string& x);
// A number in the code, to its last bit.
std::string literal(double value);

// --- for rules that read operands --------------------------------------------------------------------------

inline bool is_float(const Access& access) { return access.dtype == DType::float32; }
// All of a buffer, element by element.
inline bool is_dense(const Access& access) { return access.contiguous() && access.offset == 0; }

// What every example gives to a sum over all of them, in memory of its own: [graph.examples, size].
Access give_to_sum(OpGraph& graph, int64_t size);
// Adds the op that makes `sum`, of the shape [inner], of [length, inner].
void add_sum(OpGraph& graph, const Access& parts, int64_t length, int64_t inner, const Access& sum);

// Reads the first input as lines along these dimensions: [outer, length, inner].
bool read_lines(Op& op, const Dims& axes);
// The same along the last dimension, of a float32 input beside which there are floats and labels at most.
bool read_rows(Op& op);

}  // namespace lockstep::cuda::megakernel
