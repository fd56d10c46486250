// Which keys each query sees.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// Booleans (1, queries, keys): query i sees keys 0 to i.
Tensor causal_mask(int64_t queries, int64_t keys);
// Booleans (1, queries, keys): keys nearer than `window`.
Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window);

// Both or the one that there is.
Tensor both(const Tensor& a, const Tensor& b);

// What the inputs {query, value[, key]} carry and the call asks for, but for causality: (batch, queries,
// keys), sizes of 1 where it is the same for all; undefined where every query sees every key.
Tensor seen_keys(const CallContext& context);

}  // namespace lockstep::keras
