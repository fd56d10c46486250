#include "bench/floors/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "bench/floors/kernels.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {

namespace {

constexpr int64_t kLine = 16;  // floats in a cache line
constexpr int kMaxThreads = 64;

}  // namespace

Parameters::Parameters(std::vector<int64_t> sizes) : sizes_(std::move(sizes)), layouts_(sizes_.size()) {
  for (const int64_t size : sizes_) {
    offsets_.push_back(total_);
    total_ += (size + kLine - 1) / kLine * kLine;
  }
  for (Buffer* buffer : {&w_, &g_, &m_, &v_}) *buffer = Buffer(total_);
}

void Parameters::set_weights(std::span<const float> values) {
  for (const Buffer* buffer : {&m_, &v_}) std::ranges::fill(buffer->span(), 0.0f);
  step_ = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const auto part = values.first(static_cast<size_t>(sizes_[i]));
    values = values.subspan(part.size());
    if (layouts_[i].import_values)
      layouts_[i].import_values(part, w(i));
    else
      std::ranges::copy(part, w(i));
  }
}

std::vector<float> Parameters::exported(const Buffer& from) const {
  std::vector<float> values;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const size_t begin = values.size();
    values.resize(begin + static_cast<size_t>(sizes_[i]));
    const auto part = std::span(values).subspan(begin);
    const float* own = from.data() + offsets_[i];
    if (layouts_[i].export_values)
      layouts_[i].export_values(own, part);
    else
      std::copy_n(own, part.size(), part.data());
  }
  return values;
}

void Parameters::adam(int threads) {
  ++step_;
  const double t = static_cast<double>(step_);
  const auto step_size =
      static_cast<float>(1e-3 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)));
  parallel_for(total_, kLine * 64, threads, [&](int64_t begin, int64_t end) {
    kernels::adam(w_.data() + begin, m_.data() + begin, v_.data() + begin, g_.data() + begin, end - begin,
                  step_size);
  });
}

Parameters::Layout layout_between(const dnnl::memory::desc& keras, const dnnl::memory::desc& own) {
  if (keras == own) return {};
  return {.import_values =
              [=](std::span<const float> values, float* to) {
                reorder(over(keras, const_cast<float*>(values.data())), over(own, to))();
              },
          .export_values =
              [=](const float* from, std::span<float> values) {
                reorder(over(own, const_cast<float*>(from)), over(keras, values.data()))();
              }};
}

SoftmaxLoss::SoftmaxLoss(int64_t batch, int64_t classes, const float* logits, float* gradient,
                         float* bias_gradient, int threads)
    : batch_(batch),
      classes_(classes),
      logits_(logits),
      gradient_(gradient),
      bias_gradient_(bias_gradient),
      // A thread's share must be worth the handover, about a microsecond.
      threads_(static_cast<int>(std::clamp<int64_t>(batch / 128, 1, std::min(threads, kMaxThreads)))),
      labels_(static_cast<size_t>(batch)) {
  require(classes <= kLine, ErrorCode::invalid_argument, std::source_location::current(),
          "softmax floor: at most 16 classes, got ", classes);
}

void SoftmaxLoss::set_labels(std::span<const int32_t> labels) {
  std::copy(labels.begin(), labels.end(), labels_.begin());
}

void SoftmaxLoss::operator()() {
  struct alignas(128) Partial {
    std::array<float, kLine> bias{};
    double loss = 0;
  };
  std::array<Partial, kMaxThreads> partials;
  const float scale = 1.0f / static_cast<float>(batch_);
  parallel(threads_, [&](int index) {
    const int64_t begin = batch_ * index / threads_;
    const int64_t end = batch_ * (index + 1) / threads_;
    partials[index] = {};
    partials[index].loss = kernels::softmax_cross_entropy(
        logits_ + begin * classes_, labels_.data() + begin, end - begin, classes_, scale,
        gradient_ + begin * classes_, partials[index].bias.data());
  });
  std::fill_n(bias_gradient_, classes_, 0.0f);
  double sum = 0;
  for (int index = 0; index < threads_; ++index) {
    sum += partials[index].loss;
    for (int64_t c = 0; c < classes_; ++c) bias_gradient_[c] += partials[index].bias[static_cast<size_t>(c)];
  }
  value_ = sum / static_cast<double>(batch_);
}

void relu_gradient(const float* output, float* gradient, int64_t rows, int64_t columns, float* bias_gradient,
                   int threads) {
  const int share = rows * columns >= 16384 ? threads : 1;
  parallel_for(columns, kLine, share, [&](int64_t begin, int64_t end) {
    std::fill(bias_gradient + begin, bias_gradient + end, 0.0f);
    kernels::relu_gradient(output + begin, gradient + begin, rows, end - begin, columns,
                           bias_gradient + begin);
  });
}

void start_training(TrainingFloor& floor, int64_t batch, int64_t inputs,
                    const std::vector<LayerShape>& layers) {
  const Buffer x(batch * inputs);
  x.fill(1, 1.0f);
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  floor.set_batch(x.span(), labels);

  std::vector<float> values;
  for (const auto& [window, in, out] : layers) {
    const Buffer kernel(window * in * out);
    kernel.fill(static_cast<uint32_t>(2 + values.size()),
                std::sqrt(6.0f / static_cast<float>(window * (in + out))));
    values.insert(values.end(), kernel.span().begin(), kernel.span().end());
    values.resize(values.size() + static_cast<size_t>(out));
  }
  floor.set_parameters(values);
}

}  // namespace lockstep::bench
