#include "backends/cuda/tf32x3_matmul.h"

#include "backends/cuda/tf32x3_product.h"

namespace lockstep::cuda {
namespace {

using tf32x3::Finish;

// A matrix, or one of a batch. `outer` are its rows where it is the left factor, its columns where it is the
// right one.
template <bool by_depth>
class Matrix {
 public:
  static constexpr bool kByDepth = by_depth;
  using Outer = int;  // -1: there is none
  using Inner = int;

  struct Batches {
    int rank = 0;
    int size[StridedMatmul::kMaxBatchRank];
    int64_t stride[StridedMatmul::kMaxBatchRank];
  };

  Matrix(const float* data, int outers, int64_t outer_stride, int64_t inner_stride, const Batches& batches)
      : data_(data),
        outers_(outers),
        stride_(static_cast<int>(by_depth ? outer_stride : inner_stride)),
        batches_(batches) {}

  // Whether rows of four begin aligned, and none ends in the midst of one.
  void allow_vectors(int inner) {
    vectors_ = reinterpret_cast<uintptr_t>(data_) % 16 == 0 && stride_ % 4 == 0 &&
               (by_depth ? inner : outers_) % 4 == 0;
    for (int d = 0; d < batches_.rank; ++d) vectors_ = vectors_ && batches_.stride[d] % 4 == 0;
  }

  __device__ Matrix of_batch(int index) const {
    Matrix one = *this;
    for (int d = batches_.rank - 1; d >= 0; --d) {
      one.data_ += index % batches_.size[d] * batches_.stride[d];
      index /= batches_.size[d];
    }
    return one;
  }
  __device__ const float* data() const { return data_; }
  __device__ bool vectors() const { return vectors_; }
  __device__ Outer outer(int index) const {
    return index < outers_ ? (by_depth ? index * stride_ : index) : -1;
  }
  __device__ Inner inner(int k) const { return by_depth ? k : k * stride_; }
  __device__ const float* at(Outer outer, Inner inner) const {
    return outer >= 0 ? data_ + (outer + inner) : nullptr;
  }

 private:
  const float* data_;
  int outers_, stride_;
  bool vectors_ = false;
  Batches batches_;
};

int64_t batches_of(const StridedMatmul& p) {
  int64_t count = 1;
  for (int d = 0; d < p.batch_rank; ++d) count *= p.batch[static_cast<size_t>(d)];
  return count;
}

// The elements between the first of a matrix and the last.
int64_t extent(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return (rows - 1) * row_stride + (columns - 1) * column_stride;
}

template <bool by_depth>
Matrix<by_depth> matrix(const float* data, int64_t outers, int64_t inners, int64_t outer_stride,
                        int64_t inner_stride, const StridedMatmul& p,
                        const std::array<int64_t, StridedMatmul::kMaxBatchRank>& strides) {
  typename Matrix<by_depth>::Batches batches;
  batches.rank = p.batch_rank;
  for (int d = 0; d < p.batch_rank; ++d) {
    batches.size[d] = static_cast<int>(p.batch[static_cast<size_t>(d)]);
    batches.stride[d] = strides[static_cast<size_t>(d)];
  }
  Matrix<by_depth> m(data, static_cast<int>(outers), outer_stride, inner_stride, batches);
  m.allow_vectors(static_cast<int>(inners));
  return m;
}

}  // namespace

std::optional<Tf32x3Matmul> Tf32x3Matmul::make(const StridedMatmul& p) {
  constexpr int64_t kMost = int64_t{1} << 30, kMostBatches = 65535, kLeast = 16;
  const bool dense = (p.a_column == 1 || p.a_row == 1) && (p.b_row == 1 || p.b_column == 1);
  if (!dense || p.m < kLeast || p.n < kLeast || p.k < kLeast || batches_of(p) > kMostBatches)
    return std::nullopt;
  if (p.m > kMost || p.n > kMost || p.k > kMost || extent(p.m, p.k, p.a_row, p.a_column) > kMost ||
      extent(p.k, p.n, p.b_row, p.b_column) > kMost)
    return std::nullopt;
  Tf32x3Matmul matmul;
  matmul.product_ = p;
  matmul.size_ = {static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k),
                  static_cast<int>(batches_of(p))};
  matmul.plan_ = tf32x3::make_plan(matmul.size_, tf32x3::this_gpu());
  return matmul;
}

void Tf32x3Matmul::launch(const float* a, const float* b, const float* bias, const float* addend,
                          Epilogue epilogue, float* c, void* workspace, cudaStream_t stream) const {
  const StridedMatmul& p = product_;
  const Finish finish{bias, addend, epilogue};
  const auto with = [&]<bool a_by_depth, bool b_by_depth>() {
    tf32x3::launch_product(plan_, size_, matrix<a_by_depth>(a, p.m, p.k, p.a_row, p.a_column, p, p.a_batch),
                           matrix<b_by_depth>(b, p.n, p.k, p.b_column, p.b_row, p, p.b_batch), finish, c,
                           static_cast<float*>(workspace), stream);
  };
  const bool a_by_depth = p.a_column == 1, b_by_depth = p.b_row == 1;
  if (a_by_depth)
    b_by_depth ? with.template operator()<true, true>() : with.template operator()<true, false>();
  else
    b_by_depth ? with.template operator()<false, true>() : with.template operator()<false, false>();
}

}  // namespace lockstep::cuda
