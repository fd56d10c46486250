#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "keras/training/trainer.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras::callbacks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBarWidth = 20;
constexpr std::chrono::milliseconds kRefresh{50};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// 1:02:03, 2:03, 12s
std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
  if (whole >= 60) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string per_step_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.0f}s/step", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.0f}ms/step", seconds * 1e3);
  return fmt::format("{:.0f}us/step", seconds * 1e6);
}

std::string values_text(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs)
    text += std::abs(value) > 1e-3 ? fmt::format(" - {}: {:.4f}", name, value)
                                   : fmt::format(" - {}: {:.4e}", name, value);
  return text;
}

class ProgbarLoggerCallback final : public CallbackBase {
 public:
  void on_train_begin(const Logs&) override { training_ = true; }
  void on_train_end(const Logs&) override { training_ = false; }
  void on_epoch_begin(int epoch, const Logs&) override {
    if (params().epochs > 1) fmt::print("Epoch {}/{}\n", epoch + 1, params().epochs);
    begin(params().steps);
  }
  void on_train_batch_end(int64_t batch, const Logs&) override { advance(batch + 1); }
  void on_epoch_end(int, const Logs& logs) override { finish(logs); }

  // Validation inside fit shows nothing of its own.
  void on_test_begin(const Logs&) override {
    if (!training_) begin(params().steps);
  }
  void on_test_batch_end(int64_t batch, const Logs&) override {
    if (!training_) advance(batch + 1);
  }
  void on_test_end(const Logs& logs) override {
    if (!training_) finish(logs);
  }

  void on_predict_begin(const Logs&) override {
    predicting_ = true;
    begin(params().steps);
  }
  void on_predict_batch_end(int64_t batch, const Logs&) override { advance(batch + 1); }
  void on_predict_end(const Logs&) override {
    finish({});
    predicting_ = false;
  }

 private:
  void begin(int64_t steps) {
    terminal_ = isatty(STDOUT_FILENO) != 0;
    steps_ = steps;
    done_ = 0;
    start_ = Clock::now();
    shown_ = start_;
    std::fflush(stdout);
  }

  void advance(int64_t done) {
    done_ = done;
    if (params().verbose != 1 || !terminal_) return;
    const Clock::time_point now = Clock::now();
    if (now - shown_ < kRefresh) return;
    shown_ = now;
    const double elapsed = seconds_since(start_);
    const double step = elapsed / static_cast<double>(done_);
    const std::string left =
        steps_ > 0 ? clock_text(step * static_cast<double>(steps_ - done_)) : clock_text(elapsed);
    print_line(counter() + " " + bar() + " " + left + " " + per_step_text(step) +
               values_text(predicting_ ? Logs() : model().model_base().trainer().results()));
  }

  void finish(const Logs& logs) {
    const double elapsed = seconds_since(start_);
    const std::string step = per_step_text(elapsed / static_cast<double>(std::max<int64_t>(1, done_)));
    steps_ = done_;
    if (params().verbose == 2) {
      fmt::print("{} - {} - {}{}\n", counter(), clock_text(elapsed), step, values_text(logs));
    } else {
      print_line(counter() + " " + bar() + " " + clock_text(elapsed) + " " + step + values_text(logs));
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  std::string counter() const {
    if (steps_ <= 0) return fmt::format("{}/Unknown", done_);
    return fmt::format("{:>{}}/{}", done_, std::to_string(steps_).size(), steps_);
  }

  std::string bar() const {
    if (steps_ <= 0) return "";
    const auto filled = static_cast<int>(kBarWidth * done_ / steps_);
    std::string text = terminal_ ? "\x1b[32m" : "";
    for (int i = 0; i < kBarWidth; ++i) {
      if (i == filled && terminal_) text += "\x1b[37m";
      text += "━";
    }
    return text + (terminal_ ? "\x1b[0m" : "");
  }

  void print_line(const std::string& line) const {
    fmt::print("{}{}", terminal_ ? "\r\x1b[K" : "", line);
    std::fflush(stdout);
  }

  bool training_ = false;
  bool predicting_ = false;
  bool terminal_ = false;
  int64_t steps_ = -1;
  int64_t done_ = 0;
  Clock::time_point start_;
  Clock::time_point shown_;
};

}  // namespace

Callback ProgbarLogger() { return make_callback<ProgbarLoggerCallback>(); }

}  // namespace lockstep::keras::callbacks
