#include "device/ceilings.h"

#include <immintrin.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "device/configuration.h"
#include "device/cpu_device.h"
#include "device/gpu_driver.h"
#include "device/why_one_device.h"
#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

// Enough chains to hide the latency of two units of four cycles.
constexpr int kChains = 12;

thread_local volatile float sink;  // what is computed must be used

#if defined(__clang__)
#define LOCKSTEP_UNROLLED _Pragma("unroll")
#else
#define LOCKSTEP_UNROLLED _Pragma("GCC unroll 12")
#endif

__attribute__((target("avx512f"))) double with_avx512(int64_t rounds) {
  __m512 chains[kChains];
  LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm512_fmadd_ps(chains[c], a, b);
  }
  __m512 sum = chains[0];
  LOCKSTEP_UNROLLED for (int c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, chains[c]);
  sink = _mm512_cvtss_f32(sum);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double with_avx2(int64_t rounds) {
  __m256 chains[kChains];
  LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm256_fmadd_ps(chains[c], a, b);
  }
  __m256 sum = chains[0];
  LOCKSTEP_UNROLLED for (int c = 1; c < kChains; ++c) sum = _mm256_add_ps(sum, chains[c]);
  sink = _mm256_cvtss_f32(sum);
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

double with_sse(int64_t rounds) {
  __m128 chains[kChains];
  LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm_set1_ps(static_cast<float>(c));
  const __m128 a = _mm_set1_ps(0.5f), b = _mm_set1_ps(1.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    LOCKSTEP_UNROLLED for (int c = 0; c < kChains; ++c) chains[c] = _mm_add_ps(_mm_mul_ps(chains[c], a), b);
  }
  __m128 sum = chains[0];
  LOCKSTEP_UNROLLED for (int c = 1; c < kChains; ++c) sum = _mm_add_ps(sum, chains[c]);
  sink = _mm_cvtss_f32(sum);
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

}  // namespace

double multiply_adds(int64_t rounds) {
  if (__builtin_cpu_supports("avx512f")) return with_avx512(rounds);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return with_avx2(rounds);
  return with_sse(rounds);
}

double measure_multiply_adds(int threads) {
  constexpr int64_t kRounds = 100000;
  std::vector<double> flops(static_cast<size_t>(threads));
  const TeamScope team(threads);
  const int64_t begin = monotonic_ns();
  parallel(threads, [&](int index) { flops[static_cast<size_t>(index)] = multiply_adds(kRounds); });
  const auto ns = static_cast<double>(std::max<int64_t>(1, monotonic_ns() - begin));
  double all = 0;
  for (const double f : flops) all += f;
  return all * 1e9 / ns;
}

namespace {

double measured_once(int threads) {
  constexpr int kReadings = 4;
  static std::mutex mutex;
  static auto* const known = new std::map<int, double>;  // by threads
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = known->try_emplace(threads, 0);
  for (int i = 0; fresh && i < kReadings; ++i)
    entry->second = std::max(entry->second, measure_multiply_adds(threads));
  return entry->second;
}

// Of cores that multiply float32, by generation.
int cores_per_multiprocessor(int capability) { return capability <= 80 ? 64 : 128; }

// Per multiprocessor and clock.
int tensor_core_flops(int capability) {
  switch (capability) {
    case 80: return 2048;
    case 90: return 4096;
    case 100: return 8192;
    default: return capability >= 80 ? 1024 : 0;
  }
}

}  // namespace

GpuPeaks gpu_peaks(int capability, int multiprocessors, int clock_mhz) {
  const double clocks = static_cast<double>(multiprocessors) * clock_mhz * 1e6;
  return {2.0 * cores_per_multiprocessor(capability) * clocks, tensor_core_flops(capability) * clocks};
}

PeakFlops peak_flops(const Device& device) {
  if (device.kind() == DeviceKind::cpu) {
    const double measured = measured_once(device.threads());
    return {measured, measured};
  }
  const auto physical = static_cast<size_t>(backend_of(device).physical());
  const std::vector<PhysicalGpu>& gpus = machine_gpus().list;
  if (device.kind() != DeviceKind::gpu || physical >= gpus.size()) return {};
  const PhysicalGpu& gpu = gpus[physical];
  return peak_flops(
      gpu_peaks(10 * gpu.capability_major + gpu.capability_minor, gpu.multiprocessors, gpu.clock_mhz));
}

PeakFlops peak_flops(const GpuPeaks& peaks) {
  const double tf32 = peaks.half / 2;
  const bool allowed = Configuration::of_process().tensor_float_32;
  return {std::max(peaks.float32, allowed ? tf32 : tf32 / 3), peaks.half};
}

void DevicesOfRun::describe(observe::RunSummary& summary) const {
  observe::RunSetting& setting = summary.setting;
  setting.cores = available_cores();
  setting.threads = 0;
  for (const Device* device : devices_) {
    if (device->kind() == DeviceKind::cpu) setting.threads += device->threads();
    setting.asynchronous = setting.asynchronous || backend_of(*device).compute_stream().asynchronous();
  }
  // Threads that have ended are not counted any more.
  setting.waited_for_cores_s = static_cast<float>(std::max(0.0, waited_for_cores() - waited_before_s_));
  if (devices_.empty()) return;
  const PeakFlops peak = peak_flops(*devices_[0]);
  setting.flops_per_second = peak.float32;
  setting.half_flops_per_second = peak.half;
  const bool on_cpus = std::all_of(devices_.begin(), devices_.end(),
                                   [](const Device* device) { return device->kind() == DeviceKind::cpu; });
  if (on_cpus) summary.on_cpu = on_cpu_in_place_of_gpu();
}

void streaming_copy(float* target, const float* source, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    LOCKSTEP_UNROLLED for (int part = 0; part < 16; part += 4) {
      _mm_stream_ps(target + i + part, _mm_loadu_ps(source + i + part));
    }
  }
  for (; i < count; ++i) target[i] = source[i];
  _mm_sfence();
}

double waited_for_cores() {
  double sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    double ran = 0, waited = 0;
    if (std::ifstream(it->path() / "schedstat") >> ran >> waited) sum += waited;
  }
  return sum * 1e-9;
}

}  // namespace lockstep
