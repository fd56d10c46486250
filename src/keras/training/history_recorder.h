// Writes the logs of every epoch into a History.
#pragma once

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

  History history;

 private:
  std::vector<double>& values_of(const std::string& name) {
    for (auto& [known, values] : history.history)
      if (known == name) return values;
    return history.history.emplace_back(name, std::vector<double>()).second;
  }
};

}  // namespace lockstep::keras
