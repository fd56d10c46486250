// What tapes know a tensor by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/tensor_impl.h"

namespace lockstep {

// Symbols are wrapped anew at every read, so they are known by their place in the trace.
struct TensorKey {
  uint64_t a, b;
  bool operator==(const TensorKey&) const = default;
};
struct TensorKeyHash {
  size_t operator()(const TensorKey& k) const { return k.a * 0x9e3779b97f4a7c15ull ^ k.b; }
};
inline TensorKey key_of(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  if (impl.symbol.trace == 0) return {0, impl.id};
  return {impl.symbol.trace,
          static_cast<uint64_t>(impl.symbol.node) << 32 | static_cast<uint32_t>(impl.symbol.output)};
}

}  // namespace lockstep
