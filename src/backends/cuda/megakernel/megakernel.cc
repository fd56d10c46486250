// A small program as one kernel, a megakernel: read, cut into tasks, written, compiled, launched.
#include "backends/cuda/megakernel/megakernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "backends/cuda/check.h"
#include "backends/cuda/deferred_errors.h"
#include "backends/cuda/megakernel/op_rule.h"
#include "backends/cuda/megakernel/source.h"
#include "backends/cuda/runtime_code.h"
#include "backends/cuda/stream.h"
#include "lockstep/base/log.h"
#include "tensor/tensor_impl.h"

namespace lockstep::cuda {
namespace {

// Beyond these a step is long enough for kernels of its own, which are faster at each part.
constexpr int64_t kMostFlops = int64_t{1} << 30;
constexpr int64_t kMostBytes = int64_t{24} << 20;  // half of the second-level cache
// An example's values stay where they are made, so that programs of examples gain for longer.
constexpr int64_t kMostFlopsOfExamples = int64_t{1} << 31;
constexpr int64_t kMostBytesOfExamples = int64_t{40} << 20;
constexpr size_t kMostCalls = 160;
// Fewer are as fast one by one.
constexpr size_t kLeastCalls = 4;

constexpr size_t kCounterBytes = 256;

// The kernel's text declares it once more (prelude.cc).
static_assert(DeferredError::kMost == 8 && sizeof(DeferredError) == 80 &&
              offsetof(DeferredError, locked) == 0 && offsetof(DeferredError, found) == 4 &&
              offsetof(DeferredError, position) == 8 && offsetof(DeferredError, values) == 16);

int attribute(cudaDeviceAttr which) {
  int ordinal = 0, value = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

class Megakernel final : public execute::WholeStepKernel {
 public:
  Megakernel(const megakernel::OpGraph& graph, megakernel::Source source, Device& device, unsigned blocks)
      : function_(compiled_kernel(source.text, megakernel::kEntryPoint)),
        externals_(graph.externals),
        memory_(device, static_cast<size_t>(source.scratch_bytes) + kCounterBytes,
                std::source_location::current()),
        device_(device),
        rows_(std::move(source.rows)),
        row_count_(source.row_count),
        staged_bytes_(source.staged_bytes),
        blocks_(blocks),
        threads_(static_cast<unsigned>(source.threads)),
        shared_bytes_(static_cast<unsigned>(source.shared_bytes)) {
    int ordinal = 0;
    check(cudaGetDevice(&ordinal), "cudaGetDevice");
    check(cudaKernelSetAttributeForDevice(function_, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared_bytes_), ordinal),
          "cudaKernelSetAttributeForDevice");
    backend_of(device).compute_stream().fill(memory_.data(), 0, 1, kCounterBytes);
    for (const int i : source.reporters) {
      const megakernel::Op& op = graph.ops[static_cast<size_t>(i)];
      errors_.push_back(std::make_unique<DeferredErrors>(op.rule->deferred_error(op)));
    }
    first_error_ = std::max<size_t>(1, externals_.size());
    arguments_.resize(first_error_ + std::max<size_t>(1, errors_.size()));
    arguments_.push_back(std::bit_cast<uint64_t>(memory_.data()) + kCounterBytes);
    arguments_.push_back(std::bit_cast<uint64_t>(memory_.data()));
    runs_ = arguments_.size();
    arguments_.resize(runs_ + 4 + std::max<size_t>(1, rows_.size()));
  }

  bool launch(std::span<void* const> pointers, Stream& stream) override {
    if (!place(pointers, true)) return false;
    arguments_[runs_] = 1;
    arguments_[runs_ + 3] = 0;
    launch(stream);
    return true;
  }

  bool launch(std::span<void* const> pointers, const FunctionCore::RowRuns& runs, Stream& stream) override {
    if (rows_.empty() || runs.rows != row_count_ || !place(pointers, false)) return false;
    for (size_t j = 0; j < rows_.size(); ++j) {
      const void* array = runs.arrays[static_cast<size_t>(rows_[j].parameter)].impl()->data();
      if (!is_aligned(array)) return false;
      arguments_[runs_ + 4 + j] = std::bit_cast<uint64_t>(array);
    }
    if (!staged_)
      staged_ = std::make_unique<Storage>(device_, static_cast<size_t>(staged_bytes_),
                                          std::source_location::current());
    arguments_[runs_] = static_cast<uint64_t>(runs.runs);
    const void* const order = runs.order.defined() ? runs.order.impl()->data() : nullptr;
    arguments_[runs_ + 1] = std::bit_cast<uint64_t>(order);
    arguments_[runs_ + 2] = static_cast<uint64_t>(runs.first);
    arguments_[runs_ + 3] = std::bit_cast<uint64_t>(staged_->data());
    launch(stream);
    return true;
  }

 private:
  static bool is_aligned(const void* pointer) { return std::bit_cast<uint64_t>(pointer) % 16 == 0; }

  // Fills in the operands.
  bool place(std::span<void* const> pointers, bool with_parameters) {
    for (size_t i = 0; i < externals_.size(); ++i) {
      if (externals_[i].parameter >= 0 && !with_parameters) continue;
      const void* at = static_cast<const char*>(pointers[externals_[i].pointer]) - externals_[i].offset;
      if (!is_aligned(at)) return false;
      arguments_[i] = std::bit_cast<uint64_t>(at);
    }
    return true;
  }

  void launch(Stream& stream) {
    for (size_t i = 0; i < errors_.size(); ++i)
      arguments_[first_error_ + i] = std::bit_cast<uint64_t>(errors_[i]->on(stream));
    cudaLaunchAttribute together{};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = {blocks_, 1, 1};
    config.blockDim = {threads_, 1, 1};
    config.dynamicSmemBytes = shared_bytes_;
    config.stream = cuda_stream(stream);
    config.attrs = &together;
    config.numAttrs = 1;
    void* parameters[] = {arguments_.data()};
    check(cudaLaunchKernelExC(&config, function_, parameters), "launch of a program's kernel");
  }

  cudaKernel_t function_;
  std::vector<megakernel::External> externals_;
  Storage memory_;
  std::vector<std::unique_ptr<DeferredErrors>> errors_;
  std::vector<uint64_t> arguments_;
  size_t first_error_ = 0, runs_ = 0;  // in the arguments
  Device& device_;
  std::vector<megakernel::Source::Rows> rows_;
  int64_t row_count_, staged_bytes_;
  std::unique_ptr<Storage> staged_;  // the rows of two runs
  unsigned blocks_, threads_, shared_bytes_;
};

// Whether it changes what it multiplies by: such a program comes again and again, and is worth the second or
// two that the compiler takes.
bool trains(const megakernel::OpGraph& graph) {
  for (const megakernel::Op& product : graph.ops) {
    if (product.kind != megakernel::Kind::product) continue;
    for (const megakernel::Access& factor : product.inputs)
      for (const megakernel::Op& op : graph.ops)
        for (const megakernel::Access& output : op.outputs)
          if (output.buffer == factor.buffer &&
              graph.buffers[static_cast<size_t>(output.buffer)].external >= 0)
            return true;
  }
  return false;
}

const execute::RegisterWholeStepFusion registered(DeviceKind::gpu, make_megakernel);

}  // namespace

std::unique_ptr<execute::WholeStepKernel> make_megakernel(std::span<const compile::KernelCall> calls,
                                                          std::span<const TensorSpec> parameters,
                                                          Device& device) {
  if (calls.size() < kLeastCalls || calls.size() > kMostCalls) return nullptr;
  int64_t flops = 0;
  for (const compile::KernelCall& call : calls) flops += call.cost.flops;
  if (flops > kMostFlopsOfExamples) return nullptr;
  backend_of(device).bind_thread();
  if (attribute(cudaDevAttrComputeCapabilityMajor) < 8 || !attribute(cudaDevAttrCooperativeLaunch))
    return nullptr;
  std::optional<megakernel::OpGraph> graph = megakernel::read_calls(calls);
  if (!graph || !trains(*graph) || (graph->examples == 0 && flops > kMostFlops)) return nullptr;
  const int processors = multiprocessors();
  megakernel::split_sums(*graph);
  megakernel::split_products(*graph, processors);
  const std::optional<megakernel::Schedule> schedule = megakernel::make_schedule(*graph, processors);
  if (!schedule) return nullptr;
  megakernel::Source source = megakernel::make_source(*graph, *schedule, parameters);
  if (source.scratch_bytes > (graph->examples > 0 ? kMostBytesOfExamples : kMostBytes) ||
      source.shared_bytes > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
    return nullptr;
  log(LogLevel::debug, calls.size(), " kernel calls of a program are one kernel of ", schedule->levels,
      " parts");
  const auto blocks = static_cast<unsigned>(
      source.rows.empty() ? std::min<int64_t>(processors, source.most_tasks) : processors);
  return std::make_unique<Megakernel>(*graph, std::move(source), device, blocks);
}

}  // namespace lockstep::cuda
