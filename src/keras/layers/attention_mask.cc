#include "keras/layers/attention_mask.h"

#include <cstdlib>
#include <vector>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

template <class Sees>
Tensor pairs(int64_t queries, int64_t keys, Sees sees) {
  std::vector<bool> seen;
  seen.reserve(static_cast<size_t>(queries * keys));
  for (int64_t q = 0; q < queries; ++q)
    for (int64_t k = 0; k < keys; ++k) seen.push_back(sees(q, k));
  return Tensor::from(seen, {1, queries, keys});
}

Tensor as_booleans(const Tensor& mask) {
  return mask.defined() && mask.dtype() != DType::boolean ? cast(mask, DType::boolean) : mask;
}

}  // namespace

Tensor causal_mask(int64_t queries, int64_t keys) {
  return pairs(queries, keys, [](int64_t q, int64_t k) { return k <= q; });
}

Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window) {
  return pairs(queries, keys, [&](int64_t q, int64_t k) { return std::abs(q - k) < window; });
}

Tensor both(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? logical_and(a, b) : a;
}

Tensor seen_keys(const CallContext& context) {
  Tensor seen;
  for (size_t i = 0; i < context.masks.size(); ++i)
    if (const Tensor mask = as_booleans(context.masks[i]); mask.defined())
      seen = both(seen, expand_dims(mask, i == 0 ? -1 : -2));
  return both(as_booleans(context.attention_mask), seen);
}

}  // namespace lockstep::keras
