#include "backends/cuda/cudnn_plan.h"

#include <cudnn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "backends/cuda/check.h"

namespace lockstep::cuda {
namespace {

void check_cudnn(cudnnStatus_t status, const char* call,
                 std::source_location where = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorCode::internal, where, call, ": ", cudnnGetErrorString(status));
}

// One handle a device; a handle has one stream at a time, so whoever uses it holds the lock.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t cudnn = nullptr;
};

Handle& handle() {
  static std::mutex mutex;
  static auto* handles = new std::map<int, Handle>;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  Handle& h = (*handles)[device];
  if (!h.cudnn) check_cudnn(cudnnCreate(&h.cudnn), "cudnnCreate");
  return h;
}

// A descriptor of cuDNN's graph interface.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_) cudnnBackendDestroyDescriptor(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_all(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    set_all(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
  }
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void* values) {
    check_cudnn(cudnnBackendSetAttribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
  }
  bool try_finalize() { return cudnnBackendFinalize(raw_) == CUDNN_STATUS_SUCCESS; }
  void finalize() { check_cudnn(cudnnBackendFinalize(raw_), "cudnnBackendFinalize"); }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    case DType::float16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

enum Id : int64_t { kX = 'x', kFilter = 'w', kY = 'y' };

// cuDNN names dimensions (first, channels, spatial...); channels lie last in memory.
Descriptor tensor(Id id, DType dtype, int64_t first, const std::vector<int64_t>& spatial, int64_t channels) {
  std::vector<int64_t> dims = {first, channels}, strides = {0, 1};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  strides.resize(dims.size());
  int64_t stride = channels;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<int64_t>(id));
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(dtype));
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  t.finalize();
  return t;
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
bool acceptable(const Descriptor& config, DType dtype) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0;
  if (cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                               &count, &raw) != CUDNN_STATUS_SUCCESS)
    return false;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  if (cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
    return false;
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return dtype == DType::float32;
      default: return false;
    }
  });
}

}  // namespace

struct CudnnPlan::State {
  Descriptor graph, plan;
  size_t workspace = 0;
  Handle* handle = nullptr;
};

CudnnPlan::CudnnPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudnnPlan::~CudnnPlan() = default;
size_t CudnnPlan::workspace_bytes() const { return state_->workspace; }

std::unique_ptr<CudnnPlan> CudnnPlan::find(const CudnnConvolution& c, std::source_location) {
  const cudnnDataType_t compute = c.dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
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
  Descriptor operation(n.operation);
  const Descriptor x = tensor(kX, c.dtype, c.batch, c.input, c.in_channels),
                   filter = tensor(kFilter, c.dtype, c.out_channels, c.window, c.in_channels / c.groups),
                   y = tensor(kY, c.dtype, c.batch, c.output, c.out_channels);
  operation.set(n.convolution, convolution);
  operation.set(n.x, x);
  operation.set(n.filter, filter);
  operation.set(n.y, y);
  operation.set(n.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(n.beta, CUDNN_TYPE_FLOAT, 0.0f);
  if (!operation.try_finalize()) return nullptr;

  auto state = std::make_unique<State>();
  state->handle = &handle();
  const std::lock_guard lock(state->handle->mutex);
  const cudnnHandle_t raw_handle = state->handle->cudnn;
  state->graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  state->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, raw_handle);
  state->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (!state->graph.try_finalize()) return nullptr;

  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor ranking(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    ranking.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, state->graph);
    ranking.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (!ranking.try_finalize()) continue;
    constexpr int64_t kMost = 64;
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < kMost; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().raw());
    }
    int64_t count = 0;
    if (cudnnBackendGetAttribute(ranking.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 kMost, &count, raw.data()) != CUDNN_STATUS_SUCCESS)
      continue;
    for (int64_t i = 0; i < std::min(count, kMost); ++i) {
      const Descriptor& config = configs[static_cast<size_t>(i)];
      if (!acceptable(config, c.dtype)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, raw_handle);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.try_finalize()) continue;
      int64_t bytes = 0, received = 0;
      check_cudnn(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &received, &bytes),
                  "cudnnBackendGetAttribute");
      state->plan = std::move(plan);
      state->workspace = static_cast<size_t>(bytes);
      return std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(state)));
    }
  }
  return nullptr;
}

void CudnnPlan::launch(void* x, void* filter, void* y, void* workspace, cudaStream_t stream) const {
  const int64_t ids[] = {kX, kFilter, kY};
  void* pointers[] = {x, filter, y};
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  const std::lock_guard lock(state_->handle->mutex);
  check_cudnn(cudnnSetStream(state_->handle->cudnn, stream), "cudnnSetStream");
  check_cudnn(cudnnBackendExecute(state_->handle->cudnn, state_->plan.raw(), pack.raw()),
              "cudnnBackendExecute");
}

}  // namespace lockstep::cuda
