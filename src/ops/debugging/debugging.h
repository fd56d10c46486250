// Ops of debugging, for kernels that name them.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "graph/op.h"

namespace lockstep {

// Inputs: tensors to print, then the token of the effect before it; output: its own token. In replicas one
// more input, the replica's first example, keeps it from being shared.
extern const OpDef kPrint;   // PrintAttrs
extern const OpDef kAssert;  // MessageAttrs; inputs: the condition, the token, in replicas the first example
extern const OpDef kCheckNumerics;  // MessageAttrs

struct PrintAttrs {
  // The text before the first tensor, between tensors, and after the last.
  std::vector<std::string> texts;
  std::ostream* output = nullptr;
  int64_t summarize = 3;
  bool operator==(const PrintAttrs&) const = default;
  void visit(auto&& v) const {
    for (const std::string& text : texts) v("text", text);
    v("summarize", summarize);
  }
};

struct MessageAttrs {
  std::string message;
  bool operator==(const MessageAttrs&) const = default;
  void visit(auto&& v) const { v("message", message); }
};

// Prints tensors in host memory between the texts; threads do not mix their lines.
void print_line(const PrintAttrs& attrs, std::span<const TensorSpec> specs, std::span<const Strides> strides,
                void* const* data);

}  // namespace lockstep
