// LSTMs whose products are convolutions.
#include "keras/layers/forget_bias.h"
#include "keras/layers/noise.h"
#include "keras/layers/recurrent_layer.h"
#include "keras/layers/recurrent_settings.h"
#include "keras/layers/spatial.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/recurrent.h"
#include "lockstep/ops/conv.h"

namespace lockstep::keras::layers {
namespace {

constexpr int kGates = 4;  // input, forget, carry, output

struct ConvLSTMSettings {
  int64_t filters = 0;
  Sizes kernel_size = 1;
  ConvLSTMOptions options;
  void visit(auto& v) {
    visit_sequence(v, options);
    v("filters", filters, kPositive);
    v("kernel_size", kernel_size, kPositive);
    v("strides", options.strides, kPositive);
    v("padding", options.padding);
    v("data_format", options.data_format);
    v("dilation_rate", options.dilation_rate, kPositive);
    visit_gates(v, options);
  }
};

template <int Rank>
ConvLSTMSettings completed(ConvLSTMSettings settings, const char* layer) {
  const auto here = std::source_location::current();
  ConvLSTMOptions& o = settings.options;
  settings.kernel_size = positive(settings.kernel_size, Rank, layer, "kernel_size");
  o.strides = positive(o.strides, Rank, layer, "strides");
  o.dilation_rate = positive(o.dilation_rate, Rank, layer, "dilation_rate");
  require(o.padding.kind() != Padding::causal, ErrorCode::invalid_argument, here, layer,
          ": padding must be \"valid\" or \"same\", received \"causal\"");
  return settings;
}

// The cell's name, policy and settings; files hold those of the layer around it.
struct CellSettings {
  ConvLSTMSettings of_layer;
  struct Options {
    std::string name = "conv_lstm_cell";
    bool trainable = true;
    DTypePolicy dtype = {};
  } options;
  void visit(auto&) {}
};

template <int Rank>
class ConvLSTMCellLayer final : public ConfiguredLayer<CellSettings>, public RecurrentCell {
 public:
  static constexpr const char* kClassName = "ConvLSTMCell";
  ConvLSTMCellLayer(const char* class_name, CellSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)), source_(*this, o().seed) {}

  void build(const Shape& input) override {
    const int64_t channels = channels_of(input, o().data_format, Rank, kClassName);
    kernel_ = add_weight("kernel", kernel_shape(channels),
                         {.initializer = o().kernel_initializer,
                          .regularizer = o().kernel_regularizer,
                          .constraint = o().kernel_constraint});
    recurrent_kernel_ = add_weight("recurrent_kernel", kernel_shape(filters()),
                                   {.initializer = o().recurrent_initializer,
                                    .regularizer = o().recurrent_regularizer,
                                    .constraint = o().recurrent_constraint});
    if (o().use_bias)
      bias_ = add_weight(
          "bias", {kGates * filters()},
          {.initializer = o().unit_forget_bias ? forget_bias(o().bias_initializer) : o().bias_initializer,
           .regularizer = o().bias_regularizer,
           .constraint = o().bias_constraint});
    state_shape_ = state_shape(input);
  }

  std::vector<Shape> state_shapes() const override { return {state_shape_, state_shape_}; }
  int step_rank() const override { return Rank + 2; }

  Run begin(const Tensor& sequence, bool training) const override {
    const int axis = channel_axis(o().data_format, Rank);
    return {projected(sequence, training),
            [this, axis, activation = o().activation, gate = o().recurrent_activation,
             kernel = cast(recurrent_kernel_, compute_dtype()),
             masks = masks(state_with_batch(sequence.shape()[1]), o().recurrent_dropout, training)](
                const Tensor& x, std::span<const Tensor> states) {
              const TensorList z =
                  split(x + convolved(states[0], kernel, recurrent_window(), masks), kGates, axis);
              const Tensor c = gate(z[1]) * states[1] + gate(z[0]) * activation(z[2]);
              return TensorList{gate(z[3]) * activation(c), c};
            }};
  }

 private:
  static constexpr auto kConvolve = Rank == 1 ? conv1d : Rank == 2 ? conv2d : conv3d;

  const ConvLSTMOptions& o() const { return settings_.of_layer.options; }
  int64_t filters() const { return settings_.of_layer.filters; }

  Shape kernel_shape(int64_t channels) const {
    Shape shape = static_cast<const Dims&>(settings_.of_layer.kernel_size);
    shape.push_back(channels);
    shape.push_back(kGates * filters());
    return shape;
  }
  lockstep::ConvOptions window() const {
    return {.strides = o().strides,
            .padding = o().padding,
            .dilations = o().dilation_rate,
            .data_format = o().data_format};
  }
  lockstep::ConvOptions recurrent_window() const {
    return {.padding = Padding::same, .data_format = o().data_format};
  }

  // The shape of a state for inputs of this shape, without the batch.
  Shape state_shape(const Shape& input) const {
    const int first = o().data_format.kind() == DataFormat::channels_first ? 2 : 1;
    Shape shape = input;
    for (int d = 0; d < Rank; ++d) {
      int64_t& size = shape[first + d];
      require(size > 0, ErrorCode::shape_mismatch, where(), kClassName,
              ": the sizes of images must be known, received shape ", input);
      const int64_t reach = (settings_.of_layer.kernel_size[d] - 1) * o().dilation_rate[d];
      const int64_t places = o().padding.kind() == Padding::same ? size : size - reach;
      size = (places + o().strides[d] - 1) / o().strides[d];
      require(size > 0, ErrorCode::shape_mismatch, where(), kClassName,
              ": the kernel is larger than images of ", input);
    }
    shape[channel_axis(o().data_format, Rank)] = filters();
    shape.erase(0);
    return shape;
  }
  Shape state_with_batch(int64_t batch) const {
    Shape shape = state_shape_;
    shape.insert(0, batch);
    return shape;
  }

  // Every gate has one of its own.
  TensorList masks(const Shape& shape, double rate, bool training) const {
    if (!training || rate == 0) return {};
    const Tensor ones = Tensor::full(compute_dtype(), shape, 1);
    TensorList masks;
    for (int i = 0; i < kGates; ++i) masks.push_back(dropout(ones, rate, {.generator = source_.generator()}));
    return masks;
  }

  // All gates at once, where they see the same x.
  Tensor convolved(const Tensor& x, const Tensor& kernel, const lockstep::ConvOptions& window,
                   const TensorList& masks) const {
    if (masks.empty()) return kConvolve(x, kernel, window);
    const TensorList kernels = split(kernel, kGates, -1);
    TensorList gates;
    for (size_t i = 0; i < kernels.size(); ++i) gates.push_back(kConvolve(x * masks[i], kernels[i], window));
    return concat(gates, channel_axis(o().data_format, Rank));
  }

  // The sequence's part of all gates, of all steps at once.
  Tensor projected(const Tensor& sequence, bool training) const {
    const Shape& shape = sequence.shape();
    Shape step = shape;
    step.erase(0);
    const Tensor kernel = cast(kernel_, compute_dtype());
    TensorList all_steps;
    for (const Tensor& mask : masks(step, o().dropout, training))
      all_steps.push_back(reshape(broadcast_to(expand_dims(mask, 0), shape), merged(shape)));
    Tensor y = convolved(reshape(sequence, merged(shape)), kernel, window(), all_steps);
    if (bias_.defined()) {
      Shape broadcast = Dims::filled(Rank + 2, 1);
      broadcast[channel_axis(o().data_format, Rank)] = bias_.shape()[0];
      y = y + reshape(cast(bias_, compute_dtype()), broadcast);
    }
    Shape apart = y.shape();
    apart[0] = shape[1];
    apart.insert(0, shape[0]);
    return reshape(y, apart);
  }
  // Time and batch as one dimension.
  static Shape merged(const Shape& shape) {
    Shape together = shape;
    together.erase(0);
    together[0] = shape[0] * shape[1];
    return together;
  }

  NoiseSource source_;
  Variable kernel_, recurrent_kernel_, bias_;
  Shape state_shape_;
};

constexpr const char* kConvLSTMNames[] = {"ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"};

template <int Rank>
class ConvLSTMLayer final : public RecurrentLayer<ConvLSTMSettings> {
 public:
  static constexpr const char* kClassName = kConvLSTMNames[Rank - 1];
  ConvLSTMLayer(const char* class_name, ConvLSTMSettings settings)
      : RecurrentLayer(class_name, completed<Rank>(std::move(settings), class_name)) {
    set_cell(make_configured<ConvLSTMCellLayer<Rank>>(
        {.of_layer = settings_, .options = {.dtype = settings_.options.dtype}}));
  }
};
const RegisterLayer<ConvLSTMLayer<1>> conv_lstm1d;
const RegisterLayer<ConvLSTMLayer<2>> conv_lstm2d;
const RegisterLayer<ConvLSTMLayer<3>> conv_lstm3d;

}  // namespace

Layer ConvLSTM1D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options,
                 std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLSTMLayer<1>>({filters, kernel_size, options});
}
Layer ConvLSTM2D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options,
                 std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLSTMLayer<2>>({filters, kernel_size, options});
}
Layer ConvLSTM3D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options,
                 std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLSTMLayer<3>>({filters, kernel_size, options});
}

}  // namespace lockstep::keras::layers
