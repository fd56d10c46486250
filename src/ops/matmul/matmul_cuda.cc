// Matrix products on NVIDIA GPUs: own kernels for float32, cuBLASLt for other floats, loops for what it has
// no form for.
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "backends/cuda/check.h"
#include "backends/cuda/elementwise_kernel.h"
#include "backends/cuda/small_matmul.h"
#include "backends/cuda/stream.h"
#include "backends/cuda/strided_matmul.h"
#include "backends/cuda/tf32x3_matmul.h"
#include "graph/kernel.h"
#include "lockstep/device/config.h"
#include "ops/elementwise/epilogue.h"
#include "ops/matmul/matmul.h"

namespace lockstep {
namespace {

using cuda::StridedMatmul;

void check(cublasStatus_t status, const char* what) {
  require(status == CUBLAS_STATUS_SUCCESS, ErrorCode::internal, std::source_location::current(), what,
          " failed: ", cublasLtGetStatusString(status), " (", cublasLtGetStatusName(status), ")");
}

// One per GPU; never destroyed, as the devices.
cublasLtHandle_t handle_here() {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cublasLtHandle_t>;
  int ordinal = 0;
  cuda::check(cudaGetDevice(&ordinal), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[ordinal];
  if (!handle) check(cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

// --- the product as loops over a batch ---------------------------------------------------------------------

// The batch dimensions of size 1 are dropped, neighbours that are one walk are joined.
StridedMatmul describe(const KernelRequest& request) {
  const auto& attrs = request.attrs<MatmulAttrs>();
  const OperandLayout &a = request.inputs[0], &b = request.inputs[1];
  const Shape& shape = request.outputs[0].spec.shape;
  StridedMatmul p;
  p.m = shape[-2];
  p.n = shape[-1];
  p.k = a.spec.shape[attrs.transpose_a ? -2 : -1];
  p.a_row = a.strides[attrs.transpose_a ? -1 : -2];
  p.a_column = a.strides[attrs.transpose_a ? -2 : -1];
  p.b_row = b.strides[attrs.transpose_b ? -1 : -2];
  p.b_column = b.strides[attrs.transpose_b ? -2 : -1];
  const Shape batch = shape.drop_last(2);
  const auto batch_strides = [&](const OperandLayout& x) {
    Strides outer;
    for (int d = 0; d < x.spec.shape.rank() - 2; ++d) outer.push_back(x.strides[d]);
    return broadcast_strides(x.spec.shape.drop_last(2), outer, batch);
  };
  const Strides a_batch = batch_strides(a), b_batch = batch_strides(b);
  for (int d = 0; d < batch.rank(); ++d) {
    if (batch[d] == 1) continue;
    const auto last = static_cast<size_t>(p.batch_rank) - 1;
    if (p.batch_rank > 0 && p.a_batch[last] == a_batch[d] * batch[d] &&
        p.b_batch[last] == b_batch[d] * batch[d]) {
      p.batch[last] *= batch[d];
      p.a_batch[last] = a_batch[d];
      p.b_batch[last] = b_batch[d];
      continue;
    }
    const auto next = static_cast<size_t>(p.batch_rank++);
    p.batch[next] = batch[d];
    p.a_batch[next] = a_batch[d];
    p.b_batch[next] = b_batch[d];
  }
  // One matrix for all: its products are one product of more rows.
  if (p.batch_rank == 1 && p.b_batch[0] == 0 && p.a_batch[0] == p.m * p.a_row) {
    p.m *= p.batch[0];
    p.batch_rank = 0;
  }
  return p;
}

// A matrix of `rows` x `columns` as cuBLASLt, which counts along columns, takes it.
struct Stored {
  bool transposed = false;
  int64_t rows = 0, columns = 0, leading = 0;  // as it lies in memory
};

// `wanted`: rows of the matrix before it is multiplied; nothing where neither dimension has stride 1.
std::optional<Stored> stored(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  // Column by column.
  if ((row_stride == 1 || rows == 1) && (columns == 1 || column_stride >= rows))
    return Stored{false, rows, columns, columns == 1 ? rows : column_stride};
  if ((column_stride == 1 || columns == 1) && (rows == 1 || row_stride >= columns))
    return Stored{true, columns, rows, rows == 1 ? columns : row_stride};
  return std::nullopt;
}

// --- what follows the product ------------------------------------------------------------------------------

// What a product is finished with in place, where it cannot do it itself. A bias and an addend come behind
// the operands.
struct Finish {
  bool bias = false;
  Epilogue epilogue = Epilogue::none;
  bool addend = false;
  int bias_input = 2, addend_input = 2;

  // All that is asked of a product.
  static Finish all(const MatmulAttrs& attrs) {
    return {attrs.bias, attrs.epilogue, attrs.addend, 2, attrs.bias ? 3 : 2};
  }
};

std::unique_ptr<cuda::ElementwiseKernel> make_finish(const KernelRequest& request, const Finish& finish) {
  if (!finish.bias && !finish.addend && finish.epilogue == Epilogue::none) return nullptr;
  const OperandLayout& c = request.outputs[0];
  const DType dtype = c.spec.dtype;
  elementwise::ScalarProgram program;
  std::vector<int16_t> values;
  std::vector<Strides> strides = {c.strides};
  for (int16_t i = 0; i < 1 + (finish.bias ? 1 : 0) + (finish.addend ? 1 : 0); ++i) {
    program.inputs.push_back(dtype);
    values.push_back(append(program, {.op = elementwise::Opcode::input, .dtype = dtype, .index = i}));
  }
  for (const int input : {finish.bias ? finish.bias_input : -1, finish.addend ? finish.addend_input : -1})
    if (input >= 0)
      strides.push_back(broadcast_strides(request.shape(input),
                                          request.inputs[static_cast<size_t>(input)].strides, c.spec.shape));
  elementwise::Expander e(program, request.attributes, values);
  const elementwise::Scalar sum = finish.bias ? e.in(0) + e.in(1) : e.in(0);
  e.out(activated(finish.epilogue, finish.addend ? sum + e.in(finish.bias ? 2 : 1) : sum));
  program.outputs.assign(e.outputs().begin(), e.outputs().end());
  strides.push_back(c.strides);
  return std::make_unique<cuda::ElementwiseKernel>(program, c.spec.shape, strides);
}

void launch_finish(const cuda::ElementwiseKernel* kernel, const Finish& finish, const LaunchArgs& args) {
  if (!kernel) return;
  std::vector<void*> operands = {args.outputs[0]};
  if (finish.bias) operands.push_back(args.inputs[finish.bias_input]);
  if (finish.addend) operands.push_back(args.inputs[finish.addend_input]);
  operands.push_back(args.outputs[0]);
  kernel->launch(operands.data(), cuda::cuda_stream(args.stream));
}

// --- cuBLASLt ----------------------------------------------------------------------------------------------

class LtDescriptions {
 public:
  LtDescriptions(cudaDataType type, cublasComputeType_t compute, const Stored& left, const Stored& right,
                 int64_t n, int64_t m, cublasLtEpilogue_t epilogue) {
    const cudaDataType scale = type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F;
    check(cublasLtMatmulDescCreate(&product, compute, scale), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    layout(a, type, left.rows, left.columns, left.leading);
    layout(b, type, right.rows, right.columns, right.leading);
    layout(c, type, n, m, n);
  }
  ~LtDescriptions() {
    for (const cublasLtMatrixLayout_t matrix : {a, b, c})
      if (matrix) cublasLtMatrixLayoutDestroy(matrix);
    if (product) cublasLtMatmulDescDestroy(product);
  }
  LtDescriptions(const LtDescriptions&) = delete;
  LtDescriptions& operator=(const LtDescriptions&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static void batch(cublasLtMatrixLayout_t matrix, int32_t count, int64_t stride) {
    check(cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                           sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  }

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;

 private:
  static void layout(cublasLtMatrixLayout_t& matrix, cudaDataType type, int64_t rows, int64_t columns,
                     int64_t leading) {
    check(cublasLtMatrixLayoutCreate(&matrix, type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), leading),
          "cublasLtMatrixLayoutCreate");
  }
};

struct LtAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

// The library's first choice for operands of this alignment; nothing where it has none.
std::optional<LtAlgorithm> choose(cublasLtHandle_t handle, const LtDescriptions& lt, uint32_t alignment,
                                  size_t workspace) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace});
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, alignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, lt.product, lt.a, lt.b, lt.c, lt.c,
                                                               preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return LtAlgorithm{found.algo, found.workspaceSize};
}

constexpr uint32_t kAlignment = 16;
constexpr size_t kWorkspaceAlignment = 256;
constexpr size_t kMaxWorkspace = size_t{32} << 20;

cudaDataType lt_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDA_R_32F;
    case DType::float64: return CUDA_R_64F;
    case DType::bfloat16: return CUDA_R_16BF;
    default: return CUDA_R_16F;
  }
}

// Row-major C = A B is column-major C^T = B^T A^T: B comes first.
class LtMatmul final : public Kernel {
 public:
  // Null where cuBLASLt has no form for it.
  static std::unique_ptr<Kernel> make(const KernelRequest& request, const StridedMatmul& p) {
    const auto left = stored(p.n, p.k, p.b_column, p.b_row);
    const auto right = stored(p.k, p.m, p.a_column, p.a_row);
    if (!left || !right) return nullptr;
    std::unique_ptr<LtMatmul> kernel(new LtMatmul(request, p, *left, *right));
    return kernel->algorithm_ ? std::move(kernel) : nullptr;
  }

  size_t workspace_bytes() const override {
    return algorithm_->workspace > 0 ? algorithm_->workspace + kWorkspaceAlignment : 0;
  }
  bool in_place(int input, int) const override { return input == addend_; }

  void launch(const LaunchArgs& args) const override {
    const float one32 = 1, zero32 = 0;
    const double one64 = 1, zero64 = 0;
    const void* one = wide_ ? static_cast<const void*>(&one64) : &one32;
    const void* zero = wide_ ? static_cast<const void*>(&zero64) : &zero32;
    const auto* addend = addend_ >= 0 ? static_cast<const char*>(args.inputs[addend_]) : nullptr;
    if (lt_bias_) lt_->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.inputs[2]);
    const LtAlgorithm& algorithm = aligned(args) ? *algorithm_ : unaligned();
    const auto address = reinterpret_cast<uintptr_t>(args.workspace);
    void* const workspace = reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) /
                                                    kWorkspaceAlignment * kWorkspaceAlignment);
    const auto* a = static_cast<const char*>(args.inputs[0]);
    const auto* b = static_cast<const char*>(args.inputs[1]);
    auto* c = static_cast<char*>(args.outputs[0]);
    for (const Offsets& at : outer_)
      check(
          cublasLtMatmul(handle_, lt_->product, one, b + at.b, lt_->a, a + at.a, lt_->b, addend ? one : zero,
                         addend ? addend + at.c : c + at.c, lt_->c, c + at.c, lt_->c, &algorithm.algorithm,
                         workspace, algorithm.workspace, cuda::cuda_stream(args.stream)),
          "cublasLtMatmul");
    launch_finish(finish_kernel_.get(), finish_, args);
  }

 private:
  struct Offsets {  // in bytes
    int64_t a = 0, b = 0, c = 0;
  };

  LtMatmul(const KernelRequest& request, const StridedMatmul& p, const Stored& left, const Stored& right)
      : handle_(handle_here()) {
    const auto& attrs = request.attrs<MatmulAttrs>();
    const DType dtype = request.dtype(0);
    wide_ = dtype == DType::float64;
    const bool dense_bias = attrs.bias && request.inputs[2].contiguous();
    lt_bias_ = dense_bias && !wide_;
    finish_ = Finish::all(attrs);
    finish_.bias = attrs.bias && !lt_bias_;
    if (attrs.addend && request.inputs[static_cast<size_t>(finish_.addend_input)].contiguous()) {
      addend_ = finish_.addend_input;
      finish_.addend = false;
    }
    // cuBLASLt's own ReLU is the larger of x and 0 to it, which is 0 for NaN; its other activations are not
    // ours to the last bit. So activations are a pass over the result.
    const cublasLtEpilogue_t epilogue = lt_bias_ ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    finish_kernel_ = make_finish(request, finish_);
    const cublasComputeType_t compute =
        wide_ ? CUBLAS_COMPUTE_64F
        : dtype == DType::float32 && config::tensor_float_32_execution_enabled()
            ? CUBLAS_COMPUTE_32F_FAST_TF32
            : CUBLAS_COMPUTE_32F;
    lt_.emplace(lt_type(dtype), compute, left, right, p.n, p.m, epilogue);
    const auto width = static_cast<int64_t>(size_of(dtype));
    element_ = static_cast<uint32_t>(width);
    // The innermost loop over the batch is the library's, those around it are launches.
    outer_ = {{}};
    int64_t c_stride = p.m * p.n;
    if (p.batch_rank > 0) {
      const auto inner = static_cast<size_t>(p.batch_rank) - 1;
      const auto count = static_cast<int32_t>(p.batch[inner]);
      LtDescriptions::batch(lt_->a, count, p.b_batch[inner]);
      LtDescriptions::batch(lt_->b, count, p.a_batch[inner]);
      LtDescriptions::batch(lt_->c, count, c_stride);
      c_stride *= count;
      for (size_t d = inner; d-- > 0;) {
        std::vector<Offsets> more;
        for (int64_t i = 0; i < p.batch[d]; ++i)
          for (const Offsets& at : outer_)
            more.push_back({at.a + i * p.a_batch[d] * width, at.b + i * p.b_batch[d] * width,
                            at.c + i * c_stride * width});
        outer_ = std::move(more);
        c_stride *= p.batch[d];
      }
    }
    algorithm_ = choose(handle_, *lt_, kAlignment, kMaxWorkspace);
  }

  bool aligned(const LaunchArgs& args) const {
    const auto fits = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kAlignment == 0; };
    return outer_.size() == 1 && fits(args.inputs[0]) && fits(args.inputs[1]) && fits(args.outputs[0]) &&
           (!lt_bias_ || fits(args.inputs[2])) && (addend_ < 0 || fits(args.inputs[addend_]));
  }

  // Views may begin at any element.
  const LtAlgorithm& unaligned() const {
    if (!unaligned_) unaligned_ = choose(handle_, *lt_, element_, algorithm_->workspace);
    require(unaligned_.has_value(), ErrorCode::internal, std::source_location::current(),
            "matmul: cuBLASLt has no algorithm for operands that begin at any element");
    return *unaligned_;
  }

  cublasLtHandle_t handle_;
  mutable std::optional<LtDescriptions> lt_;
  bool wide_ = false, lt_bias_ = false;
  int addend_ = -1;  // the input that cuBLASLt adds
  Finish finish_;
  uint32_t element_ = 4;
  std::vector<Offsets> outer_;
  std::optional<LtAlgorithm> algorithm_;
  mutable std::optional<LtAlgorithm> unaligned_;
  std::unique_ptr<cuda::ElementwiseKernel> finish_kernel_;
};

class StridedKernel final : public Kernel {
 public:
  StridedKernel(const KernelRequest& request, const StridedMatmul& p)
      : product_(p),
        dtype_(request.dtype(0)),
        finish_(Finish::all(request.attrs<MatmulAttrs>())),
        finish_kernel_(make_finish(request, finish_)) {}
  void launch(const LaunchArgs& args) const override {
    cuda::launch_strided_matmul(dtype_, product_, args.inputs[0], args.inputs[1], args.outputs[0],
                                cuda::cuda_stream(args.stream));
    launch_finish(finish_kernel_.get(), finish_, args);
  }

 private:
  StridedMatmul product_;
  DType dtype_;
  Finish finish_;
  std::unique_ptr<cuda::ElementwiseKernel> finish_kernel_;
};

class SmallKernel final : public Kernel {
 public:
  SmallKernel(const KernelRequest& request, const StridedMatmul& p)
      : product_(p),
        plan_(cuda::plan_small_matmul(p)),
        bias_(request.attrs<MatmulAttrs>().bias),
        epilogue_(request.attrs<MatmulAttrs>().epilogue) {}
  void launch(const LaunchArgs& args) const override {
    const auto in = [&](int i) { return static_cast<const float*>(args.inputs[i]); };
    cuda::launch_small_matmul(plan_, product_, epilogue_, in(0), in(1), bias_ ? in(2) : nullptr,
                              static_cast<float*>(args.outputs[0]), cuda::cuda_stream(args.stream));
  }

 private:
  StridedMatmul product_;
  cuda::SmallMatmulPlan plan_;
  bool bias_;
  Epilogue epilogue_;
};

// Large ones in float32, on tensor cores.
class Tf32x3Kernel final : public Kernel {
 public:
  Tf32x3Kernel(const KernelRequest& request, const cuda::Tf32x3Matmul& product)
      : product_(product), attrs_(request.attrs<MatmulAttrs>()), finish_(Finish::all(attrs_)) {}
  size_t workspace_bytes() const override { return product_.workspace_bytes(); }
  bool in_place(int input, int) const override { return attrs_.addend && input == finish_.addend_input; }
  void launch(const LaunchArgs& args) const override {
    const auto in = [&](int i) { return static_cast<const float*>(args.inputs[i]); };
    product_.launch(in(0), in(1), attrs_.bias ? in(finish_.bias_input) : nullptr,
                    attrs_.addend ? in(finish_.addend_input) : nullptr, attrs_.epilogue,
                    static_cast<float*>(args.outputs[0]), args.workspace, cuda::cuda_stream(args.stream));
  }

 private:
  cuda::Tf32x3Matmul product_;
  MatmulAttrs attrs_;
  Finish finish_;
};

// Clusters of blocks came with Hopper.
bool has_clusters() {
  int ordinal = 0, major = 0;
  cuda::check(cudaGetDevice(&ordinal), "cudaGetDevice");
  cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
              "cudaDeviceGetAttribute");
  return major >= 9;
}

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  const StridedMatmul p = describe(request);
  const bool dense_bias = !request.attrs<MatmulAttrs>().bias || request.inputs[2].contiguous();
  if (dense_bias && !request.attrs<MatmulAttrs>().addend && cuda::is_small_matmul(request.dtype(0), p) &&
      has_clusters())
    return std::make_unique<SmallKernel>(request, p);
  const bool dense_addend = !request.attrs<MatmulAttrs>().addend || request.inputs.back().contiguous();
  if (request.dtype(0) == DType::float32 && !config::tensor_float_32_execution_enabled() && dense_bias &&
      dense_addend)
    if (const auto product = cuda::Tf32x3Matmul::make(p))
      return std::make_unique<Tf32x3Kernel>(request, *product);
  if (is_floating(request.dtype(0)) && request.outputs[0].spec.shape.size() > 0 && p.k > 0)
    if (auto kernel = LtMatmul::make(request, p)) return kernel;
  return std::make_unique<StridedKernel>(request, p);
}

const RegisterKernel registered(DeviceKind::gpu, kMatmul, {.prepare = prepare, .strided_inputs = true});

}  // namespace
}  // namespace lockstep
