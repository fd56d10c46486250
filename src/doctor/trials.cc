#include "doctor/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/parallel.h"
#include "device/ceilings.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Whole numbers from -2 to 2: products of matrices of them are exact in float32 (and in TF32) up to 2^22
// terms.
std::vector<float> small_numbers(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = seed;
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<int>((state >> 33) % 5) - 2);
  }
  return values;
}

// ---- Ceilings -------------------------------------------------------------------------------------------

struct Ceiling {
  double rate = 0;
  std::string is;
};

// Read and written per second by a copy, past the caches or through them: which is faster depends on the
// processor.
double cpu_bytes(const float* source, float* target, int64_t count, int threads, bool streaming) {
  const TeamScope team(threads);
  return 2.0 * sizeof(float) * static_cast<double>(count) / seconds([&] {
           parallel_for(count, 4096, threads, [&](int64_t begin, int64_t end) {
             if (streaming)
               streaming_copy(target + begin, source + begin, end - begin);
             else
               std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin) * sizeof(float));
           });
         });
}

const nvidia::Gpu* gpu_of(const Device& device, const std::vector<nvidia::Gpu>& gpus) {
  // Logical GPUs are parts of physical ones: where there is one kind of GPU, any will do.
  for (const nvidia::Gpu& gpu : gpus)
    if (gpu.visible_number == device.index()) return &gpu;
  for (const nvidia::Gpu& gpu : gpus)
    if (gpu.visible_number) return &gpu;
  return nullptr;
}

Ceiling gpu_flops(const nvidia::Gpu& gpu) {
  if (!gpu.multiprocessors || !gpu.clock_mhz) return {};
  return {peak_flops(gpu_peaks(gpu.capability, *gpu.multiprocessors, *gpu.clock_mhz)).float32,
          fmt::format("{} multiprocessors at {} MHz", *gpu.multiprocessors, *gpu.clock_mhz)};
}

Ceiling gpu_bytes(const nvidia::Gpu& gpu) {
  if (!gpu.memory_clock_mhz || !gpu.memory_bus_bits) return {};
  return {2.0 * *gpu.memory_clock_mhz * 1e6 * *gpu.memory_bus_bits / 8,
          fmt::format("{} bits at {} MHz", *gpu.memory_bus_bits, *gpu.memory_clock_mhz)};
}

// ---- Runs -----------------------------------------------------------------------------------------------

// The device has done all that it was given when a value made after it can be read.
void wait_for(Device& device) {
  const DeviceScope scope(device);
  Tensor::scalar(0.0f).item<float>();
}

struct Work {
  std::function<void()> run;
  double amount;                     // flops or bytes of one run
  std::function<double()> measured;  // a reading of the ceiling, per second; may be empty
};

// The best of readings; those for which the threads always had their cores count first.
class Best {
 public:
  void take(const std::function<double()>& read) {
    constexpr double kDisturbed = 0.02;  // part of the time
    const double waited = waited_for_cores();
    double rate = 0;
    const double time = seconds([&] { rate = read(); });
    double& best = waited_for_cores() - waited > kDisturbed * time ? disturbed_ : clean_;
    best = std::max(best, rate);
  }
  bool clean() const { return clean_ > 0; }
  double rate() const { return clean() ? clean_ : disturbed_; }

 private:
  double clean_ = 0, disturbed_ = 0;
};

// The work and its ceiling take turns, so that what else the machine does falls on both.
void measure(Device& device, const Work& work, const Effort& effort, double unit, Trial& trial) {
  Best best, ceiling;
  const auto end = Clock::now() + std::chrono::duration<double>(effort.budget_s);
  for (int round = 0; round < effort.rounds || Clock::now() < end; ++round) {
    if (work.measured) ceiling.take(work.measured);
    wait_for(device);
    best.take([&] {
      const double time = seconds([&] {
        for (int i = 0; i < effort.repeats; ++i) work.run();
        wait_for(device);
      });
      return work.amount * effort.repeats / time;
    });
  }
  trial.rate = best.rate() / unit;
  if (work.measured) trial.ceiling = ceiling.rate() / unit;
  trial.disturbed = !best.clean() || (work.measured && !ceiling.clean());
}

Trial product(Device& device, const Effort& effort, const nvidia::Gpu* gpu) {
  const int64_t n = effort.side;
  const bool on_cpu = device.kind() == DeviceKind::cpu;
  Trial trial{.device = device.name(),
              .work = fmt::format("float32 matmul, {0} x {0} x {0}", n),
              .correct = false,
              .fault = {},
              .unit = "GFLOP/s",
              .ceiling_is = on_cpu ? "multiply-adds in registers, measured now" : ""};
  const DeviceScope scope(device);
  const std::vector<float> a_values = small_numbers(n * n, 1), b_values = small_numbers(n * n, 2);
  const Tensor a = Tensor::from(a_values, {n, n}), b = Tensor::from(b_values, {n, n});
  Tensor c = matmul(a, b);
  trial.correct = is_product(a_values, b_values, c.to_vector<float>(), n);
  if (!trial.correct) trial.fault = "the product of two matrices of small whole numbers is not exact";
  if (gpu) {
    const Ceiling ceiling = gpu_flops(*gpu);
    trial.ceiling = ceiling.rate / 1e9;
    trial.ceiling_is = ceiling.is;
  }
  Work work{[&] { c = matmul(a, b); },
            2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
            {}};
  if (on_cpu) work.measured = [&] { return measure_multiply_adds(device.threads()); };
  measure(device, work, effort, 1e9, trial);
  return trial;
}

Trial addition(Device& device, const Effort& effort, const nvidia::Gpu* gpu) {
  const int64_t n = effort.elements;
  const bool on_cpu = device.kind() == DeviceKind::cpu;
  Trial trial{.device = device.name(),
              .work = fmt::format("float32 x + 1, {} MiB", n * 4 >> 20),
              .correct = false,
              .fault = {},
              .unit = "GB/s",
              .ceiling_is = on_cpu ? "a copy, measured now" : ""};
  const DeviceScope scope(device);
  const std::vector<float> values = small_numbers(n, 3);
  const Tensor x = Tensor::from(values, {n});
  Tensor y = x + 1.0f;
  const std::vector<float> result = y.to_vector<float>();
  const auto wrong = std::mismatch(values.begin(), values.end(), result.begin(),
                                   [](float before, float after) { return before + 1.0f == after; });
  trial.correct = wrong.first == values.end();
  if (!trial.correct)
    trial.fault = fmt::format("element {} should be {} and is {}", wrong.first - values.begin(),
                              *wrong.first + 1.0f, *wrong.second);
  if (gpu) {
    const Ceiling ceiling = gpu_bytes(*gpu);
    trial.ceiling = ceiling.rate / 1e9;
    trial.ceiling_is = ceiling.is;
  }
  const double bytes = 2.0 * 4 * static_cast<double>(n);
  Work work{[&] { y = x + 1.0f; }, bytes, {}};
  Tensor copy;
  if (on_cpu) {
    // From and to memory of the device's own allocator, as the work.
    copy = Tensor::empty(DType::float32, {n}, device);
    work.measured = [&, streaming = false]() mutable {
      streaming = !streaming;
      const float* source = x.data<float>().data();
      auto* target = const_cast<float*>(copy.data<float>().data());  // nobody else has this tensor
      return cpu_bytes(source, target, n, device.threads(), streaming);
    };
  }
  measure(device, work, effort, 1e9, trial);
  return trial;
}

}  // namespace

bool is_product(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c,
                int64_t side) {
  const auto times = [side](const std::vector<float>& m, const std::vector<double>& v) {
    std::vector<double> result(static_cast<size_t>(side));
    for (int64_t row = 0; row < side; ++row) {
      double sum = 0;
      for (int64_t k = 0; k < side; ++k)
        sum += static_cast<double>(m[static_cast<size_t>(row * side + k)]) * v[static_cast<size_t>(k)];
      result[static_cast<size_t>(row)] = sum;
    }
    return result;
  };
  // Whole numbers below 2^53 add up exactly in any order. Entries of v are from a set of 2^20, and a wrong
  // row passes for at most one value of each entry that it depends on.
  std::vector<double> v(static_cast<size_t>(side));
  uint64_t state = 4;
  for (double& value : v) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<double>(state >> 44);
  }
  return times(c, v) == times(a, times(b, v));
}

Effort effort_for(const Device& device) {
  if (device.kind() == DeviceKind::gpu) return {.side = 4096, .elements = int64_t{1} << 26, .repeats = 10};
  return {.side = device.threads() <= 8 ? 512 : device.threads() <= 32 ? 1024 : 2048};
}

Ceilings ceilings(const Device& device, const std::vector<nvidia::Gpu>& gpus) {
  if (device.kind() == DeviceKind::gpu) {
    const nvidia::Gpu* gpu = gpu_of(device, gpus);
    if (!gpu) return {};
    Ceilings known{.bytes_per_second = gpu_bytes(*gpu).rate};
    if (gpu->multiprocessors && gpu->clock_mhz) {
      const PeakFlops peak = peak_flops(gpu_peaks(gpu->capability, *gpu->multiprocessors, *gpu->clock_mhz));
      known.flops_per_second = peak.float32;
      known.half_flops_per_second = peak.half;
    }
    known.is = fmt::format("{}, at its highest clocks", gpu->name);
    return known;
  }
  if (device.kind() != DeviceKind::cpu) return {};
  constexpr int kReadings = 6;
  constexpr int64_t kElements = int64_t{1} << 23;
  Best flops, bytes;
  std::vector<float> source(kElements, 1.0f), target(kElements);
  for (int i = 0; i < kReadings; ++i) {
    flops.take([&] { return measure_multiply_adds(device.threads()); });
    bytes.take(
        [&] { return cpu_bytes(source.data(), target.data(), kElements, device.threads(), i % 2 == 0); });
  }
  return {flops.rate(), 0, bytes.rate(),
          fmt::format("multiply-adds in registers and copies of memory, measured on {} thread{}",
                      device.threads(), device.threads() == 1 ? "" : "s")};
}

std::vector<Trial> try_out(Device& device, const Effort& effort, const std::vector<nvidia::Gpu>& gpus) {
  const nvidia::Gpu* gpu = device.kind() == DeviceKind::gpu ? gpu_of(device, gpus) : nullptr;
  std::vector<Trial> trials;
  for (const auto work : {product, addition}) {
    try {
      trials.push_back(work(device, effort, gpu));
    } catch (const Error& error) {
      trials.push_back({.device = device.name(),
                        .work = work == product ? "float32 matmul" : "float32 x + 1",
                        .correct = false,
                        .fault = error.message()});
    }
  }
  return trials;
}

}  // namespace lockstep::doctor
