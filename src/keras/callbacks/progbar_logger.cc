#include <fmt/format.h>

#include <optional>

#include "keras/callbacks/progress_bar.h"
#include "keras/training/trainer.h"
#include "lockstep/base/terminal.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras::callbacks {
namespace {

class ProgbarLoggerCallback final : public CallbackBase {
 public:
  bool chief_only() const override { return true; }
  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override { training_ = true; }
  void on_train_end(const Logs&) override { training_ = false; }
  void on_epoch_begin(int epoch, const Logs&) override {
    if (params().epochs > 1) print(fmt::format("Epoch {}/{}\n", epoch + 1, params().epochs));
    begin();
  }
  void on_train_batch_end(int64_t batch, const Logs&) override { advance(batch + 1); }
  void on_epoch_end(int, const Logs& logs) override { print(bar_->final_text(logs)); }

  // Validation inside fit shows nothing of its own.
  void on_test_begin(const Logs&) override {
    if (!training_) begin();
  }
  void on_test_batch_end(int64_t batch, const Logs&) override {
    if (!training_) advance(batch + 1);
  }
  void on_test_end(const Logs& logs) override {
    if (!training_) print(bar_->final_text(logs));
  }

  void on_predict_begin(const Logs&) override { begin(); }
  void on_predict_batch_end(int64_t batch, const Logs&) override {
    if (bar_->due(batch + 1)) print(bar_->text({}));
  }
  void on_predict_end(const Logs&) override { print(bar_->final_text({})); }

 private:
  void begin() {
    bar_.emplace(ProgressBarOptions{.target = params().steps,
                                    .verbose = params().verbose,
                                    .terminal = terminal::moves(),
                                    .colours = terminal::colours(),
                                    .columns = terminal::columns().value_or(0)});
  }
  void advance(int64_t done) {
    if (bar_->due(done)) print(bar_->text(model().model_base().trainer().results()));
  }
  static void print(const std::string& text) { terminal::write(text); }

  bool training_ = false;
  std::optional<ProgressBar> bar_;
};

}  // namespace

Callback ProgbarLogger() { return make_callback<ProgbarLoggerCallback>(); }

}  // namespace lockstep::keras::callbacks
