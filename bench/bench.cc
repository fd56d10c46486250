#include "bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bench/waiting.h"

namespace lockstep::bench {

namespace {

constexpr int kFewestClean = 5;

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

struct Selection {
  std::vector<double> values;
  bool is_clean;
};

// The values of the rounds for which `clean` holds, or of all where those are too few.
template <class Value, class Clean>
Selection selected(size_t rounds, const Value& value, const Clean& clean) {
  std::vector<double> all, kept;
  for (size_t round = 0; round < rounds; ++round) {
    all.push_back(value(round));
    if (clean(round)) kept.push_back(all.back());
  }
  if (kept.size() >= kFewestClean) return {std::move(kept), true};
  return {std::move(all), false};
}

// Iterations for a reading of the wanted length. Finding it also warms the candidate up.
int calibrate(const Candidate& candidate, double reading_us) {
  int iterations = 1;
  for (;;) {
    const double us = candidate.read(iterations).us;
    const double fit = reading_us / std::max(us, 1e-3);
    if (fit < 2.0 * iterations) return std::max(1, static_cast<int>(fit));
    iterations = static_cast<int>(std::min(fit, 8.0 * iterations));
  }
}

}  // namespace

namespace {

// Times `iterations` iterations, which one call of `run` makes.
template <class Run>
Reading timed(Run&& run, double iterations) {
  const int64_t before = waited_ns();
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  const double waited_us = static_cast<double>(waited_ns() - before) * 1e-3;
  return {.us = elapsed.count() / iterations, .disturbed = waited_us > kDisturbed * elapsed.count()};
}

}  // namespace

Candidate in_process(std::string name, std::function<void()> step, std::string note,
                     std::function<void()> finish) {
  const auto read = [step = std::move(step), finish = std::move(finish)](int iterations) {
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) step();
      if (finish) finish();
    };
    steps(1);
    return timed([&] { steps(iterations); }, iterations);
  };
  return {.name = std::move(name), .read = read, .note = std::move(note)};
}

Candidate whole(std::string name, std::function<void()> run, int64_t iterations, std::string note) {
  const auto read = [run = std::move(run), iterations, warm = std::make_shared<bool>(false)](int) {
    if (!std::exchange(*warm, true)) run();
    return timed(run, static_cast<double>(iterations));
  };
  return {.name = std::move(name), .read = read, .note = std::move(note)};
}

std::vector<Result> measure(const std::vector<Candidate>& candidates, const Effort& effort) {
  const size_t count = candidates.size();
  std::vector<Result> results(count);
  std::vector<int> iterations(count, 1);
  std::vector<std::vector<Reading>> readings(count);
  const auto guarded = [&](size_t i, const auto& action) {
    if (!results[i].error.empty()) return;
    try {
      action();
    } catch (const std::exception& e) {
      results[i].error = e.what();
    }
  };

  for (size_t i = 0; i < count; ++i) {
    results[i].name = candidates[i].name;
    results[i].note = candidates[i].note;
    results[i].is_peer = candidates[i].is_peer;
    results[i].aside = candidates[i].aside;
    results[i].flops = candidates[i].flops;
    results[i].traffic = candidates[i].traffic;
    guarded(i, [&] { iterations[i] = calibrate(candidates[i], effort.reading_us); });
  }
  for (int round = 0; round < effort.rounds; ++round)
    for (size_t k = 0; k < count; ++k) {
      // Another one begins each round: none is always measured after the same neighbour's leftovers.
      const size_t i = (k + static_cast<size_t>(round)) % count;
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(effort.pause_us));
      guarded(i, [&] { readings[i].push_back(candidates[i].read(iterations[i])); });
    }

  for (size_t i = 0; i < count; ++i) {
    if (!results[i].error.empty()) continue;
    const auto clean = [&](size_t round) { return !readings[i][round].disturbed; };
    const auto us = [&](size_t round) { return readings[i][round].us; };
    const size_t rounds = readings[i].size();
    for (const Reading& reading : readings[i])
      results[i].memory = std::max(results[i].memory, reading.memory);
    const Selection kept = selected(rounds, us, clean);
    results[i].us = quantile(kept.values, 0.5);
    results[i].low = quantile(kept.values, 0.25);
    results[i].high = quantile(kept.values, 0.75);
    results[i].us_is_clean = kept.is_clean;
    results[i].rounds = static_cast<int>(rounds);
    results[i].clean = static_cast<int>(std::ranges::count(readings[i], false, &Reading::disturbed));
    if (!results[0].error.empty()) continue;
    const Selection ratios = selected(
        rounds, [&](size_t round) { return us(round) / readings[0][round].us; },
        [&](size_t round) { return clean(round) && !readings[0][round].disturbed; });
    results[i].ratio = quantile(ratios.values, 0.5);
    results[i].ratio_is_clean = ratios.is_clean;
  }
  return results;
}

std::vector<Result> measure_apart(std::vector<Candidate> ours, const std::vector<Candidate>& others,
                                  const Effort& effort, const std::function<void()>& release) {
  std::vector<Result> results = measure(ours, effort);
  ours.clear();
  for (const Candidate& other : others) {
    Result result = measure({other}, effort)[0];
    result.ratio = {};
    if (results[0].error.empty() && result.error.empty()) result.ratio = result.us / results[0].us;
    results.push_back(std::move(result));
    release();
  }
  return results;
}

std::string Measurement::id() const { return batch > 0 ? fmt::format("{}/{}", work, batch) : work; }

std::optional<Share> share_of_ceiling(const Measurement& measurement, const Result& result) {
  if (!measurement.ceiling || measurement.results.empty() || result.us <= 0) return {};
  const Result& first = measurement.results[0];
  if (first.flops <= 0 && first.traffic <= 0) return {};
  const double seconds = result.us * 1e-6;
  return Share{.flops = first.flops / measurement.ceiling->flops_per_second / seconds,
               .bytes = first.traffic / measurement.ceiling->bytes_per_second / seconds};
}

std::string as_table(const Measurement& m) {
  const bool has_floor = !m.results.empty() && m.results[0].name == "floor";
  const auto any = [&](auto&& has) { return std::ranges::any_of(m.results, has); };
  const bool shares = any([&](const Result& r) { return share_of_ceiling(m, r).has_value(); });
  const bool memory = any([](const Result& r) { return r.memory > 0; });
  const bool first_steps = any([](const Result& r) { return r.first_step_s.has_value(); });
  size_t width = 10;
  for (const Result& r : m.results) width = std::max(width, r.name.size());
  std::string text =
      fmt::format("{}{}, {}\n", m.work, m.batch > 0 ? fmt::format(", batch {}", m.batch) : "",
                  m.on_gpu ? "GPU" : fmt::format("{} thread{}", m.threads, m.threads == 1 ? "" : "s"));
  text += fmt::format("  {:<{}}  {:>10}  {:>21}  {:>8}  {:>7}{}{}{}{}{}\n", "", width, "us/step", "quartiles",
                      has_floor ? "x floor" : "x first", "clean", m.bytes > 0 ? "      GB/s" : "",
                      m.items > 0 ? fmt::format("  {:>10}", m.item + "/s") : "",
                      shares ? "  % flops  % bytes" : "", memory ? "       MiB" : "",
                      first_steps ? "  first step, again" : "");
  bool doubtful = false;
  for (const Result& r : m.results) {
    if (!r.error.empty()) {
      text += fmt::format("  {:<{}}  {}\n", r.name, width, r.error);
      continue;
    }
    const auto doubt = [](bool is_clean) { return is_clean ? " " : "?"; };
    text += fmt::format("  {:<{}}  {:>9.1f}{}  {:>10.1f}-{:<10.1f}  {:>7}{}  {:>7}", r.name, width, r.us,
                        doubt(r.us_is_clean), r.low, r.high, r.ratio ? fmt::format("{:.2f}", *r.ratio) : "",
                        doubt(r.ratio_is_clean), fmt::format("{}/{}", r.clean, r.rounds));
    doubtful |= !r.us_is_clean || !r.ratio_is_clean;
    if (m.bytes > 0) text += fmt::format("  {:>8.1f}", m.bytes / r.us * 1e-3);
    if (m.items > 0) text += fmt::format("  {:>10.0f}", m.items / r.us * 1e6);
    if (shares) {
      const Share share = share_of_ceiling(m, r).value_or(Share{});
      text += fmt::format("  {:>7.1f}  {:>7.1f}", 100 * share.flops, 100 * share.bytes);
    }
    if (memory) text += r.memory > 0 ? fmt::format("  {:>8.1f}", mebibytes(r.memory)) : std::string(10, ' ');
    if (r.first_step_s)
      text += fmt::format("  {:>8.2f} s {:>5.2f} s", *r.first_step_s, r.first_step_again_s.value_or(0));
    text += "\n";
  }
  if (doubtful) text += "  ? too few readings were undisturbed: other processes are in this figure\n";
  for (const Result& r : m.results)
    if (!r.note.empty()) text += fmt::format("  {}: {}\n", r.name, r.note);
  return text;
}

nlohmann::json as_json(const std::vector<Measurement>& measurements) {
  auto list = nlohmann::json::array();
  for (const Measurement& m : measurements)
    for (const Result& r : m.results) {
      nlohmann::json entry{{"work", m.work}, {"candidate", r.name}};
      if (!m.on_gpu) entry["threads"] = m.threads;
      if (m.batch > 0) entry["batch"] = m.batch;
      if (!r.note.empty()) entry["note"] = r.note;
      if (!r.error.empty()) {
        entry["error"] = r.error;
      } else {
        entry["us"] = r.us;
        entry["us_is_clean"] = r.us_is_clean;
        entry["us_quartiles"] = {r.low, r.high};
        entry["clean"] = r.clean;
        entry["rounds"] = r.rounds;
        if (r.ratio) {
          entry[m.results[0].name == "floor" ? "ratio_to_floor" : "ratio_to_first"] = *r.ratio;
          entry["ratio_is_clean"] = r.ratio_is_clean;
        }
        if (m.bytes > 0) entry["gb_per_s"] = m.bytes / r.us * 1e-3;
        if (m.items > 0) entry[m.item + "_per_s"] = m.items / r.us * 1e6;
        if (const auto share = share_of_ceiling(m, r))
          entry["share_of_ceiling"] = {{"flops", share->flops}, {"bytes", share->bytes}};
        if (r.flops > 0) entry["flops"] = r.flops;
        if (r.traffic > 0) entry["bytes_accessed"] = r.traffic;
        if (r.memory > 0) entry["peak_memory_bytes"] = r.memory;
        if (r.first_step_s) entry["first_step_s"] = *r.first_step_s;
        if (r.first_step_again_s) entry["first_step_again_s"] = *r.first_step_again_s;
      }
      list.push_back(std::move(entry));
    }
  return list;
}

}  // namespace lockstep::bench
