// Max pooling of small images in a megakernel: one thread per element.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/nn/pool.h"
#include "ops/nn/window_code_cuda.h"

namespace lockstep::cuda::megakernel {
namespace {

const Window& window_of(const Op& op) { return op.call->attrs.as<PoolAttrs>().window; }

bool read(Op& op) {
  if (window_of(op).rank() != 2 || !is_float(op.inputs[0])) return false;
  for (const Access& input : op.inputs)
    if (!input.contiguous()) return false;
  op.examples = op.inputs[0].shape[0];
  return op.examples > 1;
}

// A loop over the elements of an image of so many rows and columns: `row`, `column`, `channel`.
void each_element(OpCode& code, int64_t rows, int64_t columns, int64_t channels) {
  code.add("    for (int e = threadIdx.x; e < ", rows * columns * channels, "; e += kThreads) {");
  code.add("      const int channel = e % ", channels, ", column = e / ", channels, " % ", columns,
           ", row = e / ", channels * columns, ";");
}

void write_forward(OpCode& code) {
  const Op& op = code.op();
  const Window& w = window_of(op);
  const int64_t channels = op.inputs[0].shape[-1];
  each_element(code, w.output(0), w.output(1), channels);
  code.add("      float best = 0.f;\n      int tap = -1;\n#pragma unroll");
  code.add("      for (int i = 0; i < ", w.size[0], "; ++i)\n        for (int j = 0; j < ", w.size[1],
           "; ++j) {");
  code.add("          const int r = ", under(w, 0), "(row, i), q = ", under(w, 1), "(column, j);");
  code.add("          if (r < 0 || q < 0) continue;\n          const float next = ",
           code.in(0, detail::concat("((r * ", w.input[1], " + q) * ", channels, " + channel)")), ";");
  // The first NaN is the largest of all.
  code.add("          if (tap < 0 || next > best || (next != next && best == best)) best = next, tap = i * ",
           w.size[1], " + j;\n        }");
  code.add("      ", code.out(0, "e", "best"), code.out(1, "e", "tap"), "\n    }");
}

void write_gradient(OpCode& code) {
  const Op& op = code.op();
  const Window& w = window_of(op);
  const int64_t channels = op.inputs[0].shape[-1];
  each_element(code, w.input[0], w.input[1], channels);
  if (w.strides[0] >= w.size[0] && w.strides[1] >= w.size[1]) {  // one window at most lies over an element
    const auto find = [&](int axis, const char* at, const char* window, const char* tap) {
      code.add("      const int ", window, " = (", at, " + ", w.before[axis], ") / ", w.strides[axis], ", ",
               tap, " = (", at, " + ", w.before[axis], ") % ", w.strides[axis], ";");
    };
    find(0, "row", "r", "i");
    find(1, "column", "q", "j");
    code.add("      const int from = (r * ", w.output(1), " + q) * ", channels,
             " + channel;\n      float sum = 0.f;");
    code.add("      if (r < ", w.output(0), " && q < ", w.output(1), " && i < ", w.size[0], " && j < ",
             w.size[1], " && ", code.in(1, "from"), " == i * ", w.size[1], " + j) sum = ", code.in(0, "from"),
             ";");
    code.add("      ", code.out(0, "e", "sum"), "\n    }");
    return;
  }
  code.add("      float sum = 0.f;");
  code.add("      for (int i = 0; i < ", w.size[0], "; ++i)\n        for (int j = 0; j < ", w.size[1],
           "; ++j) {");
  code.add("          const int r = ", over(w, 0), "(row, i), q = ", over(w, 1), "(column, j);");
  code.add("          if (r < 0 || q < 0) continue;\n          const int from = (r * ", w.output(1),
           " + q) * ", channels, " + channel;");
  code.add("          if (", code.in(1, "from"), " == i * ", w.size[1], " + j) sum += ", code.in(0, "from"),
           ";\n        }");
  code.add("      ", code.out(0, "e", "sum"), "\n    }");
}

const RegisterOpRule registered[] = {
    {kMaxPool2d, {.kind = Kind::example, .read = read, .write = write_forward}},
    {kMaxPool2dGrad, {.kind = Kind::example, .read = read, .write = write_gradient}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
