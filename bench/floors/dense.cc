#include "bench/floors/dense.h"

#include <algorithm>
#include <vector>

namespace lockstep::bench {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Sums of up to 1600 products of values below 1, in different orders.
constexpr double kTolerance = 1e-4;

dnnl::primitive_attr relu_after(bool relu) {
  dnnl::primitive_attr attr;
  if (relu) {
    dnnl::post_ops ops;
    ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attr.set_post_ops(ops);
  }
  return attr;
}

// c[m, n] = a[m, k] b[k, n], each with the layout of its tag; bias and relu where asked.
Call matmul(memory::dims mkn, float* a, Tag a_tag, float* b, Tag b_tag, float* c, Tag c_tag,
            float* bias = nullptr, bool relu = false) {
  const int64_t m = mkn[0], k = mkn[1], n = mkn[2];
  const auto a_desc = f32({m, k}, a_tag), b_desc = f32({k, n}, b_tag), c_desc = f32({m, n}, c_tag);
  const auto bias_desc = f32({1, n}, Tag::ab);
  const auto desc = bias != nullptr ? dnnl::matmul::desc(a_desc, b_desc, bias_desc, c_desc)
                                    : dnnl::matmul::desc(a_desc, b_desc, c_desc);
  const dnnl::matmul primitive(dnnl::matmul::primitive_desc(desc, relu_after(relu), onednn_engine()));
  const std::pair<int, memory> src{DNNL_ARG_SRC, over(a_desc, a)}, weights{DNNL_ARG_WEIGHTS, over(b_desc, b)},
      dst{DNNL_ARG_DST, over(c_desc, c)};
  if (bias == nullptr) return {primitive, {src, weights, dst}};
  return {primitive, {src, weights, dst, {DNNL_ARG_BIAS, over(bias_desc, bias)}}};
}

// c[m, n] = op(a) op(b), row-major, op a transposition where asked.
std::function<void()> sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                            const float* a, const float* b, float* c) {
  return [=] {
    dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, transpose_a ? m : k, b,
               transpose_b ? k : n, 0.0f, c, n);
  };
}

// One layout of W with the fastest primitives for it.
struct Variant {
  std::string name;
  memory::desc layout;
  std::function<void()> forward = {}, backward_weights = {}, backward_data = {};
};

void keep_fastest(Variant& variant, std::function<void()>& slot, const std::vector<Way>& ways) {
  const Way& way = ways[fastest(ways, kTolerance)];
  slot = way.run;
  variant.name += ", " + way.name;
}

}  // namespace

Dense::Dense(int64_t batch, int64_t in, int64_t out, bool relu, const DenseBuffers& buffers)
    : in_(in), out_(out) {
  float *const x = buffers.x, *const w = buffers.w, *const b = buffers.b, *const y = buffers.y;
  float *const dw = buffers.dw, *const dy = buffers.dy, *const dx = buffers.dx;
  const auto as_span = [](const float* p, int64_t n) { return std::span(p, static_cast<size_t>(n)); };
  Buffer random(std::max({batch * in, in * out, batch * out}));
  random.fill(1, 1.0f);
  for (const auto& [to, n] : {std::pair{x, batch * in}, {w, in * out}, {b, out}, {dy, batch * out}})
    std::copy_n(random.data(), n, to);

  const auto any = [](const memory::dims& dims) { return f32(dims, Tag::any); };
  const auto x_desc = f32({batch, in}, Tag::ab), y_desc = f32({batch, out}, Tag::ab);
  const auto b_desc = f32({out}, Tag::a);
  using dnnl::inner_product_backward_data;
  using dnnl::inner_product_backward_weights;
  using dnnl::inner_product_forward;
  const auto forward_desc = [&](const memory::desc& w_desc) {
    return inner_product_forward::primitive_desc(
        {dnnl::prop_kind::forward_training, x_desc, w_desc, b_desc, y_desc}, relu_after(relu),
        onednn_engine());
  };
  const auto inner_forward = [&](const memory::desc& layout) {
    return Call(inner_product_forward(forward_desc(layout)), {{DNNL_ARG_SRC, over(x_desc, x)},
                                                              {DNNL_ARG_WEIGHTS, over(layout, w)},
                                                              {DNNL_ARG_BIAS, over(b_desc, b)},
                                                              {DNNL_ARG_DST, over(y_desc, y)}});
  };
  const auto inner_weights = [&](const memory::desc& layout) {
    const inner_product_backward_weights::primitive_desc desc({x_desc, layout, y_desc}, onednn_engine(),
                                                              forward_desc(layout));
    return Call(inner_product_backward_weights(desc), {{DNNL_ARG_SRC, over(x_desc, x)},
                                                       {DNNL_ARG_DIFF_DST, over(y_desc, dy)},
                                                       {DNNL_ARG_DIFF_WEIGHTS, over(layout, dw)}});
  };
  const auto inner_data = [&](const memory::desc& layout) {
    const inner_product_backward_data::primitive_desc desc({x_desc, layout, y_desc}, onednn_engine(),
                                                           forward_desc(layout));
    return Call(inner_product_backward_data(desc), {{DNNL_ARG_WEIGHTS, over(layout, w)},
                                                    {DNNL_ARG_DIFF_DST, over(y_desc, dy)},
                                                    {DNNL_ARG_DIFF_SRC, over(x_desc, dx)}});
  };

  std::vector<Variant> variants;
  for (const bool transposed : {false, true}) {
    Variant v{.name = transposed ? "W [out, in]" : "W [in, out]",
              .layout = f32({out, in}, transposed ? Tag::ab : Tag::ba)};
    const Tag tag = transposed ? Tag::ba : Tag::ab;
    keep_fastest(v, v.forward,
                 {{"matmul", matmul({batch, in, out}, x, Tag::ab, w, tag, y, Tag::ab, b, relu),
                   as_span(y, batch * out)},
                  {"inner product", inner_forward(v.layout), as_span(y, batch * out)}});
    keep_fastest(v, v.backward_weights,
                 {{"dW matmul",
                   transposed ? matmul({out, batch, in}, dy, Tag::ba, x, Tag::ab, dw, Tag::ab)
                              : matmul({in, batch, out}, x, Tag::ba, dy, Tag::ab, dw, Tag::ab),
                   as_span(dw, in * out)},
                  {"dW sgemm",
                   transposed ? sgemm(true, false, out, in, batch, dy, x, dw)
                              : sgemm(true, false, in, out, batch, x, dy, dw),
                   as_span(dw, in * out)},
                  {"dW inner product", inner_weights(v.layout), as_span(dw, in * out)}});
    if (dx != nullptr)
      keep_fastest(
          v, v.backward_data,
          {{"dx matmul",
            matmul({batch, out, in}, dy, Tag::ab, w, transposed ? Tag::ab : Tag::ba, dx, Tag::ab),
            as_span(dx, batch * in)},
           {"dx sgemm", sgemm(false, !transposed, batch, in, out, dy, w, dx), as_span(dx, batch * in)},
           {"dx inner product", inner_data(v.layout), as_span(dx, batch * in)}});
    variants.push_back(std::move(v));
  }

  // The inner product's own layout, kept for the gradient and the optimizer too, so that no step
  // reorders W. A padded one would need more memory than a plain one: not taken.
  const auto blocked = forward_desc(any({out, in})).weights_desc();
  if (blocked.get_size() == static_cast<size_t>(in * out) * sizeof(float)) {
    Variant v{.name = "W blocked", .layout = blocked};
    try {
      keep_fastest(v, v.forward, {{"inner product", inner_forward(blocked), {}}});
      keep_fastest(v, v.backward_weights, {{"dW inner product", inner_weights(blocked), {}}});
      if (dx != nullptr) keep_fastest(v, v.backward_data, {{"dx inner product", inner_data(blocked), {}}});
      variants.push_back(std::move(v));
    } catch (const dnnl::error&) {  // no implementation of a gradient takes the forward pass' layout
    }
  }

  std::vector<Way> ways;
  for (const Variant& v : variants)
    ways.push_back({v.name,
                    [&v] {
                      v.forward();
                      v.backward_weights();
                      if (v.backward_data) v.backward_data();
                    },
                    {}});
  Variant& best = variants[fastest(ways, kTolerance)];
  chosen_ = best.name;
  layout_ = best.layout;
  forward_ = std::move(best.forward);
  backward_weights_ = std::move(best.backward_weights);
  backward_data_ = std::move(best.backward_data);
}

Parameters::Layout Dense::layout() const { return layout_between(f32({out_, in_}, Tag::ba), layout_); }

}  // namespace lockstep::bench
