// Just enough over oneDNN for the floors: primitives bound to their buffers once, and the choice
// between several ways to compute the same thing by measuring them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

// The process's CPU engine and stream. The first use keeps oneDNN off its AMX kernels: those of 2.6.3
// die with an illegal instruction.
const dnnl::engine& onednn_engine();
const dnnl::stream& onednn_stream();

// Zero-filled floats, aligned to a cache line.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size);

  float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<float> span() const { return {data_.get(), static_cast<size_t>(size_)}; }

  // Values in (-scale, scale) that look random and are the same every time.
  void fill(uint32_t seed, float scale) const;

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> data_;
  int64_t size_ = 0;
};

dnnl::memory::desc f32(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag);

// A memory object over `data`, which must outlive it.
dnnl::memory over(const dnnl::memory::desc& desc, float* data);

// A primitive with its arguments bound. Running it is one call into oneDNN.
class Call {
 public:
  Call() = default;
  Call(dnnl::primitive primitive, std::initializer_list<std::pair<int, dnnl::memory>> arguments);
  void operator()() const;
  explicit operator bool() const { return !arguments_.empty(); }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  // keeps what arguments_ points to alive
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A reorder between two layouts of the same tensor; an empty Call where they are the same.
Call reorder(const dnnl::memory& from, const dnnl::memory& to);

// One way to compute something.
struct Way {
  std::string name;
  std::function<void()> run;
  std::span<const float> result;  // compared between the ways, unless empty
};

// The index of the fastest way; they are measured in turn, so that all meet the same noise. Throws where
// two ways' results disagree by more than `tolerance` of the largest value.
size_t fastest(const std::vector<Way>& ways, double tolerance);

// For tests: while it lives, fastest() on this thread measures nothing and takes the first or last way, so
// that what a floor computes can be checked for ways that are not the fastest here.
class PickScope {
 public:
  enum Pick { first, last };
  explicit PickScope(Pick pick);
  ~PickScope();
  PickScope(const PickScope&) = delete;
  PickScope& operator=(const PickScope&) = delete;
};

}  // namespace lockstep::bench
