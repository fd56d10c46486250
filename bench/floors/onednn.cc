#include "bench/floors/onednn.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <new>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::bench {

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine = [] {
    // Refused once oneDNN has chosen its instruction set; whoever used it first has then set it.
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

const dnnl::stream& onednn_stream() {
  static const dnnl::stream stream(onednn_engine());
  return stream;
}

Buffer::Buffer(int64_t size) : size_(size) {
  constexpr size_t kLine = 64;
  const size_t bytes = (static_cast<size_t>(size) * sizeof(float) + kLine - 1) / kLine * kLine;
  data_.reset(static_cast<float*>(std::aligned_alloc(kLine, bytes)));
  if (data_ == nullptr) throw std::bad_alloc();
  std::fill_n(data_.get(), bytes / sizeof(float), 0.0f);
}

void Buffer::Free::operator()(float* p) const { std::free(p); }

void Buffer::fill(uint32_t seed, float scale) const {
  for (float& value : span()) {
    seed = seed * 1664525u + 1013904223u;
    value = scale * (static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1.0f);
  }
}

dnnl::memory::desc f32(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

dnnl::memory over(const dnnl::memory::desc& desc, float* data) { return {desc, onednn_engine(), data}; }

Call::Call(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : primitive_(std::move(primitive)) {
  for (const auto& [name, memory] : arguments) {
    memories_.push_back(memory);
    arguments_.push_back({name, memory.get()});
  }
}

void Call::operator()() const {
  dnnl_primitive_execute(primitive_.get(), onednn_stream().get(), static_cast<int>(arguments_.size()),
                         arguments_.data());
}

Call reorder(const dnnl::memory& from, const dnnl::memory& to) {
  if (from.get_desc() == to.get_desc()) return {};
  return {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

namespace {

thread_local std::optional<PickScope::Pick> picked;

double max_abs(std::span<const float> values) {
  double peak = 0;
  for (const float v : values) peak = std::max(peak, std::abs(static_cast<double>(v)));
  return peak;
}

double max_difference(std::span<const float> a, std::span<const float> b) {
  double peak = 0;
  for (size_t i = 0; i < a.size(); ++i)
    peak = std::max(peak, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return peak;
}

}  // namespace

PickScope::PickScope(Pick pick) { picked = pick; }
PickScope::~PickScope() { picked.reset(); }

size_t fastest(const std::vector<Way>& ways, double tolerance) {
  using Clock = std::chrono::steady_clock;
  const auto time_us = [](const Way& way, int times) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) way.run();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / times;
  };

  std::vector<float> expected;
  for (const Way& way : ways) {
    way.run();
    if (way.result.empty()) continue;
    if (expected.empty()) {
      expected.assign(way.result.begin(), way.result.end());
      continue;
    }
    require(expected.size() == way.result.size() &&
                max_difference(expected, way.result) <= tolerance * max_abs(expected),
            ErrorCode::internal, std::source_location::current(), "floor: ", way.name, " and ",
            ways.front().name, " disagree by ", max_difference(expected, way.result), " of ",
            max_abs(expected));
  }
  if (picked) return *picked == PickScope::first ? 0 : ways.size() - 1;
  if (ways.size() == 1) return 0;

  // Readings of about 1 ms, and of them the shortest: whatever disturbs a reading lengthens it.
  constexpr int kRounds = 16, kFewest = 6;
  constexpr std::chrono::milliseconds kLongest{500};
  std::vector<double> shortest;
  std::vector<int> repeats;
  for (const Way& way : ways) {
    shortest.push_back(time_us(way, 1));
    repeats.push_back(std::clamp(static_cast<int>(1000 / shortest.back()), 1, 1000));
  }
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    if (round >= kFewest && Clock::now() - start > kLongest) break;
    for (size_t i = 0; i < ways.size(); ++i)
      shortest[i] = std::min(shortest[i], time_us(ways[i], repeats[i]));
  }
  return static_cast<size_t>(std::ranges::min_element(shortest) - shortest.begin());
}

}  // namespace lockstep::bench
