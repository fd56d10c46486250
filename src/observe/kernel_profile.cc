#include "lockstep/observe/kernel_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

namespace lockstep::observe {
namespace {

void sort_by_time(std::vector<KernelTime>& profile) {
  std::stable_sort(profile.begin(), profile.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.total_ns > b.total_ns; });
}

void add(KernelTime& to, const KernelTime& other) {
  to.calls += other.calls;
  to.total_ns += other.total_ns;
  to.flops += other.flops;
  to.half_flops += other.half_flops;
  to.bytes += other.bytes;
}

std::string table(const char* title, const std::vector<KernelTime>& profile,
                  const KernelProfileOptions& options) {
  int64_t whole = 0;
  for (const KernelTime& kernel : profile) whole += kernel.total_ns;
  const bool floors = options.flops_per_second > 0 && options.bytes_per_second > 0;
  std::string text = fmt::format("{:>10} {:>6} {:>7} {:>9} {:>8}{}  {}\n", "us/step", "share", "calls",
                                 "TFLOP/s", "GB/s", floors ? "  x floor" : "", title);
  const auto line = [&](const KernelTime& kernel, const std::string& name) {
    const double ns = static_cast<double>(std::max<int64_t>(1, kernel.total_ns));
    const double steps = options.steps;
    text +=
        fmt::format("{:>10.1f} {:>5.1f}% {:>7.0f} {:>9.1f} {:>8.0f}", ns / steps * 1e-3,
                    100 * ns / static_cast<double>(std::max<int64_t>(1, whole)),
                    static_cast<double>(kernel.calls) / steps, kernel.flops / ns * 1e-3, kernel.bytes / ns);
    if (floors) {
      const double floor_ns =
          1e9 * std::max(kernel.flops / options.flops_per_second, kernel.bytes / options.bytes_per_second);
      text += floor_ns > 0 ? fmt::format(" {:>8.2f}", ns / floor_ns) : fmt::format(" {:>8}", "");
    }
    text += fmt::format("  {}\n", name);
  };
  const size_t shown = std::min(options.rows, profile.size());
  for (size_t i = 0; i < shown; ++i) line(profile[i], profile[i].name);
  KernelTime rest;
  for (size_t i = shown; i < profile.size(); ++i) add(rest, profile[i]);
  if (rest.calls > 0) line(rest, fmt::format("({} others)", profile.size() - shown));
  KernelTime all;
  for (const KernelTime& kernel : profile) add(all, kernel);
  line(all, "all kernels");
  return text;
}

// A launch's name has the result behind the op: "matmul bfloat16(64, 10)  model/dense".
bool computes_on_half(std::string_view name) {
  const std::string_view result = name.substr(std::min(name.find(' '), name.size()));
  return result.starts_with(" bfloat16") || result.starts_with(" float16");
}

}  // namespace

double seconds_at(const KernelTime& kernel, double flops_per_second, double half_flops_per_second) {
  if (half_flops_per_second <= 0) half_flops_per_second = flops_per_second;
  return (kernel.flops - kernel.half_flops) / flops_per_second + kernel.half_flops / half_flops_per_second;
}

std::vector<KernelTime> kernel_profile(const Trace& trace) {
  std::map<std::string, KernelTime> by_name;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::span || std::string_view(event.category.c_str()) != "kernel") continue;
    KernelTime& kernel = by_name[event.name.c_str()];
    const double flops = std::max(0.0, event.value);
    add(kernel, {.name = {},
                 .calls = 1,
                 .total_ns = event.end_ns - event.start_ns,
                 .flops = flops,
                 .half_flops = computes_on_half(event.name.c_str()) ? flops : 0,
                 .bytes = static_cast<double>(std::max<int64_t>(0, event.bytes))});
  }
  std::vector<KernelTime> profile;
  for (auto& [name, kernel] : by_name) {
    kernel.name = name;
    profile.push_back(std::move(kernel));
  }
  sort_by_time(profile);
  return profile;
}

int steps_in(const Trace& trace) {
  return static_cast<int>(std::count_if(trace.events.begin(), trace.events.end(), [](const Event& event) {
    return event.replica <= 0 && std::string_view(event.name.c_str()) == "step" &&
           std::string_view(event.category.c_str()) == "step";
  }));
}

std::string to_text(const std::vector<KernelTime>& profile, const KernelProfileOptions& options) {
  std::map<std::string, KernelTime> by_op;
  for (const KernelTime& kernel : profile) {
    const std::string op = kernel.name.substr(0, kernel.name.find(' '));
    add(by_op[op], kernel);
  }
  std::vector<KernelTime> ops;
  for (auto& [name, kernel] : by_op) {
    kernel.name = name;
    ops.push_back(std::move(kernel));
  }
  sort_by_time(ops);
  return table("op", ops, options) + "\n" + table("op, result, layer", profile, options);
}

}  // namespace lockstep::observe
