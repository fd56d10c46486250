// Writes the logs of every epoch into a History.
#pragma once

#include <sstream>
#include <string>

#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

class HistoryRecorder final : public CallbackBase {
 public:
  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override { history = {}; }
  void on_epoch_end(int epoch, const Logs& logs) override {
    history.epoch.push_back(epoch);
    for (const auto& [name, value] : logs) values_of(name).push_back(value);
  }

  // A run that goes on has the history of all of it.
  std::string state_name() const override { return "History"; }
  void visit_state(CallbackState& state) override {
    TensorList values{Tensor::from(history.epoch, {static_cast<int64_t>(history.epoch.size())})};
    std::string names;
    for (const auto& [name, of_epochs] : history.history) {
      names += name + '\n';
      values.push_back(Tensor::from(of_epochs, {static_cast<int64_t>(of_epochs.size())}));
    }
    state("names", names);
    state("values", values);
    if (!state.restores()) return;
    history = {};
    history.epoch = values.at(0).to_vector<int>();
    size_t next = 1;
    for (std::istringstream lines(names); std::getline(lines, names);)
      history.history.emplace_back(names, values.at(next++).to_vector<double>());
  }

  History history;

 private:
  std::vector<double>& values_of(const std::string& name) {
    for (auto& [known, values] : history.history)
      if (known == name) return values;
    return history.history.emplace_back(name, std::vector<double>()).second;
  }
};

}  // namespace lockstep::keras
