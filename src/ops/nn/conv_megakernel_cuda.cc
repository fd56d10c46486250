// Convolutions of small images in a megakernel: an image is in shared memory, and so is the filter.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/nn/conv.h"
#include "ops/nn/window_code_cuda.h"

namespace lockstep::cuda::megakernel {
namespace {

constexpr int64_t kMostFilter = 12288;  // floats in shared memory
constexpr int64_t kManyJobs = 512;

const ConvAttrs& attrs_of(const Op& op) { return op.call->attrs.as<ConvAttrs>(); }

// x, y and w of any of the three.
struct Sizes {
  int64_t rows, columns, height, width;  // of the windows, of one of them
  int64_t in_rows, in_columns, in, out;

  Sizes(const Window& w, int64_t in, int64_t out)
      : rows(w.output(0)),
        columns(w.output(1)),
        height(w.size[0]),
        width(w.size[1]),
        in_rows(w.input[0]),
        in_columns(w.input[1]),
        in(in),
        out(out) {}
};

Sizes sizes_of(const Op& op) {
  const Window& window = attrs_of(op).window;
  switch (conv_direction(*op.call->op)) {
    case ConvDirection::forward: return {window, op.inputs[0].shape[-1], op.inputs[1].shape[-1]};
    case ConvDirection::backprop_input: return {window, op.inputs[0].shape[-2], op.inputs[0].shape[-1]};
    case ConvDirection::backprop_filter: break;
  }
  return {window, op.inputs[0].shape[-1], op.inputs[1].shape[-1]};
}

bool read(Op& op) {
  const ConvAttrs& attrs = attrs_of(op);
  if (attrs.groups != 1 || attrs.window.rank() != 2) return false;
  for (const Access& input : op.inputs)
    if (!is_float(input) || !is_dense(input)) return false;
  const bool of_input = conv_direction(*op.call->op) == ConvDirection::backprop_input;
  op.examples = op.inputs[of_input ? 1 : 0].shape[0];
  const Sizes s = sizes_of(op);
  return op.examples > 1 && s.height * s.width * s.in * s.out <= kMostFilter / 2;
}

// Channels that a thread computes: many, where there are threads enough all the same.
int64_t unit_of(int64_t places, int64_t channels) {
  return channels > 4 && places * ((channels + 7) / 8) >= kManyJobs ? 8 : 4;
}
int64_t whole_units(int64_t channels, int64_t unit) { return (channels + unit - 1) / unit * unit; }

// --- the convolution, and the gradient of its input, which is one with the filter turned -------------------

// Images of rows x columns with `to` channels are made of images with `from` channels, `line` pixels wide.
struct Convolution {
  int64_t rows, columns, from, to, line;
  size_t images, filter;  // inputs of the op
};

Convolution forward(const Op& op) {
  const Sizes s = sizes_of(op);
  return {s.rows, s.columns, s.in, s.out, s.in_columns, 0, 1};
}
Convolution of_input(const Op& op) {
  const Sizes s = sizes_of(op);
  return {s.in_rows, s.in_columns, s.out, s.in, s.columns, 1, 0};
}

int64_t unit_of(const Convolution& c) { return unit_of(c.rows * c.columns, c.to); }
int64_t padded_channels(const Convolution& c) { return whole_units(c.to, unit_of(c)); }
int64_t scratch_of(const Op& op, const Convolution& c) {
  const Sizes s = sizes_of(op);
  return s.height * s.width * c.from * padded_channels(c);
}

// Opens it: the filter goes to `scratch`, where results' channels are whole units; `filter_place`: which
// element element i is of, `down` and `across`: how windows lie. What is to be done with a sum follows.
void open_convolution(OpCode& code, const Convolution& c, const std::string& filter_place,
                      const std::string& down, const std::string& across) {
  const Sizes s = sizes_of(code.op());
  const int64_t padded = padded_channels(c);
  code.add("#pragma unroll\n    for (int i = threadIdx.x; i < ", scratch_of(code.op(), c),
           "; i += kThreads) scratch[i] = i % ", padded, " < ", c.to, " ? ",
           code.whole(c.filter, filter_place), " : 0.f;");
  code.add("    __syncthreads();\n    convolve<", c.rows, ", ", c.columns, ", ", s.height, ", ", s.width,
           ", ", c.from, ", ", c.to, ", ", unit_of(c), ">(", down, ", ", across,
           ", [&](int r, int q) { return ",
           code.line(c.images, detail::concat("((r * ", c.line, " + q) * ", c.from, ")")), "; }, scratch,");
}

void write_forward(OpCode& code) {
  const Op& op = code.op();
  const Convolution c = forward(op);
  const int64_t padded = padded_channels(c);
  const Window& window = attrs_of(op).window;
  open_convolution(code, c, detail::concat("(i / ", padded, " * ", c.to, " + i % ", padded, ")"),
                   under(window, 0), under(window, 1));
  code.add("      [&](int place, int o, float sum) {");
  if (attrs_of(op).bias) code.add("        sum += ", code.whole(2, "o"), ";");
  code.add("        const float y = ", activated(attrs_of(op).epilogue, "sum"), ";\n        ",
           code.out(0, detail::concat("(place * ", c.to, " + o)"), "y"), "\n      });");
}

void write_input_gradient(OpCode& code) {
  const Op& op = code.op();
  const Convolution c = of_input(op);
  const int64_t padded = padded_channels(c);
  const Window& window = attrs_of(op).window;
  // The filter with its channels the other way round.
  open_convolution(code, c,
                   detail::concat("((i / ", padded * c.from, " * ", c.to, " + i % ", padded, ") * ", c.from,
                                  " + i / ", padded, " % ", c.from, ")"),
                   over(window, 0), over(window, 1));
  code.add("      [&](int place, int c, float sum) { ",
           code.out(0, detail::concat("(place * ", c.to, " + c)"), "sum"), " });");
}

// --- the gradient of its filter ----------------------------------------------------------------------------

constexpr int64_t kMostFilterUnit = 8;
// Eight channels at once, where there are threads enough all the same.
int64_t filter_unit(const Sizes& s) {
  return s.out % 8 == 0 && s.height * s.width * s.in * (s.out / 8) >= kManyJobs / 2 ? kMostFilterUnit : 4;
}

void write_filter_gradient(OpCode& code) {
  const Op& op = code.op();
  const Sizes s = sizes_of(op);
  code.add("    filter_gradient<", s.rows, ", ", s.columns, ", ", s.height, ", ", s.width, ", ", s.in, ", ",
           s.out, ", ", filter_unit(s), ">(", under(attrs_of(op).window, 0), ", ",
           under(attrs_of(op).window, 1), ", [&](int r, int q) { return ",
           code.line(0, detail::concat("((r * ", s.in_columns, " + q) * ", s.in, ")")),
           "; }, [&](int place) { return ", code.line(1, detail::concat("(place * ", s.out, ")")), "; },");
  code.add("      [&](int i, float sum) { ", code.out(0, "i", "sum"), " }, scratch);");
}

void split_filter_gradient(OpGraph& graph) {
  Op& op = graph.ops.back();
  const Access filter = op.outputs[0];
  const int64_t size = filter.shape.size();
  const Access own = give_to_sum(graph, size);
  op.outputs = {own};
  add_sum(graph, own, graph.examples, size, filter);
}

const RegisterOpRule registered[] = {
    {kConv2d,
     {.kind = Kind::example,
      .read = read,
      .write = write_forward,
      .whole = 0b110,
      .scratch = [](const Op& op) { return scratch_of(op, forward(op)); }}},
    {kConv2dBackpropInput,
     {.kind = Kind::example,
      .read = read,
      .write = write_input_gradient,
      .whole = 0b1,
      .scratch = [](const Op& op) { return scratch_of(op, of_input(op)); }}},
    {kConv2dBackpropFilter,
     {.kind = Kind::example,
      .read = read,
      .write = write_filter_gradient,
      .scratch = [](const Op&) { return kManyJobs * kMostFilterUnit; },
      .split = split_filter_gradient}},
};

}  // namespace
}  // namespace lockstep::cuda::megakernel
