// Convolution on the CPU: oneDNN for float32 and bfloat16, an own kernel for the first layer on grey images,
// products of gathered patches (im2col) for float64 and what oneDNN has no kernel for, plain loops for the
// rest. float16, and bfloat16 on processors for which oneDNN has no kernels of it, are computed in float32.
//
// Activations stay N(D)HWC: oneDNN's direct kernels are as fast on them as on its blocked layouts.
// Filters are given to it in the layout it asks for, reordered in every launch (1 to 3 us for a filter of
// 3 x 3 x 32 x 64; a plain HWIO filter makes convolutions two to a thousand times slower). Winograd's
// kernels exist on blocked layouts only; they are worth the reorders on both sides.
#include <algorithm>
#include <string_view>

#include "backends/cpu/activated_kernel.h"
#include "backends/cpu/dnnl_sequence.h"
#include "backends/cpu/product_threads.h"
#include "backends/cpu/simd.h"
#include "backends/cpu/widened_kernel.h"
#include "base/parallel.h"
#include "ops/nn/conv.h"
#include "ops/nn/conv_cpu_simd.h"
#include "ops/nn/conv_loops_cpu.h"
#include "ops/nn/conv_products_cpu.h"

namespace lockstep {
namespace {

using cpu::DnnlSequence;
using dnnl::memory;
using Slot = DnnlSequence::Slot;

// One convolution in oneDNN's terms: dimensions in the order NC(D)HW and (G)OI(D)HW, strides say N(D)HWC and
// (D)HWIO.
struct Problem {
  Problem(const KernelRequest& request, const Shape& x_shape, const Shape& y_shape)
      : attrs(request.attrs<ConvAttrs>()),
        given(cpu::dnnl_type(request.dtype(0), request.where)),
        type(given) {
    const Window& window = attrs.window;
    batch = x_shape[0], in_channels = x_shape[-1], out_channels = y_shape[-1];
    const int64_t g = attrs.groups, in = in_channels / g, out = out_channels / g;
    using tag = memory::format_tag;
    const bool volume = window.rank() == 3;
    const auto with_sizes = [](memory::dims dims, const Dims& sizes) {
      dims.insert(dims.end(), sizes.begin(), sizes.end());
      return dims;
    };
    x = {with_sizes({batch, in_channels}, window.input), type, volume ? tag::ndhwc : tag::nhwc};
    y = {with_sizes({batch, out_channels}, window.output()), type, volume ? tag::ndhwc : tag::nhwc};
    bias = {{out_channels}, type, tag::a};
    if (g == 1)
      filter = {with_sizes({out, in}, window.size), type, volume ? tag::dhwio : tag::hwio};
    else
      filter = {with_sizes({g, out, in}, window.size), type, volume ? tag::dhwigo : tag::hwigo};
    strides = with_sizes({}, window.strides);
    dilations = with_sizes({}, window.dilations);
    for (int64_t& d : dilations) --d;  // oneDNN counts the elements between taps
    before = with_sizes({}, window.before);
    after = with_sizes({}, window.after);
    threads = cpu::threads_for_products(y_shape.size() * Shape(window.size).size() * in, request.threads);
  }

  bool strided() const { return std::ranges::max(strides) > 1; }
  bool padded() const { return std::ranges::max(before) > 0 || std::ranges::max(after) > 0; }

  // The operands in memory, where `type` is another one than theirs.
  memory::desc as_given(memory::desc desc) const {
    desc.data.data_type = memory::convert_to_c(given);
    return desc;
  }
  // The same problem, computed in float32.
  Problem in_float32() const {
    Problem wide = *this;
    wide.type = memory::data_type::f32;
    for (memory::desc* desc : {&wide.x, &wide.y, &wide.filter, &wide.bias})
      desc->data.data_type = memory::convert_to_c(wide.type);
    return wide;
  }

  memory::desc any_filter() const { return {filter.dims(), type, memory::format_tag::any}; }
  // Winograd's kernels choose the layouts of their activations too.
  memory::desc activations(const memory::desc& desc, dnnl::algorithm algorithm) const {
    return algorithm == dnnl::algorithm::convolution_direct
               ? desc
               : memory::desc(desc.dims(), type, memory::format_tag::any);
  }

  ConvAttrs attrs;
  memory::data_type given, type;  // of the operands, and what is computed in
  int64_t batch, in_channels, out_channels;
  memory::desc x, y, filter, bias;
  memory::dims strides, dilations, before, after;
  int threads;
};

// Whether Winograd's F(4x4, 3x3) wins over the direct sum: a model of both in multiply-adds, fitted to
// oneDNN's kernels. `results` is the image whose tiles are counted. Winograd multiplies 36 times for each
// tile of 4 x 4 results and pair of channels where the direct sum does 144 times, but transforms every
// tile of both activations and every filter, and needs reorders.
bool winograd_pays(const Problem& p, const Dims& results) {
  const Window& window = p.attrs.window;
  if (p.type != memory::data_type::f32 || p.attrs.groups != 1 || window.size != Dims{3, 3} ||
      window.strides != Dims{1, 1} || window.dilations != Dims{1, 1})
    return false;
  const auto up_to = [](int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; };
  const auto in = static_cast<double>(up_to(p.in_channels, 16)),
             out = static_cast<double>(up_to(p.out_channels, 16));
  const auto tiles_along = [](int64_t n) { return (n + 3) / 4; };
  const auto tiles = static_cast<double>(p.batch * tiles_along(results[0]) * tiles_along(results[1]));
  const auto pixels = static_cast<double>(p.batch * window.output(0) * window.output(1));
  // What one element costs, in multiply-adds. Zen 4 (family 19h) takes those of 512 bits in two halves: where
  // they are done whole, the direct sum takes half the time, but transforms do not.
  static const bool halves = __builtin_cpu_is("amdfam19h");
  const double transform = halves ? 19 : 38, reorder = halves ? 5 : 10;
  const double direct = pixels * 9 * static_cast<double>(p.in_channels) * out;
  const double winograd = 36 * tiles * in * out + transform * 36 * (tiles * (in + out) + in * out) +
                          reorder * pixels * (in + out);
  return winograd < 0.95 * direct;
}

// Goes on to oneDNN's first implementation that may be used; false where there is none. Its reference code
// takes a thousand times as long as its kernels.
template <class PrimitiveDesc>
bool find_usable(PrimitiveDesc& desc, bool avoid_1x1) {
  if (!desc.get(true)) return false;
  do {
    const std::string_view name = desc.impl_info_str();
    if (name.starts_with("ref")) return false;
    if (!avoid_1x1 || name.find("1x1") == name.npos) return true;
  } while (desc.next_impl());
  return false;
}

// One oneDNN primitive with what it takes to feed it operands in other layouts.
class ConvSequence {
 public:
  explicit ConvSequence(const Problem& p) : kernel_(std::make_unique<DnnlSequence>(p.threads)) {}

  void input(int name, const memory::desc& given, Slot slot, const memory::desc& wanted) {
    if (given != wanted) {
      const Slot reordered = kernel_->temporary(wanted);
      kernel_->add_reorder(given, slot, wanted, reordered);
      slot = reordered;
    }
    arguments_.push_back({name, wanted, slot});
  }
  template <class PrimitiveDesc>
  std::unique_ptr<Kernel> finish(const dnnl::primitive& primitive, const PrimitiveDesc& desc, int name,
                                 const memory::desc& made, const memory::desc& wanted) {
    const Slot output = DnnlSequence::output(0);
    const Slot slot = made == wanted ? output : kernel_->temporary(made);
    arguments_.push_back({name, made, slot});
    kernel_->add(primitive, desc.scratchpad_desc(), arguments_);
    if (made != wanted) kernel_->add_reorder(made, slot, wanted, output);
    return std::move(kernel_);
  }

 private:
  std::unique_ptr<DnnlSequence> kernel_;
  std::vector<DnnlSequence::Argument> arguments_;
};

using Forward = dnnl::convolution_forward;

Forward::primitive_desc forward_desc(const Problem& p, dnnl::algorithm algorithm) {
  const memory::desc x = p.activations(p.x, algorithm), y = p.activations(p.y, algorithm),
                     filter = p.any_filter();
  const auto kind = dnnl::prop_kind::forward_training;
  const Forward::desc desc =
      p.attrs.bias
          ? Forward::desc(kind, algorithm, x, filter, p.bias, y, p.strides, p.dilations, p.before, p.after)
          : Forward::desc(kind, algorithm, x, filter, y, p.strides, p.dilations, p.before, p.after);
  return {desc, cpu::dnnl_attributes(), cpu::dnnl_engine(), true};
}

// The gradients' primitives want that of a forward one as a hint, without bias and activation.
Forward::primitive_desc hint(const Problem& p, dnnl::algorithm algorithm) {
  const memory::desc x = p.activations(p.x, algorithm), y = p.activations(p.y, algorithm);
  return {{dnnl::prop_kind::forward_training, algorithm, x, p.any_filter(), y, p.strides, p.dilations,
           p.before, p.after},
          cpu::dnnl_attributes(),
          cpu::dnnl_engine(),
          true};
}

std::unique_ptr<Kernel> try_forward(const Problem& p, dnnl::algorithm algorithm) {
  auto desc = forward_desc(p, algorithm);
  if (!find_usable(desc, false)) return nullptr;
  ConvSequence sequence(p);
  sequence.input(DNNL_ARG_SRC, p.x, DnnlSequence::input(0), desc.src_desc());
  sequence.input(DNNL_ARG_WEIGHTS, p.filter, DnnlSequence::input(1), desc.weights_desc());
  if (p.attrs.bias) sequence.input(DNNL_ARG_BIAS, p.bias, DnnlSequence::input(2), desc.bias_desc());
  return sequence.finish(Forward(desc), desc, DNNL_ARG_DST, desc.dst_desc(), p.y);
}

std::unique_ptr<Kernel> try_backprop_input(const Problem& p, dnnl::algorithm algorithm) {
  using Backward = dnnl::convolution_backward_data;
  const auto forward = hint(p, algorithm);
  if (!forward.get(true)) return nullptr;
  Backward::primitive_desc desc({algorithm, p.activations(p.x, algorithm), p.any_filter(),
                                 p.activations(p.y, algorithm), p.strides, p.dilations, p.before, p.after},
                                cpu::dnnl_attributes(), cpu::dnnl_engine(), forward, true);
  // oneDNN 2.6.3: the 1x1 kernels give wrong bfloat16 results where the output channels are odd.
  if (!find_usable(desc, p.type == memory::data_type::bf16 && p.out_channels % 2 != 0)) return nullptr;
  ConvSequence sequence(p);
  sequence.input(DNNL_ARG_WEIGHTS, p.filter, DnnlSequence::input(0), desc.weights_desc());
  sequence.input(DNNL_ARG_DIFF_DST, p.y, DnnlSequence::input(1), desc.diff_dst_desc());
  return sequence.finish(Backward(desc), desc, DNNL_ARG_DIFF_SRC, desc.diff_src_desc(), p.x);
}

std::unique_ptr<Kernel> try_backprop_filter(const Problem& p, dnnl::algorithm algorithm) {
  using Backward = dnnl::convolution_backward_weights;
  const auto forward = hint(p, algorithm);
  if (!forward.get(true)) return nullptr;
  Backward::primitive_desc desc({algorithm, p.activations(p.x, algorithm), p.any_filter(),
                                 p.activations(p.y, algorithm), p.strides, p.dilations, p.before, p.after},
                                cpu::dnnl_attributes(), cpu::dnnl_engine(), forward, true);
  // oneDNN 2.6.3: with strides, the 1x1 kernels write behind their scratchpad where a vector is wider than
  // the input's channels.
  if (!find_usable(desc, p.in_channels < 16 && p.strided())) return nullptr;
  ConvSequence sequence(p);
  sequence.input(DNNL_ARG_SRC, p.as_given(p.x), DnnlSequence::input(0), desc.src_desc());
  sequence.input(DNNL_ARG_DIFF_DST, p.as_given(p.y), DnnlSequence::input(1), desc.diff_dst_desc());
  return sequence.finish(Backward(desc), desc, DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc(),
                         p.as_given(p.filter));
}

class GreyConvKernel final : public Kernel {
 public:
  GreyConvKernel(const KernelRequest& request, const cpu::GreyConv& conv)
      : conv_(conv),
        rows_(request.shape(0)[0] * conv.out_height()),
        bias_(request.attrs<ConvAttrs>().bias),
        threads_(cpu::threads_for_products(
            request.outputs[0].spec.shape.size() * conv.window_height * conv.window_width, request.threads)) {
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * conv_.scratch()) * sizeof(float);
  }
  void launch(const LaunchArgs& args) const override {
    const auto *x = static_cast<const float*>(args.inputs[0]),
               *filter = static_cast<const float*>(args.inputs[1]);
    const auto* bias = bias_ ? static_cast<const float*>(args.inputs[2]) : nullptr;
    auto *y = static_cast<float*>(args.outputs[0]), *scratch = static_cast<float*>(args.workspace);
    parallel(threads_, [&](int index) {
      simd_v4::kGreyConvTable.forward(conv_, x, filter, bias, y, scratch + index * conv_.scratch(),
                                      rows_ * index / threads_, rows_ * (index + 1) / threads_);
    });
  }

 private:
  cpu::GreyConv conv_;
  int64_t rows_;
  bool bias_;
  int threads_;
};

std::unique_ptr<Kernel> try_grey_conv(const KernelRequest& request) {
  const auto& attrs = request.attrs<ConvAttrs>();
  const Window& window = attrs.window;
  const int64_t out_channels = request.outputs[0].spec.shape[-1];
  const bool fits = window.rank() == 2 && request.dtype(0) == DType::float32 && request.shape(0)[3] == 1 &&
                    window.strides == Dims{1, 1} && window.size[0] <= cpu::GreyConv::kMaxRows;
  if (!fits || cpu::simd_level() != cpu::SimdLevel::v4) return nullptr;
  const bool relu = attrs.epilogue == Epilogue::relu;  // by the way
  auto kernel =
      std::make_unique<GreyConvKernel>(request, cpu::GreyConv{.height = window.input[0],
                                                              .width = window.input[1],
                                                              .window_height = window.size[0],
                                                              .window_width = window.size[1],
                                                              .row_dilation = window.dilations[0],
                                                              .column_dilation = window.dilations[1],
                                                              .above = window.before[0],
                                                              .below = window.after[0],
                                                              .left = window.before[1],
                                                              .right = window.after[1],
                                                              .out_channels = out_channels,
                                                              .relu = relu});
  return cpu::with_activation(std::move(kernel), relu ? Epilogue::none : attrs.epilogue, request);
}

bool dnnl_serves(const KernelRequest& request) {
  const DType dtype = request.dtype(0);
  if (dtype != DType::float32 && dtype != DType::bfloat16) return false;
  // Its kernels count bytes between taps in 32 bits.
  constexpr int64_t kFar = 1 << 16;
  const Window& window = request.attrs<ConvAttrs>().window;
  for (const Dims* distances : {&window.strides, &window.dilations, &window.before, &window.after})
    for (const int64_t distance : *distances)
      if (distance > kFar) return false;
  return std::all_of(request.inputs.begin(), request.inputs.end(),
                     [](const OperandLayout& operand) { return operand.spec.shape.size() > 0; });
}

// `results`: what Winograd's tiles cover. Null where oneDNN has no kernel that may be used.
template <class Try>
std::unique_ptr<Kernel> prepare_dnnl(const Problem& p, const Dims& results, Try try_prepare) {
  const TeamScope team(p.threads);
  try {
    std::unique_ptr<Kernel> kernel;
    if (winograd_pays(p, results)) kernel = try_prepare(p, dnnl::algorithm::convolution_winograd);
    return kernel ? std::move(kernel) : try_prepare(p, dnnl::algorithm::convolution_direct);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::unique_ptr<Kernel> prepare_dnnl_sum(const KernelRequest& request) {
  const Problem p(request, request.shape(0), request.outputs[0].spec.shape);
  return prepare_dnnl(p, p.attrs.window.output(), try_forward);
}

std::unique_ptr<Kernel> prepare_dnnl_backprop_input(const KernelRequest& request) {
  const Problem p(request, request.outputs[0].spec.shape, request.shape(1));
  return prepare_dnnl(p, p.attrs.window.input, try_backprop_input);
}

std::unique_ptr<Kernel> prepare_dnnl_backprop_filter(const KernelRequest& request) {
  Problem p(request, request.shape(0), request.shape(1));
  // oneDNN 2.6.3: on volumes, with strides and padding, bfloat16 kernels read what nobody wrote.
  if (p.attrs.window.rank() == 3 && p.type == memory::data_type::bf16 && p.strided() && p.padded())
    p = p.in_float32();
  return prepare_dnnl(p, p.attrs.window.output(), try_backprop_filter);
}

// Without an activation.
std::unique_ptr<Kernel> prepare_plain(const KernelRequest& request) {
  std::unique_ptr<Kernel> kernel;
  if (dnnl_serves(request)) {
    switch (conv_direction(request.op)) {
      case ConvDirection::forward: kernel = prepare_dnnl_sum(request); break;
      case ConvDirection::backprop_input: kernel = prepare_dnnl_backprop_input(request); break;
      case ConvDirection::backprop_filter: kernel = prepare_dnnl_backprop_filter(request); break;
    }
  }
  if (kernel) return kernel;
  if (size_of(request.dtype(0)) == 2) return cpu::prepare_in_float32(request, prepare_plain);
  kernel = cpu::prepare_conv_products(request);
  return kernel ? std::move(kernel) : cpu::prepare_conv_loops(request);
}

std::unique_ptr<Kernel> prepare_forward(const KernelRequest& request) {
  if (dnnl_serves(request))
    if (auto kernel = try_grey_conv(request)) return kernel;
  return cpu::with_activation(prepare_plain(request), request.attrs<ConvAttrs>().epilogue, request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kConv2d, {.prepare = prepare_forward}},
    {DeviceKind::cpu, kConv2dBackpropInput, {.prepare = prepare_plain}},
    {DeviceKind::cpu, kConv2dBackpropFilter, {.prepare = prepare_plain}},
    {DeviceKind::cpu, kConv3d, {.prepare = prepare_forward}},
    {DeviceKind::cpu, kConv3dBackpropInput, {.prepare = prepare_plain}},
    {DeviceKind::cpu, kConv3dBackpropFilter, {.prepare = prepare_plain}},
};

}  // namespace
}  // namespace lockstep
