#include "lockstep/keras/layers/recurrent.h"

#include "keras/layers/recurrent_layer.h"
#include "keras/layers/recurrent_settings.h"
#include "lockstep/base/call_site.h"

namespace lockstep::keras::layers {
namespace {

// --- layers with a cell of their own -----------------------------------------------------------------------

template <class Options>
struct RecurrentSettings {
  int64_t units = 0;
  Options options;
  void visit(auto& v) {
    visit_sequence(v, options);
    visit_cell(v, units, options);
  }
};

class SimpleRNNLayer final : public RecurrentLayer<RecurrentSettings<SimpleRNNOptions>> {
 public:
  static constexpr const char* kClassName = "SimpleRNN";
  SimpleRNNLayer(const char* class_name, RecurrentSettings<SimpleRNNOptions> settings)
      : RecurrentLayer(class_name, std::move(settings)) {
    set_cell(SimpleRNNCell(settings_.units,
                           cell_options<SimpleRNNCellOptions>(settings_.options, "simple_rnn_cell")));
  }
};
const RegisterLayer<SimpleRNNLayer> simple_rnn;

class LSTMLayer final : public RecurrentLayer<RecurrentSettings<LSTMOptions>> {
 public:
  static constexpr const char* kClassName = "LSTM";
  LSTMLayer(const char* class_name, RecurrentSettings<LSTMOptions> settings)
      : RecurrentLayer(class_name, std::move(settings)) {
    set_cell(LSTMCell(settings_.units, cell_options<LSTMCellOptions>(settings_.options, "lstm_cell")));
  }
};
const RegisterLayer<LSTMLayer> lstm;

class GRULayer final : public RecurrentLayer<RecurrentSettings<GRUOptions>> {
 public:
  static constexpr const char* kClassName = "GRU";
  GRULayer(const char* class_name, RecurrentSettings<GRUOptions> settings)
      : RecurrentLayer(class_name, std::move(settings)) {
    set_cell(GRUCell(settings_.units, cell_options<GRUCellOptions>(settings_.options, "gru_cell")));
  }
};
const RegisterLayer<GRULayer> gru;

struct RNNSettings {
  Layer cell;
  RNNOptions options;
  void visit(auto& v) {
    visit_sequence(v, options);
    v("cell", cell);
  }
};

class RNNLayer final : public RecurrentLayer<RNNSettings> {
 public:
  static constexpr const char* kClassName = "RNN";
  RNNLayer(const char* class_name, RNNSettings settings) : RecurrentLayer(class_name, std::move(settings)) {
    set_cell(settings_.cell);
  }
};
const RegisterLayer<RNNLayer> rnn;

}  // namespace

Layer SimpleRNN(int64_t units, const SimpleRNNOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SimpleRNNLayer>({units, options});
}
Layer LSTM(int64_t units, const LSTMOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<LSTMLayer>({units, options});
}
Layer GRU(int64_t units, const GRUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<GRULayer>({units, options});
}
Layer RNN(const Layer& cell, const RNNOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RNNLayer>({cell, options});
}
Layer RNN(const std::vector<Layer>& cells, const RNNOptions& options, std::source_location where) {
  const CallSite site(where);
  return RNN(StackedRNNCells(cells), options);
}

void reset_states(const Layer& layer, std::source_location where) {
  const CallSite site(where);
  require(layer.defined(), ErrorCode::failed_precondition, where, "reset_states: this names no layer");
  if (const auto* keeper = dynamic_cast<const KeepsStates*>(layer.base().get())) keeper->reset_states();
  for (const Layer& inner : layer.layers()) reset_states(inner, where);
}

}  // namespace lockstep::keras::layers
