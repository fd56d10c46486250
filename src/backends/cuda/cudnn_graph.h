// What programs for cuDNN's graph interface share: descriptors, tensors, and plans that are made once and
// launched often.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

void check_cudnn(cudnnStatus_t status, const char* call,
                 std::source_location where = std::source_location::current());

cudnnDataType_t cudnn_type(DType dtype);

// Owns a descriptor of cuDNN, and remembers what it was told.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) : contents_(std::to_string(type)) {
    check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : raw_(std::exchange(other.raw_, nullptr)), contents_(std::move(other.contents_)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    std::swap(contents_, other.contents_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (raw_) cudnnBackendDestroyDescriptor(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }
  // All that was set, numbers and other descriptors: equal ones describe the same. Handles and addresses are
  // left out.
  const std::string& contents() const { return contents_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_all(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    set_all(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
    contents_ += value.contents_;
  }
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void* values);
  bool try_finalize() { return cudnnBackendFinalize(raw_) == CUDNN_STATUS_SUCCESS; }
  void finalize() { check_cudnn(cudnnBackendFinalize(raw_), "cudnnBackendFinalize"); }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
  std::string contents_;
};

struct CudnnTensor {
  int64_t id = 0;  // of its own in a graph
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  bool is_virtual = false;   // between two operations of a graph
  bool is_by_value = false;  // its one element is the host's
};
CudnnDescriptor make_tensor(const CudnnTensor& tensor);

// Whether an algorithm with these properties will do.
using CudnnNotes = std::function<bool(std::span<const cudnnBackendNumericalNote_t>)>;

// Operations that cuDNN runs together, with the first algorithm of its ranking that is acceptable. Nothing is
// measured, so the choice depends on the problem alone.
class CudnnGraph {
 public:
  // Null where cuDNN has no such algorithm. The operations may go when this returns.
  static std::unique_ptr<CudnnGraph> find(std::span<const CudnnDescriptor> operations,
                                          const CudnnNotes& acceptable);
  // The same for operations that cuDNN compiles, for half a second each: what it has made is kept for later
  // processes, by all that the operations were told, by `rule`, which names what is acceptable, and by
  // cuDNN's version and the GPU.
  static std::unique_ptr<CudnnGraph> find_or_compile(std::span<const CudnnDescriptor> operations,
                                                     const CudnnNotes& acceptable, const char* rule);
  ~CudnnGraph();

  size_t workspace_bytes() const;
  // A pointer for each id of a tensor that is not virtual.
  void launch(std::span<const int64_t> ids, std::span<void* const> pointers, void* workspace,
              cudaStream_t stream) const;

 private:
  struct State;
  explicit CudnnGraph(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cuda
