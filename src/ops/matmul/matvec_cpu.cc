#include "ops/matmul/matvec_cpu.h"

#include <algorithm>

#include "backends/cpu/product_threads.h"
#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matvec_cpu_simd.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kLanes = 16;

MatrixVectorFunctions functions_of(DType dtype) {
  static const MatrixVectorTable& table =
      pick_simd(simd_v2::kMatrixVectorTable, simd_v3::kMatrixVectorTable, simd_v4::kMatrixVectorTable);
  switch (dtype) {
    case DType::float64: return table.float64;
    case DType::bfloat16: return table.bfloat16;
    case DType::float16: return table.float16;
    default: return table.float32;
  }
}

// y[..., rows] = matrix[..., rows, depth] * x[..., depth], as a product of matrices has it.
struct Operands {
  OperandLayout matrix, x;
  int matrix_input;  // 0 or 1
  int64_t x_stride;
  bool bias_per_row;
};

Strides batch_strides(const OperandLayout& operand, const Shape& batch) {
  Strides strides;
  for (int i = 0; i < operand.strides.rank() - 2; ++i) strides.push_back(operand.strides[i]);
  return broadcast_strides(operand.spec.shape.drop_last(2), strides, batch);
}

class MatrixVectorKernel final : public Kernel {
 public:
  MatrixVectorKernel(const KernelRequest& request, const Operands& operands, bool dense_rows)
      : function_(dense_rows ? functions_of(request.dtype(0)).dense_rows
                             : functions_of(request.dtype(0)).dense_columns),
        matrix_input_(operands.matrix_input),
        element_bytes_(static_cast<int64_t>(size_of(request.dtype(0)))),
        batch_(request.outputs[0].spec.shape.drop_last(2)),
        matrix_batch_(batch_strides(operands.matrix, batch_)),
        x_batch_(batch_strides(operands.x, batch_)),
        rows_(operands.matrix.spec.shape[-2]),
        depth_(operands.matrix.spec.shape[-1]),
        row_stride_(operands.matrix.strides[-2]),
        stride_(operands.matrix.strides[dense_rows ? -2 : -1]),
        x_stride_(operands.x_stride),
        bias_(request.attrs<MatmulAttrs>().bias),
        bias_stride_(bias_ && operands.bias_per_row ? request.inputs[2].strides[-1] : 0),
        threads_(threads_for_products(batch_.size() * rows_ * depth_, request.threads)) {
    while (block_ > kLanes && batch_.size() * (rows_ / block_) < threads_) block_ /= 2;
    blocks_ = std::max<int64_t>(rows_ / block_, 1);
    const int64_t number = request.dtype(0) == DType::float64 ? sizeof(double) : sizeof(float);
    scratch_bytes_ = (depth_ + kLanes - 1) / kLanes * kLanes * number;
  }

  size_t workspace_bytes() const override { return static_cast<size_t>(threads_ * scratch_bytes_); }

  void launch(const LaunchArgs& args) const override {
    const int64_t blocks = batch_.size() * blocks_;
    parallel(threads_, [&](int thread) {
      char* const scratch = static_cast<char*>(args.workspace) + thread * scratch_bytes_;
      for (int64_t i = blocks * thread / threads_; i < blocks * (thread + 1) / threads_; ++i)
        run_block(args, i / blocks_, i % blocks_, scratch);
    });
  }

 private:
  void run_block(const LaunchArgs& args, int64_t batch, int64_t block, void* scratch) const {
    const int64_t row = block * block_;
    int64_t matrix = row_stride_ * row, x = 0, rest = batch;
    for (int i = batch_.rank() - 1; i >= 0; --i) {
      matrix += rest % batch_[i] * matrix_batch_[i];
      x += rest % batch_[i] * x_batch_[i];
      rest /= batch_[i];
    }
    function_({.matrix = at(args.inputs[matrix_input_], matrix),
               .stride = stride_,
               .x = at(args.inputs[1 - matrix_input_], x),
               .x_stride = x_stride_,
               .bias = bias_ ? at(args.inputs[2], row * bias_stride_) : nullptr,
               .bias_stride = bias_stride_,
               .y = at(args.outputs[0], batch * rows_ + row),
               .rows = block + 1 < blocks_ ? block_ : rows_ - row,
               .depth = depth_,
               .scratch = scratch});
  }

  char* at(void* tensor, int64_t element) const {
    return static_cast<char*>(tensor) + element * element_bytes_;
  }

  MatrixVectorFunction function_;
  int matrix_input_;
  int64_t element_bytes_;
  Shape batch_;
  Strides matrix_batch_, x_batch_;
  int64_t rows_, depth_, row_stride_, stride_, x_stride_;
  bool bias_;
  int64_t bias_stride_;
  int threads_;
  // Rows of a block, halved where there would be fewer blocks than threads. The last block has the rows that
  // are left as well: none has fewer than a vector.
  int64_t block_ = 128;
  int64_t blocks_;
  int64_t scratch_bytes_;  // of a thread
};

}  // namespace

OperandLayout transposed(OperandLayout layout) {
  Shape& shape = layout.spec.shape;
  std::swap(shape[-1], shape[-2]);
  std::swap(layout.strides[-1], layout.strides[-2]);
  return layout;
}

std::unique_ptr<Kernel> prepare_matvec(const KernelRequest& request, const OperandLayout& a,
                                       const OperandLayout& b) {
  Operands operands;
  if (b.spec.shape[-1] == 1)
    operands = {a, b, 0, b.strides[-2], false};
  else if (a.spec.shape[-2] == 1)
    operands = {transposed(b), a, 1, a.strides[-1], true};
  else
    return nullptr;
  const Shape& shape = operands.matrix.spec.shape;
  if (!is_floating(request.dtype(0)) || request.outputs[0].spec.shape.size() == 0 || shape[-1] == 0)
    return nullptr;
  const bool dense_rows = operands.matrix.strides[-1] == 1 || shape[-1] == 1;
  const bool dense_columns = operands.matrix.strides[-2] == 1 && shape[-2] >= kLanes;
  if (!dense_rows && !dense_columns) return nullptr;
  // Sums of few products: folding their lanes is most of the work. oneDNN has better loops for these.
  constexpr int64_t kFewProducts = 64;
  const bool dnnl_type = request.dtype(0) == DType::float32 || request.dtype(0) == DType::bfloat16;
  if (dense_rows && dnnl_type && shape[-1] < kFewProducts) return nullptr;
  return std::make_unique<MatrixVectorKernel>(request, operands, dense_rows);
}

}  // namespace lockstep::cpu
