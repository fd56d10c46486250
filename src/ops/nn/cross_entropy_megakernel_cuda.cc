// Cross entropy of integer labels in a megakernel.
#include "ops/nn/cross_entropy.h"
#include "ops/nn/label_error_cuda.h"
#include "ops/nn/softmax_megakernel_cuda.h"

namespace lockstep::cuda::megakernel {
namespace {

std::string class_of_line(const OpCode& code) { return detail::concat("(line * ", code.length(), " + c)"); }

// `label`, and whether it `exists`.
void write_label(OpCode& code) {
  code.add("      const i64 label = live ? (i64)", code.in(1, "line"), " : 0;");
  code.add("      const bool exists = label >= 0 && label < ", code.length(), ";");
  code.add("      if (live && lane == 0 && !exists) ", code.defer_error("label"));
}

void write_loss(OpCode& code) {
  write_label(code);
  write_softmax_statistics(code);
  code.add("      if (live && lane == 0 && exists) { const float loss = logf(sum) - (at((int)label) - top); ",
           code.out(0, "line", "loss"), code.out(1, "(2 * line)", "top"),
           code.out(1, "(2 * line + 1)", "sum"), " }");
}

void write_gradient(OpCode& code) {
  write_label(code);
  code.add("      if (live) { const float top = ", code.in(2, "(2 * line)"), ", scale = 1.f / ",
           code.in(2, "(2 * line + 1)"), ", d = ", code.in(3, "line"), ";");
  code.add("      ", code.over_line(),
           "{ const float share = expf(at(c) - top) * scale, y = (c == label ? share - 1.f : share) * d; ",
           code.out(0, class_of_line(code), "y"), " } }");
}

void write_loss_and_gradient(OpCode& code) {
  write_label(code);
  const std::string power = write_softmax_statistics(code);
  code.add("      const float scale = 1.f / sum, d = live ? ", code.in(2, "line"),
           " : 0.f, loss = logf(sum) - ((exists ? at((int)label) : 0.f) - top);");
  code.add("      if (live && lane == 0) { ", code.out(0, "line", "loss"), " }");
  code.add("      if (live) ", code.over_line(), "{ const float share = ", power,
           " * scale, y = (c == label ? share - 1.f : share) * d; ", code.out(1, class_of_line(code), "y"),
           " }");
}

std::function<void(const DeferredError&)> deferred_error(const Op& op) {
  return label_error(op.call->input_layouts[1].spec.shape, op.length, op.call->where);
}

OpRule with_labels(void (*write)(OpCode&)) {
  return {.read = read_rows, .write = write, .deferred_error = deferred_error};
}

const RegisterOpRule registered[] = {
    {kSparseCrossEntropy, with_labels(write_loss)},
    {kSparseCrossEntropyGrad, with_labels(write_gradient)},
    {kSparseCrossEntropyWithGrad, with_labels(write_loss_and_gradient)},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
