#include "backends/cuda/elementwise_kernel.h"

#include <algorithm>
#include <bit>

#include "backends/cuda/check.h"
#include "backends/cuda/elementwise_source.h"

namespace lockstep::cuda {
namespace {

constexpr unsigned kBlock = 128;
constexpr unsigned kBlocksPerMultiprocessor = 16;

}  // namespace

ElementwiseKernel::ElementwiseKernel(const elementwise::ScalarProgram& program, const Shape& shape,
                                     std::span<const Strides> strides)
    : operands_(strides.size()) {
  if (shape.size() == 0 || program.outputs.empty()) return;
  std::vector<DType> dtypes = program.inputs;
  for (const int16_t output : program.outputs)
    dtypes.push_back(program.instructions[static_cast<size_t>(output)].dtype);
  const Walk walk = make_walk(shape, strides, dtypes);
  width_ = vector_width(walk, dtypes);
  function_ = RuntimeKernel(elementwise_source(program, walk, dtypes), kElementwiseKernel);
  size_ = walk.size();
  inner_ = walk.sizes.back();
  most_blocks_ = static_cast<unsigned>(multiprocessors()) * kBlocksPerMultiprocessor;
  for (size_t i = 0; i < operands_; ++i)
    alignments_.push_back(inner_access(walk, i, dtypes[i]) == InnerAccess::contiguous
                              ? std::min<size_t>(16, static_cast<size_t>(width_) * size_of(dtypes[i]))
                              : 1);
  arguments_.resize(operands_);
  for (const auto& loop : walk.strides)
    for (const int64_t stride : loop) arguments_.push_back(static_cast<uint64_t>(stride));
  for (const int64_t size : walk.sizes) arguments_.push_back(static_cast<uint64_t>(size));
  inner_word_ = arguments_.size() - 1;
  units_word_ = arguments_.size();
  arguments_.resize(units_word_ + 2);
}

void ElementwiseKernel::launch(void* const* operands, cudaStream_t stream) const {
  if (!function_) return;
  bool vectors = width_ > 1;
  for (size_t i = 0; i < operands_; ++i) {
    arguments_[i] = std::bit_cast<uint64_t>(operands[i]);
    vectors = vectors && arguments_[i] % alignments_[i] == 0;
  }
  const int64_t width = vectors ? width_ : 1;
  const int64_t units = size_ / width;
  arguments_[inner_word_] = static_cast<uint64_t>(inner_ / width);
  arguments_[units_word_] = static_cast<uint64_t>(units);
  arguments_[units_word_ + 1] = vectors ? 1 : 0;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most_blocks_, (units + kBlock - 1) / kBlock));
  void* parameters[] = {arguments_.data()};
  check(cudaLaunchKernel(function_.get(), blocks, kBlock, parameters, 0, stream),
        "launch of an elementwise kernel");
}

}  // namespace lockstep::cuda
