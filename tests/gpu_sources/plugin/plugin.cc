// A GPU without a GPU. What the library writes for GPUs while it runs (elementwise kernels, groups of them,
// megakernels) is its own code, on the functions of runtime.cc; all other kernels only clear their results.
#include "device/plugin.h"

#include <cstring>
#include <set>
#include <utility>

#include "backends/cuda/elementwise_kernel.h"
#include "backends/cuda/megakernel/megakernel.h"
#include "backends/cuda/megakernel/op_rule.h"
#include "backends/cuda/runtime_code.h"
#include "backends/cuda/stream.h"
#include "compile/planning/launch_groups.h"
#include "device/host_stream.h"
#include "execute/asynchronous_device_test.h"
#include "execute/whole_step_fusion.h"
#include "gpu_sources/driver.h"
#include "gpu_sources/plugin/made.h"
#include "graph/kernel.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/pool.h"
#include "ops/update/sparse_update.h"

namespace lockstep::testing {

Made& made() {
  static auto* all = new Made;
  return *all;
}

namespace {

// --- kernels that are not written at run time --------------------------------------------------------------

class Clearing : public Kernel {
 public:
  explicit Clearing(const KernelRequest& request) {
    for (const OperandLayout& output : request.outputs) bytes_.push_back(output.spec.bytes());
  }
  void launch(const LaunchArgs& args) const override {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (bytes_[i] > 0) std::memset(args.outputs[i], 0, bytes_[i]);
  }

 private:
  std::vector<size_t> bytes_;
};

// Its two passes are elementwise programs.
class SparseUpdate final : public Kernel {
 public:
  explicit SparseUpdate(const KernelRequest& request)
      : plan_(request),
        rows_(elementwise_kernel(plan_.of_rows)),
        table_(elementwise_kernel(plan_.of_table)) {}

  size_t workspace_bytes() const override { return plan_.workspace_bytes; }
  bool in_place(int input, int output) const override { return plan_.in_place(input, output); }
  void launch(const LaunchArgs& args) const override {
    ++made().table_updates;
    launch(plan_.of_rows, rows_, args);
    launch(plan_.of_table, table_, args);
  }

 private:
  static cuda::ElementwiseKernel elementwise_kernel(const SparseUpdatePlan::Pass& pass) {
    std::vector<Strides> strides = pass.input_strides;
    strides.insert(strides.end(), pass.output_strides.begin(), pass.output_strides.end());
    return {pass.program, pass.shape, strides};
  }
  static void launch(const SparseUpdatePlan::Pass& pass, const cuda::ElementwiseKernel& kernel,
                     const LaunchArgs& args) {
    std::vector<void*> pointers(pass.operands.size());
    pass.bind(args, pointers);
    kernel.launch(pointers.data(), cuda::cuda_stream(args.stream));
  }

  SparseUpdatePlan plan_;
  cuda::ElementwiseKernel rows_, table_;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

// Those of the GPU's kernels that read their inputs wherever these lie: what is copied before the others is
// part of the programs.
bool reads_strides(std::string_view op) {
  static const std::set<std::string_view> ops = {"matmul",   "concat",      "pad",     "strided_slice_grad",
                                                 "reshape",  "transpose",   "barrier", "strided_slice",
                                                 "identity", "broadcast_to"};
  return ops.contains(op);
}

void register_kernels() {
  std::set<const OpDef*> ops(registered_ops().begin(), registered_ops().end());
  // Ops that rewrites make.
  ops.insert({&kSparseCrossEntropyWithGrad, &kMaxPool2dGather, &kBatchMoments, &kBatchNormSums});
  for (const OpDef* op : ops)
    if (!op->expand)
      RegisterKernel(DeviceKind::gpu, *op,
                     {.prepare = op == &kSparseUpdate ? prepare<SparseUpdate> : prepare<Clearing>,
                      .strided_inputs = reads_strides(op->name)});
}

// --- what was made -----------------------------------------------------------------------------------------

std::unique_ptr<execute::WholeStepKernel> fuse(std::span<const compile::KernelCall> calls,
                                               std::span<const TensorSpec> parameters, Device& device) {
  auto kernel = cuda::make_megakernel(calls, parameters, device);
  if (!kernel) return nullptr;
  auto& ops = made().megakernels.emplace_back();
  for (const compile::KernelCall& call : calls)
    if (cuda::megakernel::find_rule(*call.op)) ops.emplace_back(call.op->name);
  return kernel;
}

// A kernel for several calls, which counts its launches.
class Group final : public Kernel {
 public:
  explicit Group(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  void launch(const LaunchArgs& args) const override {
    kernel_->launch(args);
    ++made().groups;
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

compile::GroupCalls group_calls = nullptr;
compile::GroupedCalls group(std::span<const compile::KernelCall> calls) {
  compile::GroupedCalls found = group_calls(calls);
  if (found.kernel) found.kernel = std::make_unique<Group>(std::move(found.kernel));
  return found;
}

// --- the device --------------------------------------------------------------------------------------------

class Gpu final : public AsynchronousDevice {
 public:
  explicit Gpu(int index) : AsynchronousDevice(index, DeviceKind::gpu) {}

  int physical() const override { return 0; }
  void* allocate(size_t bytes, std::source_location where) override {
    void* const memory = AsynchronousDevice::allocate(bytes, where);
    std::memset(memory, 0, bytes);  // nothing depends on what was there
    return memory;
  }
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<cuda::CudaStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return std::make_unique<HostEvent>(timed); }

 private:
  cuda::CudaStream stream_{*this};
};

class Driver final : public SourcesDriver {
 public:
  Driver() {
    register_kernels();
    group_calls = std::exchange(compile::group_rule(DeviceKind::gpu), group);
    execute::RegisterWholeStepFusion(DeviceKind::gpu, fuse);
  }

  std::vector<PhysicalGpu> gpus() const override {
    return {{.name = "a GPU of tests",
             .uuid = "GPU-0",
             .memory = int64_t{8} << 30,
             .capability_major = 9,
             .multiprocessors = 132}};
  }
  std::unique_ptr<DeviceBackend> make_device(int /*gpu*/, int index, const GpuOptions&) const override {
    return std::make_unique<Gpu>(index);
  }

  const Made& made() const override { return testing::made(); }
  std::vector<std::string> ops_with_rules() const override {
    std::vector<std::string> names;
    for (const OpDef* op : cuda::megakernel::ops_with_rules()) names.emplace_back(op->name);
    return names;
  }
  void compile(const std::string& source, const char* kernel) const override {
    cuda::compiled_kernel(source, kernel);
  }
};

}  // namespace
}  // namespace lockstep::testing

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static const lockstep::testing::Driver driver;
  static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "cuda", lockstep::PluginKind::device,
                                       static_cast<const lockstep::GpuDriver*>(&driver)};
  return &plugin;
}
