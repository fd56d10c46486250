#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "bench/floors/convolution.h"
#include "bench/floors/dense.h"
#include "bench/floors/floor.h"
#include "bench/floors/kernels.h"
#include "bench/floors/parameters.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr int64_t kSide = 28, kConv1 = 32, kConv2 = 64, kHidden = 128, kClasses = 10;
constexpr int64_t kConv1Side = 26, kPool1Side = 13, kConv2Side = 11, kPool2Side = 5;
constexpr int64_t kFlat = kPool2Side * kPool2Side * kConv2;
enum : size_t { kKernel1, kBias1, kKernel2, kBias2, kKernel3, kBias3, kKernel4, kBias4 };

// Activations as NHWC, or in blocks of 16 channels. Plain NCHW is left out: every primitive of this
// model was 1.6 to 5 times slower on it.
enum class Channels { last, blocked };

memory::desc image(Channels channels, int64_t batch, int64_t c, int64_t side) {
  return f32({batch, c, side, side}, channels == Channels::last ? Tag::nhwc : Tag::nChw16c);
}

// 2x2 max pooling. Since relu and max pooling commute, the relu's gradient is taken on the pooled side,
// where it is a quarter of the size; the gradient of the bias before the relu is summed there too.
class MaxPool {
 public:
  MaxPool(Channels channels, int64_t batch, int64_t c, int64_t x_side, int64_t y_side, const Buffer& x,
          const Buffer& y, const Buffer& dy, const Buffer& dx, float* bias_gradient, int threads)
      : channels_(channels),
        batch_(batch),
        c_(c),
        area_(y_side * y_side),
        y_(y.data()),
        dy_(dy.data()),
        bias_gradient_(bias_gradient),
        threads_(threads),
        partial_(c * threads) {
    const auto x_desc = image(channels, batch, c, x_side), y_desc = image(channels, batch, c, y_side);
    const memory::dims two{2, 2}, none{0, 0};
    using dnnl::pooling_v2_backward;
    using dnnl::pooling_v2_forward;
    const auto max = dnnl::algorithm::pooling_max;
    const pooling_v2_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, max, x_desc, y_desc, two, two, none, none, none},
        onednn_engine());
    const memory workspace(forward.workspace_desc(), onednn_engine());
    forward_ = {pooling_v2_forward(forward),
                {{DNNL_ARG_SRC, over(x_desc, x.data())},
                 {DNNL_ARG_DST, over(y_desc, y.data())},
                 {DNNL_ARG_WORKSPACE, workspace}}};
    const pooling_v2_backward::primitive_desc backward({max, x_desc, y_desc, two, two, none, none, none},
                                                       onednn_engine(), forward);
    backward_ = {pooling_v2_backward(backward),
                 {{DNNL_ARG_DIFF_DST, over(y_desc, dy.data())},
                  {DNNL_ARG_DIFF_SRC, over(x_desc, dx.data())},
                  {DNNL_ARG_WORKSPACE, workspace}}};
  }

  void forward() const { forward_(); }

  void backward() const {
    relu_gradient();
    backward_();
  }

 private:
  void relu_gradient() const {
    parallel(threads_, [&](int index) {
      float* bias = partial_.data() + c_ * index;
      std::fill_n(bias, c_, 0.0f);
      const int64_t begin = batch_ * index / threads_, end = batch_ * (index + 1) / threads_;
      if (channels_ == Channels::last) {
        const int64_t at = begin * area_ * c_;
        kernels::relu_gradient(y_ + at, dy_ + at, (end - begin) * area_, c_, c_, bias);
        return;
      }
      for (int64_t n = begin; n < end; ++n)
        for (int64_t block = 0; block < c_; block += 16) {
          const int64_t at = (n * c_ + block) * area_;
          kernels::relu_gradient(y_ + at, dy_ + at, area_, 16, 16, bias + block);
        }
    });
    std::copy_n(partial_.data(), c_, bias_gradient_);
    for (int index = 1; index < threads_; ++index)
      for (int64_t c = 0; c < c_; ++c) bias_gradient_[c] += partial_.data()[c_ * index + c];
  }

  Channels channels_;
  int64_t batch_, c_, area_;
  const float* y_;
  float *dy_, *bias_gradient_;
  int threads_;
  Buffer partial_;
  Call forward_, backward_;
};

// The dense layer reads the last pooling's output as it lies in memory, so where that is blocked the
// rows of its kernel stand in another order than Keras'.
Parameters::Layout reordered_rows(Channels channels, Parameters::Layout dense) {
  if (channels == Channels::last) return dense;
  const auto permute = [](const float* from, float* to, bool to_own) {
    for (int64_t pixel = 0; pixel < kPool2Side * kPool2Side; ++pixel)
      for (int64_t c = 0; c < kConv2; ++c) {
        const int64_t keras = pixel * kConv2 + c;
        const int64_t own = (c / 16 * kPool2Side * kPool2Side + pixel) * 16 + c % 16;
        std::copy_n(from + (to_own ? keras : own) * kHidden, kHidden, to + (to_own ? own : keras) * kHidden);
      }
  };
  return {.import_values =
              [=](std::span<const float> values, float* own) {
                std::vector<float> rows(values.size());
                permute(values.data(), rows.data(), true);
                if (dense.import_values)
                  dense.import_values(rows, own);
                else
                  std::ranges::copy(rows, own);
              },
          .export_values =
              [=](const float* own, std::span<float> values) {
                std::vector<float> rows(own, own + values.size());
                if (dense.export_values) dense.export_values(own, rows);
                permute(rows.data(), values.data(), false);
              }};
}

// Not written where it is used: there g++ 12 under the address sanitizer loses the list's memory.
std::vector<int64_t> parameter_sizes() {
  return {9 * kConv1,      kConv1,  9 * kConv1 * kConv2, kConv2,
          kFlat * kHidden, kHidden, kHidden * kClasses,  kClasses};
}

class ConvnetFloor final : public TrainingFloor {
 public:
  ConvnetFloor(Channels channels, int64_t batch, int threads)
      : channels_(channels),
        threads_(threads),
        batch_(batch),
        p_(parameter_sizes()),
        x_(batch * kSide * kSide),
        y1_(batch * kConv1 * kConv1Side * kConv1Side),
        dy1_(y1_.size()),
        p1_(batch * kConv1 * kPool1Side * kPool1Side),
        dp1_(p1_.size()),
        y2_(batch * kConv2 * kConv2Side * kConv2Side),
        dy2_(y2_.size()),
        p2_(batch * kFlat),
        dp2_(p2_.size()),
        h_(batch * kHidden),
        dh_(h_.size()),
        logits_(batch * kClasses),
        dlogits_(logits_.size()),
        // With one channel NCHW and NHWC are the same bytes, but oneDNN has a fast kernel only where the
        // input is described as NHWC before NHWC, and as NCHW before blocks.
        conv1_({.batch = batch, .in = 1, .in_side = kSide, .out = kConv1},
               {.x_desc = f32({batch, 1, kSide, kSide}, channels == Channels::last ? Tag::nhwc : Tag::nchw),
                .y_desc = image(channels, batch, kConv1, kConv1Side),
                .x = x_.data(),
                .w = p_.w(kKernel1),
                .b = p_.w(kBias1),
                .y = y1_.data(),
                .dw = p_.g(kKernel1),
                .dy = dy1_.data()}),
        pool1_(channels, batch, kConv1, kConv1Side, kPool1Side, y1_, p1_, dp1_, dy1_, p_.g(kBias1), threads),
        conv2_({.batch = batch, .in = kConv1, .in_side = kPool1Side, .out = kConv2},
               {.x_desc = image(channels, batch, kConv1, kPool1Side),
                .y_desc = image(channels, batch, kConv2, kConv2Side),
                .x = p1_.data(),
                .w = p_.w(kKernel2),
                .b = p_.w(kBias2),
                .y = y2_.data(),
                .dw = p_.g(kKernel2),
                .dy = dy2_.data(),
                .dx = dp1_.data()}),
        pool2_(channels, batch, kConv2, kConv2Side, kPool2Side, y2_, p2_, dp2_, dy2_, p_.g(kBias2), threads),
        dense1_(batch, kFlat, kHidden, true,
                {.x = p2_.data(),
                 .w = p_.w(kKernel3),
                 .b = p_.w(kBias3),
                 .y = h_.data(),
                 .dw = p_.g(kKernel3),
                 .dy = dh_.data(),
                 .dx = dp2_.data()}),
        dense2_(batch, kHidden, kClasses, false,
                {.x = h_.data(),
                 .w = p_.w(kKernel4),
                 .b = p_.w(kBias4),
                 .y = logits_.data(),
                 .dw = p_.g(kKernel4),
                 .dy = dlogits_.data(),
                 .dx = dh_.data()}),
        loss_(batch, kClasses, logits_.data(), dlogits_.data(), p_.g(kBias4), threads) {
    p_.set_layout(kKernel1, conv1_.layout());
    p_.set_layout(kKernel2, conv2_.layout());
    p_.set_layout(kKernel3, reordered_rows(channels, dense1_.layout()));
    p_.set_layout(kKernel4, dense2_.layout());
    restart();
  }

  void restart() {
    start_training(*this, batch_, kSide * kSide,
                   {{9, 1, kConv1}, {9, kConv1, kConv2}, {1, kFlat, kHidden}, {1, kHidden, kClasses}});
  }

  void step() override {
    const TeamScope team(threads_);
    conv1_.forward();
    pool1_.forward();
    conv2_.forward();
    pool2_.forward();
    dense1_.forward();
    dense2_.forward();
    loss_();
    dense2_.backward_weights();
    dense2_.backward_data();
    relu_gradient(h_.data(), dh_.data(), batch_, kHidden, p_.g(kBias3), threads_);
    dense1_.backward_weights();
    dense1_.backward_data();
    pool2_.backward();
    conv2_.backward_weights();
    conv2_.backward_data();
    pool1_.backward();
    conv1_.backward_weights();
    p_.adam(threads_);
  }

  std::string chosen() const override {
    return std::string(channels_ == Channels::last ? "nhwc" : "nChw16c") + "; conv 1: " + conv1_.chosen() +
           "; conv 2: " + conv2_.chosen() + "; dense 1: " + dense1_.chosen() +
           "; dense 2: " + dense2_.chosen();
  }

  void set_batch(std::span<const float> x, std::span<const int32_t> labels) override {
    std::ranges::copy(x, x_.data());
    loss_.set_labels(labels);
  }
  void set_parameters(std::span<const float> values) override { p_.set_weights(values); }
  std::vector<float> parameters() const override { return p_.weights(); }
  std::vector<float> gradients() const override { return p_.gradients(); }
  double loss() const override { return loss_.value(); }

 private:
  Channels channels_;
  int threads_;
  int64_t batch_;
  Parameters p_;
  Buffer x_, y1_, dy1_, p1_, dp1_, y2_, dy2_, p2_, dp2_, h_, dh_, logits_, dlogits_;
  Convolution conv1_;
  MaxPool pool1_;
  Convolution conv2_;
  MaxPool pool2_;
  Dense dense1_, dense2_;
  SoftmaxLoss loss_;
};

}  // namespace

std::unique_ptr<TrainingFloor> convnet_floor(int64_t batch, int threads, ConvnetLayout layout) {
  const TeamScope team(threads);
  if (layout == ConvnetLayout::nhwc) return std::make_unique<ConvnetFloor>(Channels::last, batch, threads);
  if (layout == ConvnetLayout::blocked)
    return std::make_unique<ConvnetFloor>(Channels::blocked, batch, threads);

  std::array<std::unique_ptr<ConvnetFloor>, 2> chains;
  std::vector<Way> ways;
  for (const Channels channels : {Channels::last, Channels::blocked}) {
    auto& chain = chains[ways.size()];
    try {
      chain = std::make_unique<ConvnetFloor>(channels, batch, threads);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      continue;  // blocks of 16 channels need registers of 16 floats
    }
    ways.push_back({chain->chosen(), [floor = chain.get()] { floor->step(); }, {}});
  }
  auto& best = chains[fastest(ways, 0)];
  best->restart();
  return std::move(best);
}

}  // namespace lockstep::bench
