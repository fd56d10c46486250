#include "backends/cuda/cudnn_graph.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "backends/cuda/check.h"
#include "backends/cuda/kept_code.h"
#include "base/sha256.h"

namespace lockstep::cuda {

void check_cudnn(cudnnStatus_t status, const char* call, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorCode::internal, where, call, ": ", cudnnGetErrorString(status));
}

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    case DType::float16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

namespace {

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

bool is_acceptable(const CudnnDescriptor& config, const CudnnNotes& acceptable) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0;
  if (cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                               &count, &raw) != CUDNN_STATUS_SUCCESS)
    return false;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  if (cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
    return false;
  return acceptable({notes, static_cast<size_t>(count)});
}

}  // namespace

void CudnnDescriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                              int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
  contents_ += detail::concat(";", static_cast<int>(name), ":", static_cast<int>(type), "*", count, "=");
  const auto width = [&]() -> int64_t {
    switch (type) {
      case CUDNN_TYPE_HANDLE:
      case CUDNN_TYPE_VOID_PTR:
      case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 0;
      case CUDNN_TYPE_INT64:
      case CUDNN_TYPE_DOUBLE: return 8;
      case CUDNN_TYPE_BOOLEAN:
      case CUDNN_TYPE_CHAR: return 1;
      default: return 4;  // enumerations, int32, float
    }
  }();
  contents_.append(static_cast<const char*>(values), static_cast<size_t>(width * count));
}

CudnnDescriptor make_tensor(const CudnnTensor& tensor) {
  CudnnDescriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, tensor.id);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, tensor.type);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.dims);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides);
  if (tensor.is_virtual) t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  if (tensor.is_by_value) t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  t.finalize();
  return t;
}

struct CudnnGraph::State {
  CudnnDescriptor graph, plan;
  size_t workspace = 0;
  Handle* handle = nullptr;

  void take(CudnnDescriptor made) {
    int64_t bytes = 0, received = 0;
    check_cudnn(cudnnBackendGetAttribute(made.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &received, &bytes),
                "cudnnBackendGetAttribute");
    plan = std::move(made);
    workspace = static_cast<size_t>(bytes);
  }
};

CudnnGraph::CudnnGraph(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudnnGraph::~CudnnGraph() = default;
size_t CudnnGraph::workspace_bytes() const { return state_->workspace; }

std::unique_ptr<CudnnGraph> CudnnGraph::find(std::span<const CudnnDescriptor> operations,
                                             const CudnnNotes& acceptable) {
  auto state = std::make_unique<State>();
  state->handle = &handle();
  const std::lock_guard lock(state->handle->mutex);
  const cudnnHandle_t raw_handle = state->handle->cudnn;
  std::vector<cudnnBackendDescriptor_t> raw_operations;
  for (const CudnnDescriptor& operation : operations) raw_operations.push_back(operation.raw());
  state->graph = CudnnDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  state->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, raw_handle);
  state->graph.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       static_cast<int64_t>(raw_operations.size()), raw_operations.data());
  if (!state->graph.try_finalize()) return nullptr;

  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor ranking(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    ranking.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, state->graph);
    ranking.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (!ranking.try_finalize()) continue;
    constexpr int64_t kMost = 64;
    std::vector<CudnnDescriptor> configs;
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
      const CudnnDescriptor& config = configs[static_cast<size_t>(i)];
      if (!is_acceptable(config, acceptable)) continue;
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, raw_handle);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.try_finalize()) continue;
      state->take(std::move(plan));
      return std::unique_ptr<CudnnGraph>(new CudnnGraph(std::move(state)));
    }
  }
  return nullptr;
}

namespace {

// A plan as cuDNN writes it down, with the code that it compiled; nothing where it does not.
std::optional<std::string> written(const CudnnDescriptor& plan) {
  int64_t size = 0;
  if (cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                               &size, nullptr) != CUDNN_STATUS_SUCCESS ||
      size <= 0)
    return std::nullopt;
  std::string text(static_cast<size_t>(size), '\0');
  if (cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               size, &size, text.data()) != CUDNN_STATUS_SUCCESS)
    return std::nullopt;
  return text;
}

std::string plan_name(std::span<const CudnnDescriptor> operations, const char* rule) {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  cudaDeviceProp gpu{};
  check(cudaGetDeviceProperties(&gpu, ordinal), "cudaGetDeviceProperties");
  Sha256 hash;
  hash.update(detail::concat("cuDNN ", cudnnGetVersion(), " CUDA ", cudnnGetCudartVersion(), " ", gpu.name,
                             " sm_", gpu.major, gpu.minor, " ", gpu.multiProcessorCount, " ", rule));
  for (const CudnnDescriptor& operation : operations) hash.update(operation.contents());
  return hash.finish() + ".cudnn";
}

}  // namespace

std::unique_ptr<CudnnGraph> CudnnGraph::find_or_compile(std::span<const CudnnDescriptor> operations,
                                                        const CudnnNotes& acceptable, const char* rule) {
  const std::string name = plan_name(operations, rule);
  if (const auto kept = find_kept_code(name)) {
    auto state = std::make_unique<State>();
    state->handle = &handle();
    const std::lock_guard lock(state->handle->mutex);
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, state->handle->cudnn);
    // What cuDNN cannot read, of a file that was cut off say, is compiled again.
    if (cudnnBackendSetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 static_cast<int64_t>(kept->size()), kept->data()) == CUDNN_STATUS_SUCCESS &&
        plan.try_finalize()) {
      state->take(std::move(plan));
      return std::unique_ptr<CudnnGraph>(new CudnnGraph(std::move(state)));
    }
  }
  auto found = find(operations, acceptable);
  if (found)
    if (const auto text = written(found->state_->plan)) keep_code(name, *text);
  return found;
}

void CudnnGraph::launch(std::span<const int64_t> ids, std::span<void* const> pointers, void* workspace,
                        cudaStream_t stream) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(ids.size()),
               ids.data());
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
               static_cast<int64_t>(pointers.size()), pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  const std::lock_guard lock(state_->handle->mutex);
  check_cudnn(cudnnSetStream(state_->handle->cudnn, stream), "cudnnSetStream");
  check_cudnn(cudnnBackendExecute(state_->handle->cudnn, state_->plan.raw(), pack.raw()),
              "cudnnBackendExecute");
}

}  // namespace lockstep::cuda
