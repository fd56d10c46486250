#include "keras/callbacks/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/terminal.h"

namespace lockstep::keras {
namespace {

constexpr int kWidth = 20;
constexpr int64_t kRefreshNs = 50'000'000;

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// 1:02:03, 2:03, 12s
std::string time_left(double left) {
  const auto whole = static_cast<int64_t>(left);
  if (left > 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
  if (left > 60) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string per_step_text(double each) {
  if (each >= 1 || each == 0) return fmt::format("{:.0f}s/step", each);
  if (each >= 1e-3) return fmt::format("{:.0f}ms/step", each * 1e3);
  return fmt::format("{:.0f}us/step", each * 1e6);
}

// The values of one metric, "f1_score[0]", "f1_score[1]", ..., are shown as their mean, as Keras does.
std::string values_text(const Logs& logs) {
  std::string text;
  const auto& entries = logs.entries();
  for (auto entry = entries.begin(); entry != entries.end();) {
    const std::string name = entry->first.substr(0, entry->first.find('['));
    double sum = 0, count = 0;
    for (; entry != entries.end() && entry->first.substr(0, entry->first.find('[')) == name; ++entry, ++count)
      sum += entry->second;
    const double value = sum / count;
    text += std::abs(value) > 1e-3 ? fmt::format(" - {}: {:.4f}", name, value)
                                   : fmt::format(" - {}: {:.4e}", name, value);
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(const ProgressBarOptions& options)
    : options_(options), start_(options.clock->now_ns()), now_(start_) {}

bool ProgressBar::due(int64_t done) {
  const bool first = first_done_ == 0;
  const bool moves = options_.verbose == 1 && options_.terminal;
  done_ = done;
  if (!first && !moves) return false;
  now_ = options_.clock->now_ns();
  if (first) first_done_ = now_, first_steps_ = done;
  if (!moves || (shown_ != 0 && now_ - shown_ < kRefreshNs)) return false;
  shown_ = now_;
  return true;
}

double ProgressBar::seconds_per_step() const {
  if (done_ == 0) return 0;
  if (done_ > first_steps_ && first_steps_ > 0)
    return seconds(now_ - first_done_) / static_cast<double>(done_ - first_steps_);
  return seconds(now_ - start_) / static_cast<double>(done_);
}

std::string ProgressBar::text(const Logs& values) const {
  const double each = seconds_per_step();
  const std::string time = options_.target > 0
                               ? time_left(each * static_cast<double>(options_.target - done_))
                               : fmt::format("{:.0f}s", seconds(now_ - start_));
  std::string text = line(each, time, "");
  Logs shown;
  // What is overwritten must stay on one line: the last values go where there is no room for them.
  for (const auto& [name, value] : values) {
    shown.set(name, value);
    std::string longer = line(each, time, values_text(shown));
    if (options_.columns > 0 && terminal::width(longer) > options_.columns) break;
    text = std::move(longer);
  }
  return text;
}

std::string ProgressBar::final_text(const Logs& values) {
  now_ = options_.clock->now_ns();
  if (options_.target <= 0) options_.target = done_;
  const std::string time = fmt::format("{:.0f}s", seconds(now_ - start_));
  const std::string text = options_.verbose == 2
                               ? fmt::format("{} - {} - {}{}", counter(), time,
                                             per_step_text(seconds_per_step()), values_text(values))
                               : line(seconds_per_step(), time, values_text(values));
  return (options_.columns > 0 ? terminal::wrapped(text, options_.columns) : text) + "\n";
}

std::string ProgressBar::line(double each, const std::string& time, const std::string& values) const {
  const char* bold = options_.colours ? "\x1b[1m" : "";
  const char* plain = options_.colours ? "\x1b[0m" : "";
  const auto with_bar = [&](int width) {
    const std::string front = options_.target > 0 ? fmt::format("{}{}{}{}{}", bold, counter(), plain,
                                                                width > 0 ? " " : "", bar(width))
                                                  : fmt::format("{:>7}/Unknown", done_);
    return fmt::format("{}{} {}{}{} {}{}", options_.terminal ? "\r\x1b[K" : "", front, bold, time, plain,
                       per_step_text(each), values);
  };
  const std::string whole = with_bar(kWidth);
  const int over = options_.columns > 0 ? terminal::width(whole) - options_.columns : 0;
  // The bar makes room first.
  return over <= 0 ? whole : with_bar(std::max(0, kWidth - over));
}

std::string ProgressBar::counter() const {
  const std::string target = std::to_string(options_.target);
  return fmt::format("{:>{}}/{}", done_, target.size(), target);
}

std::string ProgressBar::bar(int width) const {
  if (width == 0) return "";
  const auto filled = static_cast<int>(width * done_ / std::max<int64_t>(1, options_.target));
  std::string text = options_.colours ? "\x1b[32m" : "";
  for (int i = 0; i < width; ++i) {
    // Without colours the part that is left must look different.
    if (i == filled && options_.colours) text += "\x1b[37m";
    text += i < filled || options_.colours || !options_.terminal ? "━" : "╌";
  }
  return text + (options_.colours ? "\x1b[0m" : "");
}

}  // namespace lockstep::keras
