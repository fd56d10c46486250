#include "bench/breakdown/gpu_activity.h"

#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

struct Interval {
  uint64_t start, end;
};

// The time that the intervals cover.
int64_t covered(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  uint64_t total = 0, reached = 0;
  for (const Interval& each : all) {
    const uint64_t start = std::max(each.start, reached);
    if (each.end > start) total += each.end - start;
    reached = std::max(reached, each.end);
  }
  return static_cast<int64_t>(total);
}

std::vector<Interval> joined(std::vector<Interval> a, const std::vector<Interval>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// CUPTI hands its records to functions, on threads of its own.
struct Records {
  std::mutex mutex;
  std::vector<Interval> kernels, collectives, copies;
  std::map<uint32_t, Interval> launches;  // of several kernels, or of one, by CUPTI's number
};
Records& records() {
  static auto* all = new Records;
  return *all;
}

// Everything of the library that is called, loaded where the program runs.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  static const Cupti& get() {
    static const Cupti loaded = load();
    return loaded;
  }

  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    const char* words = "unknown";
    result_string(result, &words);
    fail(ErrorCode::unsupported, std::source_location::current(), call, ": ", words);
  }

 private:
  static Cupti load() {
    const std::source_location here = std::source_location::current();
    void* library = nullptr;
    std::string failures;
    for (const char* name : {"libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                             "/usr/local/cuda/lib64/libcupti.so.13", "libcupti.so"}) {
      library = dlopen(name, RTLD_NOW);
      if (library) break;
      failures += std::string("\n  ") + dlerror();
    }
    require(library != nullptr, ErrorCode::not_found, here,
            "CUPTI is not there; LD_LIBRARY_PATH may name its folder:", failures);
    Cupti made;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      require(function != nullptr, ErrorCode::not_found, here, "CUPTI has no ", name);
    };
    find(made.register_callbacks, "cuptiActivityRegisterCallbacks");
    find(made.enable, "cuptiActivityEnable");
    find(made.disable, "cuptiActivityDisable");
    find(made.flush_all, "cuptiActivityFlushAll");
    find(made.next_record, "cuptiActivityGetNextRecord");
    find(made.result_string, "cuptiGetResultString");
    return made;
  }
};

constexpr size_t kBufferBytes = size_t{8} << 20, kAlignment = 8;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

void keep(const CUpti_Activity& record, Records& all) {
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
    const std::string_view name = kernel.name ? kernel.name : "";
    (name.find("nccl") != std::string_view::npos ? all.collectives : all.kernels)
        .push_back({kernel.start, kernel.end});
    Interval& launch =
        all.launches.try_emplace(kernel.correlationId, Interval{kernel.start, kernel.end}).first->second;
    launch = {std::min(launch.start, kernel.start), std::max(launch.end, kernel.end)};
  } else if (record.kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
    const auto& graph = reinterpret_cast<const CUpti_ActivityGraphTrace2&>(record);
    if (graph.end > graph.start) all.kernels.push_back({graph.start, graph.end});
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
    // Inside of a device a copy is a piece of computing like any other.
    const bool inside = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    (inside ? all.kernels : all.copies).push_back({copy.start, copy.end});
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
    all.kernels.push_back({fill.start, fill.end});
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  {
    Records& all = records();
    const std::lock_guard lock(all.mutex);
    CUpti_Activity* record = nullptr;
    while (Cupti::get().next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) keep(*record, all);
  }
  std::free(buffer);
}

std::vector<CUpti_ActivityKind> kinds(Detail detail) {
  std::vector<CUpti_ActivityKind> all = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
  if (detail == Detail::graphs) all.push_back(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  return all;
}

}  // namespace

GpuActivityRecorder::GpuActivityRecorder() {
  const Cupti& cupti = Cupti::get();
  cupti.check(cupti.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
}

void GpuActivityRecorder::start(Detail detail) {
  const Cupti& cupti = Cupti::get();
  detail_ = detail;
  for (const CUpti_ActivityKind kind : kinds(detail)) cupti.check(cupti.enable(kind), "cuptiActivityEnable");
}

void GpuActivityRecorder::stop() {
  take();
  const Cupti& cupti = Cupti::get();
  for (const CUpti_ActivityKind kind : kinds(detail_))
    cupti.check(cupti.disable(kind), "cuptiActivityDisable");
}

GpuActivity GpuActivityRecorder::take() {
  const Cupti& cupti = Cupti::get();
  cupti.check(cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  Records& all = records();
  const std::lock_guard lock(all.mutex);
  GpuActivity made;
  made.records = static_cast<int64_t>(all.kernels.size() + all.collectives.size() + all.copies.size());
  made.kernels_ns = covered(all.kernels);
  const std::vector<Interval> computing = joined(all.kernels, all.collectives);
  made.communication_ns = covered(computing) - made.kernels_ns;
  if (detail_ == Detail::kernels) {
    std::vector<Interval> launches;
    for (const auto& [number, launch] : all.launches) launches.push_back(launch);
    made.gaps_ns = covered(joined(computing, launches)) - covered(computing);
  }
  made.copies_ns = covered(joined(computing, all.copies)) - covered(computing);
  all.kernels.clear(), all.collectives.clear(), all.copies.clear(), all.launches.clear();
  return made;
}

}  // namespace lockstep::bench
