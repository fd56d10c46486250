#include "keras/built_in_activations.h"
#include "keras/layers/forget_bias.h"
#include "keras/layers/noise.h"
#include "keras/layers/recurrent_cell.h"
#include "keras/layers/recurrent_settings.h"
#include "keras/layers/registry.h"
#include "keras/saving/stored_weights.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/recurrent.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {

TensorList starting_states(const LayerBase& layer, const TensorList& given, const std::vector<Shape>& shapes,
                           int64_t batch, DType dtype) {
  require(given.empty() || given.size() == shapes.size(), ErrorCode::invalid_argument, layer.where(),
          layer.class_name(), " \"", layer.name(), "\" has ", shapes.size(), " states; initial_state has ",
          given.size());
  TensorList states;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Shape shape = shapes[i];
    shape.insert(0, batch);
    states.push_back(given.empty() ? Tensor::full(dtype, shape, 0)
                                   : broadcast_to(cast(given[i], dtype), shape));
  }
  return states;
}

namespace {

template <class Options>
struct CellSettings {
  int64_t units = 0;
  Options options;
  void visit(auto& v) { visit_cell(v, units, options); }
};

// x kernel, where each gate may see an x of its own.
class Product {
 public:
  Product(const Tensor& kernel, TensorList masks) : masks_(std::move(masks)) {
    kernels_ = masks_.size() > 1 ? split(kernel, static_cast<int>(masks_.size()), 1) : TensorList{kernel};
  }
  Tensor operator()(const Tensor& x) const {
    if (masks_.empty()) return matmul(x, kernels_[0]);
    TensorList gates;
    for (size_t i = 0; i < masks_.size(); ++i) gates.push_back(matmul(x * masks_[i], kernels_[i]));
    return gates.size() == 1 ? gates[0] : concat(gates, -1);
  }

 private:
  TensorList kernels_, masks_;
};

// Weights, dropout and single steps; what the gates do is left to each cell.
template <class Options, int kGates>
class GatedCell : public ConfiguredLayer<CellSettings<Options>>, public RecurrentCell {
 public:
  GatedCell(const char* class_name, CellSettings<Options> settings)
      : ConfiguredLayer<CellSettings<Options>>(class_name, std::move(settings)),
        source_(*this, options().seed) {}

  void build(const Shape& input) override {
    require(input.rank() == 2, ErrorCode::shape_mismatch, this->where(), this->class_name(),
            " takes one step of shape (batch, features), received ", input);
    const Options& o = options();
    kernel_ = this->add_weight("kernel", {input[-1], kGates * units()},
                               {.initializer = o.kernel_initializer,
                                .regularizer = o.kernel_regularizer,
                                .constraint = o.kernel_constraint});
    recurrent_kernel_ = this->add_weight("recurrent_kernel", {units(), kGates * units()},
                                         {.initializer = o.recurrent_initializer,
                                          .regularizer = o.recurrent_regularizer,
                                          .constraint = o.recurrent_constraint});
    if (o.use_bias)
      bias_ = this->add_weight("bias", bias_shape(),
                               {.initializer = bias_initializer(),
                                .regularizer = o.bias_regularizer,
                                .constraint = o.bias_constraint});
  }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    const Run run = begin(expand_dims(inputs[0], 0), context.training);
    TensorList results =
        run.step(squeeze(run.inputs, {0}), starting_states(*this, context.initial_state, state_shapes(),
                                                           inputs[0].shape()[0], this->compute_dtype()));
    results.insert(results.begin(), results[0]);
    return results;
  }

  std::vector<Shape> state_shapes() const override { return {Shape{units()}}; }

 protected:
  virtual Shape bias_shape() const { return {kGates * units()}; }
  virtual Initializer bias_initializer() const { return options().bias_initializer; }

  int64_t units() const { return this->settings_.units; }
  const Options& options() const { return this->settings_.options; }
  Tensor weight(const Variable& variable) const { return cast(variable, this->compute_dtype()); }

  // With dropout of the state every gate has masks of its own, as in Keras.
  TensorList masks(int64_t batch, int64_t size, double rate, bool training) const {
    if (!training || rate == 0) return {};
    const Tensor ones = Tensor::full(this->compute_dtype(), {batch, size}, 1);
    TensorList masks;
    const int count =
        options().recurrent_dropout > 0 ? kGates : 1;  // NOLINT(bugprone-branch-clone): cells of one gate
    for (int i = 0; i < count; ++i) masks.push_back(dropout(ones, rate, {.generator = source_.generator()}));
    return masks;
  }
  // The sequence's part of all gates at all steps.
  Tensor projected(const Tensor& sequence, const Tensor& bias, bool training) const {
    const Shape& shape = sequence.shape();
    const Product product(weight(kernel_), masks(shape[1], shape[2], options().dropout, training));
    const Tensor inputs = product(sequence);
    return bias.defined() ? inputs + bias : inputs;
  }
  TensorList recurrent_masks(const Tensor& sequence, bool training) const {
    return masks(sequence.shape()[1], units(), options().recurrent_dropout, training);
  }
  // Whether the steps are those of the op that takes all at once.
  bool as_one_op(bool training) const {
    const Options& o = options();
    const auto is = [](const keras::Activation& activation, const char* name) {
      return activation.name() == name && is_built_in_activation(name);
    };
    if constexpr (requires { o.recurrent_activation; })
      if (!is(o.recurrent_activation, "sigmoid")) return false;
    return is(o.activation, "tanh") && !(training && o.recurrent_dropout > 0);
  }
  // The run, with all steps as one op where the cell's settings allow it.
  Run with_whole(Run run, RecurrentKind kind, const Tensor& bias, bool training) const {
    if (as_one_op(training))
      run.whole = [kind, bias, x = run.inputs, kernel = weight(recurrent_kernel_)](
                      const TensorList& states, RecurrenceOptions options) {
        options.bias = bias;
        return recurrence(kind, x, kernel, states, options);
      };
    return run;
  }
  Tensor bias() const { return bias_.defined() ? weight(bias_) : Tensor(); }

  Variable kernel_, recurrent_kernel_, bias_;

 private:
  NoiseSource source_;
};

class SimpleRNNCellLayer final : public GatedCell<SimpleRNNCellOptions, 1> {
 public:
  static constexpr const char* kClassName = "SimpleRNNCell";
  using GatedCell::GatedCell;

  Run begin(const Tensor& sequence, bool training) const override {
    return with_whole({projected(sequence, bias(), training),
                       [activation = options().activation,
                        recurrent = Product(weight(recurrent_kernel_), recurrent_masks(sequence, training))](
                           const Tensor& x, std::span<const Tensor> states) {
                         return TensorList{activation(x + recurrent(states[0]))};
                       }},
                      RecurrentKind::simple, {}, training);
  }
};
const RegisterLayer<SimpleRNNCellLayer> simple_rnn_cell;

class LSTMCellLayer final : public GatedCell<LSTMCellOptions, 4> {
 public:
  static constexpr const char* kClassName = "LSTMCell";
  using GatedCell::GatedCell;

  std::vector<Shape> state_shapes() const override { return {Shape{units()}, Shape{units()}}; }

  Run begin(const Tensor& sequence, bool training) const override {
    return with_whole({projected(sequence, bias(), training),
                       [activation = options().activation, gate = options().recurrent_activation,
                        recurrent = Product(weight(recurrent_kernel_), recurrent_masks(sequence, training))](
                           const Tensor& x, std::span<const Tensor> states) {
                         const TensorList z = split(x + recurrent(states[0]), 4, -1);
                         const Tensor c = gate(z[1]) * states[1] + gate(z[0]) * activation(z[2]);
                         return TensorList{gate(z[3]) * activation(c), c};
                       }},
                      RecurrentKind::lstm, {}, training);
  }

 protected:
  Initializer bias_initializer() const override {
    const Initializer& others = options().bias_initializer;
    return options().unit_forget_bias ? forget_bias(others) : others;
  }
};
const RegisterLayer<LSTMCellLayer> lstm_cell;

class GRUCellLayer final : public GatedCell<GRUCellOptions, 3> {
 public:
  static constexpr const char* kClassName = "GRUCell";
  using GatedCell::GatedCell;

  Run begin(const Tensor& sequence, bool training) const override {
    return options().reset_after ? begin_after(sequence, training) : begin_before(sequence, training);
  }

 protected:
  Shape bias_shape() const override {
    return options().reset_after ? Shape{2, 3 * units()} : GatedCell::bias_shape();
  }

 private:
  // h' = z h + (1 - z) candidate
  static TensorList blend(const Tensor& z, const Tensor& h, const Tensor& candidate) {
    return {candidate + z * (h - candidate)};
  }

  Run begin_after(const Tensor& sequence, bool training) const {
    const TensorList biases = bias_.defined() ? unstack(bias()) : TensorList(2);
    const Tensor inner_bias =
        biases[1].defined() ? biases[1] : Tensor::full(this->compute_dtype(), {3 * units()}, 0);
    return with_whole(
        {projected(sequence, biases[0], training),
         [activation = options().activation, gate = options().recurrent_activation, bias = biases[1],
          recurrent = Product(weight(recurrent_kernel_), recurrent_masks(sequence, training))](
             const Tensor& x, std::span<const Tensor> states) {
           const Tensor inner = recurrent(states[0]);
           const TensorList of_x = split(x, 3, -1),
                            of_h = split(bias.defined() ? inner + bias : inner, 3, -1);
           const Tensor z = gate(of_x[0] + of_h[0]), r = gate(of_x[1] + of_h[1]);
           return blend(z, states[0], activation(of_x[2] + r * of_h[2]));
         }},
        RecurrentKind::gru, inner_bias, training);
  }

  Run begin_before(const Tensor& sequence, bool training) const {
    TensorList gate_masks = recurrent_masks(sequence, training), candidate_masks;
    if (!gate_masks.empty()) {
      candidate_masks = {gate_masks.back()};
      gate_masks.pop_back();
    }
    const TensorList kernels = split(weight(recurrent_kernel_), {2 * units(), units()}, 1);
    return {projected(sequence, bias(), training),
            [activation = options().activation, gate = options().recurrent_activation,
             recurrent = Product(kernels[0], gate_masks), candidate = Product(kernels[1], candidate_masks)](
                const Tensor& x, std::span<const Tensor> states) {
              const Tensor& h = states[0];
              const TensorList of_x = split(x, 3, -1), of_h = split(recurrent(h), 2, -1);
              const Tensor z = gate(of_x[0] + of_h[0]), r = gate(of_x[1] + of_h[1]);
              return blend(z, h, activation(of_x[2] + candidate(r * h)));
            }};
  }
};
const RegisterLayer<GRUCellLayer> gru_cell;

// --- cells on cells ----------------------------------------------------------------------------------------

struct StackedSettings {
  std::vector<Layer> cells;
  StackedRNNCellsOptions options;
  void visit(auto& v) { v("cells", cells); }
};

class StackedRNNCellsLayer final : public ConfiguredLayer<StackedSettings> {
 public:
  static constexpr const char* kClassName = "StackedRNNCells";
  StackedRNNCellsLayer(const char* class_name, StackedSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    require(!settings_.cells.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "StackedRNNCells: no cells were given");
    for (const Layer& cell : settings_.cells) cells_of(track(cell), class_name);
  }

  void build(const Shape& input) override {
    Shape step = input;
    for (const Layer& cell : settings_.cells) {
      cell.build(step, where());
      step[-1] = cells_of(cell, kClassName)[0]->state_shapes()[0][-1];
    }
  }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    TensorList results = {inputs[0]}, given = context.initial_state;
    size_t used = 0;
    for (const Layer& cell : settings_.cells) {
      const size_t states = cells_of(cell, kClassName)[0]->state_shapes().size();
      CallOptions options{.training = context.training};
      for (size_t i = 0; i < states && used < given.size(); ++i)
        options.initial_state.push_back(given[used++]);
      const TensorList made = cell.apply(TensorList{results[0]}, options);
      results[0] = made[0];
      results.insert(results.end(), made.begin() + 1, made.end());
    }
    require(used == given.size(), ErrorCode::invalid_argument, where(), "StackedRNNCells \"", name(),
            "\": initial_state has ", given.size(), " tensors, ", used, " are states of its cells");
    return results;
  }

  std::vector<std::string> stored_names() const override { return names_by_class("cells/", layers()); }
  const std::vector<Layer>& cells() const { return settings_.cells; }
};
const RegisterLayer<StackedRNNCellsLayer> stacked_rnn_cells;

class ForgetBias final : public Initializer::Rule {
 public:
  explicit ForgetBias(Initializer others) : others_(std::move(others)) {}
  Tensor make(const Shape& shape, DType dtype) const override {
    const int64_t units = shape[0] / 4;
    return concat(
        TensorList{others_({units}, dtype), Tensor::full(dtype, {units}, 1), others_({2 * units}, dtype)}, 0);
  }
  std::string class_name() const override { return "ForgetBias"; }

 private:
  Initializer others_;
};

}  // namespace

Initializer forget_bias(const Initializer& others) {
  return Initializer(std::make_shared<ForgetBias>(others));
}

std::vector<const RecurrentCell*> cells_of(const Layer& layer, const char* user) {
  if (const auto* stack = dynamic_cast<const StackedRNNCellsLayer*>(layer.base().get())) {
    std::vector<const RecurrentCell*> cells;
    for (const Layer& cell : stack->cells()) {
      const auto inner = cells_of(cell, user);
      cells.insert(cells.end(), inner.begin(), inner.end());
    }
    return cells;
  }
  const auto* cell = dynamic_cast<const RecurrentCell*>(layer.base().get());
  require(cell, ErrorCode::invalid_argument, std::source_location::current(), user,
          " takes SimpleRNNCell, LSTMCell, GRUCell or StackedRNNCells, received ",
          layer.defined() ? layer.class_name() : "none");
  return {cell};
}

Layer SimpleRNNCell(int64_t units, const SimpleRNNCellOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SimpleRNNCellLayer>({units, options});
}
Layer LSTMCell(int64_t units, const LSTMCellOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<LSTMCellLayer>({units, options});
}
Layer GRUCell(int64_t units, const GRUCellOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<GRUCellLayer>({units, options});
}
Layer StackedRNNCells(const std::vector<Layer>& cells, const StackedRNNCellsOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<StackedRNNCellsLayer>({cells, options});
}

}  // namespace lockstep::keras::layers
