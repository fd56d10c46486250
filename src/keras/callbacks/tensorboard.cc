// Event files of a run, as Keras' callback of this name writes them.
#include <chrono>
#include <filesystem>
#include <optional>

#include "keras/functional_graph.h"
#include "keras/models/functional_model.h"
#include "keras/range.h"
#include "lockstep/base/call_site.h"
#include "lockstep/device/device.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/event_writer.h"

namespace lockstep::keras::callbacks {
namespace {

using train::EventWriter;
using train::GraphNode;

// Layers as nodes, models inside as groups.
void add_nodes(const ModelBase& model, const std::string& prefix, std::vector<GraphNode>& nodes) {
  if (const auto* functional = dynamic_cast<const FunctionalModel*>(&model)) {
    for (const auto& call : functional->graph().calls) {
      GraphNode node{prefix + call->layer.name(), call->layer.class_name(), {}};
      for (const KerasTensor& input : call->inputs) node.inputs.push_back(prefix + input.name());
      nodes.push_back(std::move(node));
      if (const auto* inner = dynamic_cast<const ModelBase*>(call->layer.base().get()))
        add_nodes(*inner, prefix + call->layer.name() + "/", nodes);
    }
    return;
  }
  std::string before;
  for (const KerasTensor& input : model.inputs())
    nodes.push_back({before = prefix + input.name(), "InputLayer", {}});
  for (const Layer& layer : model.layers()) {
    GraphNode node{prefix + layer.name(), layer.class_name(), {}};
    if (!before.empty()) node.inputs.push_back(before);
    before = node.name;
    nodes.push_back(std::move(node));
    if (const auto* inner = dynamic_cast<const ModelBase*>(layer.base().get()))
      add_nodes(*inner, prefix + layer.name() + "/", nodes);
  }
}

class TensorBoardCallback final : public CallbackBase {
 public:
  TensorBoardCallback(std::string folder, const TensorBoardOptions& options)
      : folder_(std::move(folder)), options_(options) {
    require_in(kNotNegative, "TensorBoard", "histogram_freq", options.histogram_freq);
    require_in(kNotNegative, "TensorBoard", "update_freq", options.update_freq);
  }

  void on_train_begin(const Logs&) override {
    step_ = epoch_step_ = 0;
    last_batch_ = -1;
    train_.emplace((folder_ / "train").string());
    if (!options_.write_graph) return;
    std::vector<GraphNode> nodes;
    add_nodes(model().model_base(), "", nodes);
    train_->graph(nodes);
  }
  bool chief_only() const override { return true; }
  bool wants_batch_logs() const override { return options_.update_freq > 0; }
  bool needs_every_batch() const override { return options_.update_freq > 0; }
  void on_epoch_begin(int, const Logs&) override { epoch_start_ = std::chrono::steady_clock::now(); }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    const int64_t before = step_;
    step_ += batch - last_batch_;
    last_batch_ = batch;
    if (options_.update_freq <= 0 || step_ / options_.update_freq == before / options_.update_freq) return;
    for (const auto& [name, value] : logs) train_->scalar("batch_" + name, value, step_);
  }
  void on_epoch_end(int epoch, const Logs& logs) override {
    for (const auto& [name, value] : logs) {
      if (!name.starts_with("val_")) {
        train_->scalar("epoch_" + name, value, epoch);
        continue;
      }
      if (!validation_) validation_.emplace((folder_ / "validation").string());
      validation_->scalar("epoch_" + name.substr(4), value, epoch);
    }
    train_->scalar("epoch_learning_rate", model().optimizer().current_learning_rate(), epoch);
    if (options_.write_steps_per_second) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - epoch_start_;
      train_->scalar("epoch_steps_per_second", static_cast<double>(step_ - epoch_step_) / elapsed.count(),
                     epoch);
    }
    for (const Device* device : logical_devices())
      if (const MemoryInfo memory = device->memory_info(); memory.current > 0)
        train_->scalar("memory_mib" + device->name(), static_cast<double>(memory.current) / (1 << 20), epoch);
    if (options_.histogram_freq > 0 && epoch % options_.histogram_freq == 0)
      for (const Variable& weight : model().weights())
        train_->histogram(weight.name() + "/histogram", weight.value(), epoch);
    train_->flush();
    if (validation_) validation_->flush();
    epoch_step_ = step_;
    last_batch_ = -1;
  }
  void on_train_end(const Logs&) override {
    train_.reset();
    validation_.reset();
  }
  std::string state_name() const override { return "TensorBoard"; }
  void visit_state(CallbackState& state) override {
    state("step", step_);
    state("epoch_step", epoch_step_);
    state("last_batch", last_batch_);
  }

 private:
  std::filesystem::path folder_;
  TensorBoardOptions options_;
  std::optional<EventWriter> train_;
  std::optional<EventWriter> validation_;
  int64_t step_ = 0;
  int64_t epoch_step_ = 0;
  int64_t last_batch_ = -1;
  std::chrono::steady_clock::time_point epoch_start_;
};

}  // namespace

Callback TensorBoard(const std::string& folder, const TensorBoardOptions& options,
                     std::source_location where) {
  const CallSite site(where);
  return make_callback<TensorBoardCallback>(folder, options);
}

}  // namespace lockstep::keras::callbacks
