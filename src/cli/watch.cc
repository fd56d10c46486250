#include "cli/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/page/server.h"
#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"

namespace lockstep::cli {
namespace {

using observe::RunRecord;

std::string time_text(double ms) {
  if (ms < 1) return fmt::format("{:.3g} us", ms * 1e3);
  if (ms < 1e3) return fmt::format("{:.3g} ms", ms);
  if (ms < 120e3) return fmt::format("{:.3g} s", ms / 1e3);
  const auto minutes = static_cast<int64_t>(ms / 60e3);
  return minutes < 120 ? fmt::format("{} min", minutes)
                       : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string memory_text(int64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

// Values in a line of blocks, eight heights each, the last ones where there are too many; a gap where there
// is no number.
std::string line_of_blocks(const std::vector<double>& values, size_t most) {
  constexpr std::array<std::string_view, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t first = values.size() > most ? values.size() - most : 0;
  double least = INFINITY, largest = -INFINITY;
  for (size_t i = first; i < values.size(); ++i)
    if (std::isfinite(values[i])) least = std::min(least, values[i]), largest = std::max(largest, values[i]);
  std::string text;
  for (size_t i = first; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      text += ' ';
      continue;
    }
    const double height = largest > least ? (values[i] - least) / (largest - least) : 0;
    text += kBlocks[std::min<size_t>(7, static_cast<size_t>(8 * height))];
  }
  return text;
}

std::string bar(double share, size_t width) {
  const auto full = static_cast<size_t>(
      std::clamp(std::round(share * static_cast<double>(width)), 0.0, static_cast<double>(width)));
  std::string text;
  for (size_t i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

// The part of all steps that is made, where that is known.
double progress(const RunRecord& record) {
  const double all = static_cast<double>(record.epochs) * static_cast<double>(record.steps_per_epoch);
  if (record.steps_per_epoch > 0 && all > 0) return std::min(1.0, static_cast<double>(record.step) / all);
  return record.epochs > 0 ? static_cast<double>(record.epoch) / static_cast<double>(record.epochs) : 0;
}

std::string state_text(const RunRecord& record) {
  return observe::looks_dead(record) ? "killed" : std::string(name(record.state));
}

bool ended(const RunRecord& record) {
  return record.state != RunRecord::State::running || observe::looks_dead(record);
}

// Writes over what it wrote before.
class Screen {
 public:
  void show(const std::string& text) {
    std::string out = lines_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_) : "";
    out += text;
    lines_ = std::count(text.begin(), text.end(), '\n');
    terminal::write(out);
  }

 private:
  int64_t lines_ = 0;
};

void watch_terminal(const std::string& run, double interval_s) {
  Screen screen;
  const bool moves = terminal::moves();
  std::string last;
  while (true) {
    const RunRecord record = observe::read_record(run);
    const std::string text =
        moves ? watch_text(record, terminal::columns().value_or(80)) : watch_line(record) + "\n";
    if (moves)
      screen.show(text);
    else if (text != last && !terminal::write(text))
      return;  // nobody reads any more
    last = text;
    if (ended(record)) {
      if (!moves) terminal::print(watch_text(record, terminal::columns().value_or(100)));
      return;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  }
}

}  // namespace

std::string watch_line(const RunRecord& record) {
  std::string text =
      fmt::format("{}: {}, step {}, epoch {} of {}", record.model, state_text(record), record.step,
                  std::min(record.epoch + (ended(record) ? 0 : 1), record.epochs), record.epochs);
  if (!record.losses.empty()) text += fmt::format(", loss {:.4g}", record.losses.back().loss);
  if (record.examples_per_second > 0) text += fmt::format(", {:.0f} examples/s", record.examples_per_second);
  if (!record.verdicts.empty()) text += ", " + record.verdicts.front().id;
  return text;
}

std::string watch_text(const RunRecord& record, int columns) {
  const auto room = static_cast<size_t>(std::clamp(columns - 36, 8, 60));
  std::string text =
      fmt::format("{} · {} · epoch {} of {} · step {} · {}\n", record.model, state_text(record),
                  std::min(record.epoch + (ended(record) ? 0 : 1), record.epochs), record.epochs, record.step,
                  time_text(static_cast<double>(record.updated_ms - record.started_ms)));
  text += fmt::format("{} {:.0f}%\n", bar(progress(record), room), 100 * progress(record));
  const auto row = [&](std::string_view name, const std::string& value, const std::string& picture) {
    text += fmt::format("  {:<22} {:>9} {}\n", name.substr(0, 22), value, picture);
  };
  if (!record.losses.empty()) {
    std::vector<double> losses;
    for (const RunRecord::Loss& loss : record.losses) losses.push_back(loss.loss);
    row("loss of the last step", fmt::format("{:.4g}", losses.back()), line_of_blocks(losses, room));
  }
  for (const RunRecord::Curve& curve : record.curves)
    if (!curve.values.empty())
      row(curve.name, fmt::format("{:.4g}", curve.values.back()), line_of_blocks(curve.values, room));
  if (!record.replicas.empty() && record.replicas.front().steps > 0) {
    double mean = 0;
    std::vector<double> times(record.categories.size());
    for (const RunRecord::Replica& replica : record.replicas) {
      mean += replica.mean_ms;
      for (size_t c = 0; c < times.size(); ++c) times[c] += replica.times_ms[c];
    }
    const auto replicas = static_cast<double>(record.replicas.size());
    text +=
        fmt::format("{:.0f} examples/s, {} per step (median {}, p95 {}) on {} replica{}\n",
                    record.examples_per_second, time_text(mean / replicas),
                    time_text(record.replicas.front().median_ms), time_text(record.replicas.front().p95_ms),
                    record.replicas.size(), record.replicas.size() == 1 ? "" : "s");
    if (record.others_ms > 0 && record.state == RunRecord::State::running)
      text += fmt::format("  of other workers as it was {:.0f} s ago\n",
                          static_cast<double>(record.updated_ms - record.others_ms) / 1000);
    for (size_t c = 0; c < times.size(); ++c)
      if (mean > 0 && times[c] >= 0.0005 * mean)
        row(record.categories[c], fmt::format("{:.1f}%", 100 * times[c] / mean), bar(times[c] / mean, room));
  }
  for (const RunRecord::Memory& memory : record.memory) {
    if (&memory - record.memory.data() == 4) {
      text += fmt::format("  and {} more devices\n", record.memory.size() - 4);
      break;
    }
    if (memory.peak > 0)
      text += fmt::format("  {}: {} at the peak\n", memory.device, memory_text(memory.peak));
  }
  for (const observe::Verdict& verdict : record.verdicts)
    text += fmt::format("{}: {}\n  fix: {}\n", verdict.id, verdict.cause, verdict.fix);
  if (record.verdicts.empty() && !record.bound.empty()) text += "healthy: " + record.bound + "\n";
  // What is wider than the terminal would take lines that nobody counts.
  return terminal::wrapped(text, std::max(columns, 20));
}

void add_watch(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("watch", "Show how a run goes, until it ends: here, or in a browser");
  struct Settings {
    std::string run, http;
    double interval = 1;
  };
  auto settings = std::make_shared<Settings>();
  command->add_option("run", settings->run, "The output folder of a run, or its record.json")->required();
  command
      ->add_option(
          "--http", settings->http,
          "Serve a page at this address instead, as 127.0.0.1:8080 (port 0: any that is free), until Ctrl-C")
      ->type_name("HOST:PORT");
  command->add_option("--interval", settings->interval, "Seconds between two looks")
      ->check(positive_number())
      ->capture_default_str();
  command->footer(
      "On a terminal the picture is drawn in place, elsewhere a line is written whenever something has "
      "changed.\n"
      "A page on the loopback (127.0.0.1, localhost, [::1]) is for this machine. On any other address "
      "everybody who reaches the "
      "machine could read it: its URL then has a random token in it, and without that there is no answer.");
  command->callback([settings, &status] {
    observe::read_record(settings->run);  // what is not there is told at once
    if (settings->http.empty())
      watch_terminal(settings->run, settings->interval);
    else
      PageServer(settings->run, settings->http).serve([](const std::string& url) {
        print_result("open " + url + " in a browser; Ctrl-C ends it\n");
      });
    status = 0;
  });
}

}  // namespace lockstep::cli
