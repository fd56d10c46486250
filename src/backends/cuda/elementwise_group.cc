// Elementwise kernel calls of one scalar program as one launch: what to compute where travels with it as the
// kernel's argument.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cuda/check.h"
#include "backends/cuda/elementwise_source.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/runtime_code.h"
#include "compile/planning/launch_groups.h"
#include "ops/elementwise/expander.h"

namespace lockstep::cuda {
namespace {

using compile::KernelCall;

constexpr unsigned kBlock = 128;
constexpr unsigned kUnitsPerThread = 8;

// Bytes of arguments that a launch may have: the driver's, and the compiler's, which is as new as this code.
size_t most_argument_bytes() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return version >= 12010 ? 32764 : 4096;
}

class ElementwiseGroup final : public Kernel {
 public:
  explicit ElementwiseGroup(std::span<const KernelCall> calls) {
    const KernelCall& first = calls[0];
    const Shape& shape = first.output_layouts[0].spec.shape;
    std::vector<DType> inputs;
    std::vector<bool> whole;
    for (const OperandLayout& layout : first.input_layouts) {
      inputs.push_back(layout.spec.dtype);
      whole.push_back(layout.spec.shape == shape);
    }
    const elementwise::ScalarProgram program = elementwise::expand(*first.op, first.attrs, inputs);
    std::vector<DType> dtypes = inputs;
    for (const OperandLayout& layout : first.output_layouts) {
      dtypes.push_back(layout.spec.dtype);
      whole.push_back(true);
    }
    operands_ = dtypes.size();
    size_t widest = 1;
    for (size_t i = 0; i < operands_; ++i)
      if (whole[i]) widest = std::max(widest, size_of(dtypes[i]));
    width_ = static_cast<int64_t>(std::min<size_t>(8, 16 / widest));
    for (size_t i = 0; i < operands_; ++i)
      alignments_.push_back(whole[i] ? std::min<size_t>(16, static_cast<size_t>(width_) * size_of(dtypes[i]))
                                     : 1);

    // Few capacities, so that few kernels are compiled.
    const size_t most = (most_argument_bytes() - kHead) / bytes_each();
    for (capacity_ = 8; capacity_ < calls.size() && capacity_ < most;) capacity_ *= 4;
    capacity_ = std::min(capacity_, most);
    for (const KernelCall& call : calls.first(std::min(calls.size(), capacity_)))
      sizes_.push_back(call.output_layouts[0].spec.shape.size());
    function_ = RuntimeKernel(
        elementwise_group_source(
            program, whole, dtypes,
            {.capacity = capacity_, .units = kBlock * kUnitsPerThread, .width = static_cast<int>(width_)}),
        kElementwiseKernel);
    arguments_.resize(kHead + capacity_ * bytes_each());
  }

  size_t count() const { return sizes_.size(); }

  void launch(const LaunchArgs& args) const override {
    char* const pointers = arguments_.data() + kHead;
    char* const sizes = pointers + capacity_ * operands_ * sizeof(uint64_t);
    char* const ends = sizes + capacity_ * sizeof(uint64_t);
    char* const widths = ends + capacity_ * sizeof(uint32_t);
    const auto put = [](char* list, size_t at, auto value) {
      std::memcpy(list + at * sizeof value, &value, sizeof value);
    };
    put(arguments_.data(), 0, uint64_t{count()});
    std::memcpy(pointers, args.inputs, count() * operands_ * sizeof(void*));
    uint32_t blocks = 0;
    for (size_t k = 0; k < count(); ++k) {
      bool vectors = sizes_[k] % width_ == 0;
      for (size_t i = 0; i < operands_; ++i)
        vectors = vectors && std::bit_cast<uintptr_t>(args.inputs[k * operands_ + i]) % alignments_[i] == 0;
      blocks += static_cast<uint32_t>(ceil_div(sizes_[k] / (vectors ? width_ : 1), kBlock * kUnitsPerThread));
      put(sizes, k, static_cast<uint64_t>(sizes_[k]));
      put(ends, k, blocks);
      put(widths, k, uint32_t{vectors});
    }
    void* parameters[] = {arguments_.data()};
    check(cudaLaunchKernel(function_.get(), blocks, kBlock, parameters, 0, cuda_stream(args.stream)),
          "launch of a group of elementwise kernels");
  }

 private:
  static constexpr size_t kHead = sizeof(uint64_t);  // of the argument: how many there are
  size_t bytes_each() const { return operands_ * sizeof(uint64_t) + sizeof(uint64_t) + 2 * sizeof(uint32_t); }

  RuntimeKernel function_;
  size_t operands_ = 0, capacity_ = 0;
  int64_t width_ = 1;
  std::vector<size_t> alignments_;  // that vectors need, by operand; 1: none
  std::vector<int64_t> sizes_;      // elements, by call
  mutable std::vector<char> arguments_;
};

compile::GroupedCalls group(std::span<const KernelCall> calls) {
  auto kernel = std::make_unique<ElementwiseGroup>(calls);
  const size_t count = kernel->count();
  return {std::move(kernel), count};
}

const compile::RegisterGroupCalls registered(DeviceKind::gpu, group);

}  // namespace
}  // namespace lockstep::cuda
