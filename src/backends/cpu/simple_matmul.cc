#include "backends/cpu/simple_matmul.h"

#include <algorithm>
#include <type_traits>

#include "backends/cpu/simd.h"
#include "backends/cpu/simple_matmul_simd.h"
#include "base/parallel.h"
#include "ops/matmul/matmul.h"

namespace lockstep::cpu {
namespace {

template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<BFloat16> {
  using type = float;
};
template <>
struct ComputeOf<Float16> {
  using type = float;
};

// Integers wrap around.
template <class C>
C add(C a, C b) {
  if constexpr (std::is_floating_point_v<C>)
    return a + b;
  else
    return static_cast<C>(static_cast<std::make_unsigned_t<C>>(a) + static_cast<std::make_unsigned_t<C>>(b));
}

template <class T>
class SimpleMatmul final : public Kernel {
 public:
  using C = typename ComputeOf<T>::type;

  SimpleMatmul(const KernelRequest& request, const OperandLayout& a, const OperandLayout& b)
      : tile_(pick_simd(simd_v2::kSimpleMatmulTable, simd_v3::kSimpleMatmulTable, simd_v4::kSimpleMatmulTable)
                  .tile[static_cast<size_t>(dtype_of<T>)]),
        bias_(request.attrs<MatmulAttrs>().bias),
        bias_stride_(bias_ ? request.inputs[2].strides[-1] : 0),
        batch_(request.outputs[0].spec.shape.drop_last(2)),
        a_batch_(batch_strides(a)),
        b_batch_(batch_strides(b)),
        rows_(a.spec.shape[-2]),
        depth_(a.spec.shape[-1]),
        columns_(b.spec.shape[-1]),
        a_row_(a.strides[-2]),
        a_column_(a.strides[-1]),
        b_row_(b.strides[-2]),
        b_column_(b.strides[-1]) {
    row_tiles_ = (rows_ + kTileRows - 1) / kTileRows;
    column_tiles_ = (columns_ + kTileColumns - 1) / kTileColumns;
    // Small products are over before a second thread would start.
    constexpr int64_t kProductsPerThread = 1 << 16;
    const int64_t tiles = batch_.size() * row_tiles_ * column_tiles_;
    const int64_t products = batch_.size() * rows_ * columns_ * std::max<int64_t>(depth_, 1);
    threads_ = static_cast<int>(
        std::clamp<int64_t>(std::min(tiles, products / kProductsPerThread), 1, request.threads));
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_) * kTileElements * sizeof(C);
  }

  void launch(const LaunchArgs& args) const override {
    const int64_t tiles = batch_.size() * row_tiles_ * column_tiles_;
    parallel(threads_, [&](int index) {
      C* workspace = static_cast<C*>(args.workspace) + index * kTileElements;
      for (int64_t t = tiles * index / threads_; t < tiles * (index + 1) / threads_; ++t)
        run_tile(args, t, workspace);
    });
  }

 private:
  Strides batch_strides(const OperandLayout& x) const {
    Strides strides;
    for (int i = 0; i < x.strides.rank() - 2; ++i) strides.push_back(x.strides[i]);
    return broadcast_strides(x.spec.shape.drop_last(2), strides, batch_);
  }

  void run_tile(const LaunchArgs& args, int64_t index, C* workspace) const {
    const int64_t column = index % column_tiles_ * kTileColumns;
    const int64_t row = index / column_tiles_ % row_tiles_ * kTileRows;
    const int64_t batch = index / column_tiles_ / row_tiles_;
    const T* a = static_cast<const T*>(args.inputs[0]) + row * a_row_;
    const T* b = static_cast<const T*>(args.inputs[1]) + column * b_column_;
    int64_t rest = batch;
    for (int i = batch_.rank() - 1; i >= 0; --i) {
      a += rest % batch_[i] * a_batch_[i];
      b += rest % batch_[i] * b_batch_[i];
      rest /= batch_[i];
    }
    const int64_t rows = std::min(kTileRows, rows_ - row);
    const int64_t columns = std::min(kTileColumns, columns_ - column);
    const C* c = static_cast<const C*>(tile_({.a = a,
                                              .a_row = a_row_,
                                              .a_column = a_column_,
                                              .b = b,
                                              .b_row = b_row_,
                                              .b_column = b_column_,
                                              .rows = rows,
                                              .columns = columns,
                                              .depth = depth_,
                                              .workspace = workspace}));
    const T* bias = bias_ ? static_cast<const T*>(args.inputs[2]) + column * bias_stride_ : nullptr;
    T* out = static_cast<T*>(args.outputs[0]) + (batch * rows_ + row) * columns_ + column;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        C x = c[i * kTileColumns + j];
        if (bias) x = add(x, static_cast<C>(bias[j * bias_stride_]));
        out[i * columns_ + j] = static_cast<T>(x);
      }
  }

  MatmulTileFunction tile_;
  bool bias_;
  int64_t bias_stride_;
  Shape batch_;
  Strides a_batch_, b_batch_;
  int64_t rows_, depth_, columns_;
  int64_t a_row_, a_column_, b_row_, b_column_;
  int64_t row_tiles_ = 0, column_tiles_ = 0;
  int threads_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> prepare_simple_matmul(const KernelRequest& request, const OperandLayout& a,
                                              const OperandLayout& b) {
  switch (request.dtype(0)) {
    case DType::float32: return std::make_unique<SimpleMatmul<float>>(request, a, b);
    case DType::float64: return std::make_unique<SimpleMatmul<double>>(request, a, b);
    case DType::bfloat16: return std::make_unique<SimpleMatmul<BFloat16>>(request, a, b);
    case DType::float16: return std::make_unique<SimpleMatmul<Float16>>(request, a, b);
    case DType::int32: return std::make_unique<SimpleMatmul<int32_t>>(request, a, b);
    case DType::int64: return std::make_unique<SimpleMatmul<int64_t>>(request, a, b);
    default: fail(ErrorCode::internal, request.where, "matmul: no products of ", request.dtype(0));
  }
}

}  // namespace lockstep::cpu
