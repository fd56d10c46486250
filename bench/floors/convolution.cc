#include "bench/floors/convolution.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::bench {

namespace {

using dnnl::algorithm;
using dnnl::memory;
using Tag = memory::format_tag;
using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

const memory::dims kStride{1, 1}, kPadding{0, 0};

// Winograd's F(4x4, 3x3) transforms lose about two decimal digits of float's seven.
constexpr double kTolerance = 1e-3;

// oneDNN's last resort is a thousand times slower than the rest.
bool is_reference(std::string_view implementation) { return implementation.starts_with("ref"); }

// Runs the calls that are not empty, in order.
std::function<void()> sequence(std::vector<Call> calls, std::vector<Buffer> scratch) {
  std::erase_if(calls, [](const Call& call) { return !call; });
  return [calls = std::move(calls), scratch = std::make_shared<std::vector<Buffer>>(std::move(scratch))] {
    for (const Call& call : calls) call();
  };
}

// Calls make(algorithm) for both algorithms and collects what it returns; an algorithm that oneDNN has
// no fast implementation for is left out.
template <class Make>
void for_each_algorithm(const Make& make) {
  for (const auto& [name, kind] :
       {std::pair{"direct", algorithm::convolution_direct}, {"winograd", algorithm::convolution_winograd}}) {
    try {
      make(name, kind);
    } catch (const dnnl::error&) {
    }
  }
}

// Adds the fastest way's name to `chosen`.
size_t choose(const std::vector<Way>& ways, std::string& chosen) {
  require(!ways.empty(), ErrorCode::unsupported, std::source_location::current(),
          "convolution floor: oneDNN has no fast implementation for this layout on this processor");
  const size_t index = fastest(ways, kTolerance);
  chosen += (chosen.empty() ? "" : ", ") + ways[index].name;
  return index;
}

}  // namespace

Convolution::Convolution(const ConvolutionShape& shape, const ConvolutionBuffers& buffers) : shape_(shape) {
  const memory::desc &x_desc = buffers.x_desc, &y_desc = buffers.y_desc;
  float *const x = buffers.x, *const w = buffers.w, *const b = buffers.b, *const y = buffers.y;
  float *const dw = buffers.dw, *const dy = buffers.dy, *const dx = buffers.dx;
  const auto& engine = onednn_engine();
  const memory::dims w_dims{shape.out, shape.in, 3, 3};
  const int64_t w_size = shape.out * shape.in * 9;
  const auto w_any = f32(w_dims, Tag::any), w_plain = f32(w_dims, Tag::hwio);
  const auto b_desc = f32({shape.out}, Tag::a);
  const auto x_size = static_cast<int64_t>(x_desc.get_size() / sizeof(float));
  const auto y_size = static_cast<int64_t>(y_desc.get_size() / sizeof(float));
  const auto as_span = [](const float* p, int64_t n) { return std::span(p, static_cast<size_t>(n)); };

  Buffer random(std::max({x_size, y_size, w_size}));
  random.fill(3, 1.0f);
  for (const auto& [to, n] : {std::pair{x, x_size}, {w, w_size}, {b, shape.out}, {dy, y_size}})
    std::copy_n(random.data(), n, to);

  const auto hint = [&](algorithm kind) {
    return Forward::primitive_desc(
        {dnnl::prop_kind::forward_training, kind, x_desc, w_any, b_desc, y_desc, kStride, kPadding, kPadding},
        engine);
  };

  // The optimizer works in the weight gradient's own layout unless that is padded.
  std::vector<Way> weights;
  std::vector<memory::desc> layouts;
  for_each_algorithm([&](const char* name, algorithm kind) {
    const BackwardWeights::primitive_desc desc({kind, x_desc, w_any, y_desc, kStride, kPadding, kPadding},
                                               engine, hint(kind));
    if (is_reference(desc.impl_info_str())) return;
    const auto own = desc.diff_weights_desc();
    const bool padded = own.get_size() != static_cast<size_t>(w_size) * sizeof(float);
    std::vector<Buffer> scratch;
    if (padded) scratch.emplace_back(static_cast<int64_t>(own.get_size() / sizeof(float)));
    const auto gradient = over(own, padded ? scratch[0].data() : dw);
    std::vector<Call> calls;
    calls.emplace_back(BackwardWeights(desc),
                       std::initializer_list<std::pair<int, memory>>{{DNNL_ARG_SRC, over(x_desc, x)},
                                                                     {DNNL_ARG_DIFF_DST, over(y_desc, dy)},
                                                                     {DNNL_ARG_DIFF_WEIGHTS, gradient}});
    layouts.push_back(padded ? w_plain : own);
    if (padded) calls.push_back(reorder(gradient, over(w_plain, dw)));
    weights.push_back({std::string("dW ") + name, sequence(std::move(calls), std::move(scratch)),
                       layouts.back() == layouts.front() ? as_span(dw, w_size) : std::span<const float>{}});
  });
  const size_t kept = choose(weights, chosen_);
  backward_weights_ = weights[kept].run;
  w_desc_ = layouts[kept];

  // A primitive that wants w in another layout gets its own copy, refreshed every step.
  const auto weights_for = [&](const memory::desc& wanted, std::vector<Call>& calls,
                               std::vector<Buffer>& scratch) {
    if (wanted == w_desc_) return over(w_desc_, w);
    scratch.emplace_back(static_cast<int64_t>(wanted.get_size() / sizeof(float)));
    const auto copy = over(wanted, scratch.back().data());
    calls.push_back(reorder(over(w_desc_, w), copy));
    return copy;
  };

  std::vector<Way> forward;
  for_each_algorithm([&](const char* name, algorithm kind) {
    dnnl::primitive_attr attr;
    dnnl::post_ops relu;
    relu.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
    attr.set_post_ops(relu);
    const Forward::primitive_desc desc(
        {dnnl::prop_kind::forward_training, kind, x_desc, w_any, b_desc, y_desc, kStride, kPadding, kPadding},
        attr, engine);
    if (is_reference(desc.impl_info_str())) return;
    std::vector<Call> calls;
    std::vector<Buffer> scratch;
    const auto own = weights_for(desc.weights_desc(), calls, scratch);
    calls.emplace_back(Forward(desc),
                       std::initializer_list<std::pair<int, memory>>{{DNNL_ARG_SRC, over(x_desc, x)},
                                                                     {DNNL_ARG_WEIGHTS, own},
                                                                     {DNNL_ARG_BIAS, over(b_desc, b)},
                                                                     {DNNL_ARG_DST, over(y_desc, y)}});
    forward.push_back(
        {std::string("y ") + name, sequence(std::move(calls), std::move(scratch)), as_span(y, y_size)});
  });
  forward_ = forward[choose(forward, chosen_)].run;

  if (dx == nullptr) return;
  std::vector<Way> data;
  for_each_algorithm([&](const char* name, algorithm kind) {
    const BackwardData::primitive_desc desc({kind, x_desc, w_any, y_desc, kStride, kPadding, kPadding},
                                            engine, hint(kind));
    if (is_reference(desc.impl_info_str())) return;
    std::vector<Call> calls;
    std::vector<Buffer> scratch;
    const auto own = weights_for(desc.weights_desc(), calls, scratch);
    calls.emplace_back(BackwardData(desc),
                       std::initializer_list<std::pair<int, memory>>{{DNNL_ARG_WEIGHTS, own},
                                                                     {DNNL_ARG_DIFF_DST, over(y_desc, dy)},
                                                                     {DNNL_ARG_DIFF_SRC, over(x_desc, dx)}});
    data.push_back(
        {std::string("dx ") + name, sequence(std::move(calls), std::move(scratch)), as_span(dx, x_size)});
  });
  backward_data_ = data[choose(data, chosen_)].run;
}

Parameters::Layout Convolution::layout() const {
  return layout_between(f32({shape_.out, shape_.in, 3, 3}, Tag::hwio), w_desc_);
}

}  // namespace lockstep::bench
