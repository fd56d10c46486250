#include "backends/cuda/cudnn_plan.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backends/cuda/cudnn_graph.h"
#include "lockstep/device/config.h"

namespace lockstep::cuda {
namespace {

enum Id : int64_t { kX = 'x', kFilter = 'w', kY = 'y' };

// cuDNN names dimensions (first, channels, spatial...); channels lie last in memory.
CudnnDescriptor tensor(Id id, DType dtype, int64_t first, const std::vector<int64_t>& spatial,
                       int64_t channels) {
  std::vector<int64_t> dims = {first, channels}, strides = {0, 1};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  strides.resize(dims.size());
  int64_t stride = channels;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return make_tensor({.id = id, .type = cudnn_type(dtype), .dims = dims, .strides = strides});
}

struct OperationNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, filter, y, alpha, beta;
};

OperationNames names(CudnnDirection direction) {
  switch (direction) {
    case CudnnDirection::backprop_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CudnnDirection::backprop_filter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    case CudnnDirection::forward: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

// Whether an algorithm keeps what CudnnPlan promises.
bool acceptable(std::span<const cudnnBackendNumericalNote_t> notes, DType dtype) {
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return dtype == DType::float32 && !config::tensor_float_32_execution_enabled();
      default: return false;
    }
  });
}

}  // namespace

CudnnPlan::CudnnPlan(std::unique_ptr<CudnnGraph> graph) : graph_(std::move(graph)) {}
CudnnPlan::~CudnnPlan() = default;
size_t CudnnPlan::workspace_bytes() const { return graph_->workspace_bytes(); }

std::unique_ptr<CudnnPlan> CudnnPlan::find(const CudnnConvolution& c, std::source_location) {
  const cudnnDataType_t compute = c.dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
                  static_cast<int64_t>(c.input.size()));
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilations);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.strides);
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.before);
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.after);
  convolution.finalize();

  const OperationNames n = names(c.direction);
  CudnnDescriptor operation(n.operation);
  const CudnnDescriptor x = tensor(kX, c.dtype, c.batch, c.input, c.in_channels),
                        filter = tensor(kFilter, c.dtype, c.out_channels, c.window, c.in_channels / c.groups),
                        y = tensor(kY, c.dtype, c.batch, c.output, c.out_channels);
  operation.set(n.convolution, convolution);
  operation.set(n.x, x);
  operation.set(n.filter, filter);
  operation.set(n.y, y);
  operation.set(n.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(n.beta, CUDNN_TYPE_FLOAT, 0.0f);
  if (!operation.try_finalize()) return nullptr;

  auto graph = CudnnGraph::find({&operation, 1}, [&](auto notes) { return acceptable(notes, c.dtype); });
  return graph ? std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(graph))) : nullptr;
}

void CudnnPlan::launch(void* x, void* filter, void* y, void* workspace, cudaStream_t stream) const {
  constexpr int64_t kIds[] = {kX, kFilter, kY};
  void* const pointers[] = {x, filter, y};
  graph_->launch(kIds, pointers, workspace, stream);
}

}  // namespace lockstep::cuda
