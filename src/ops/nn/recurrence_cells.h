// The arithmetic of one step of a recurrent cell (ops/nn/recurrence.h), forward and backward, for every kind
// of device.
//
// Math says what a value is, one unit's or a vector of units', and has one(), sigmoid() and tanh() of it.
#pragma once

#if defined(__CUDACC__)
#define LOCKSTEP_CELL static __device__ __forceinline__
#else
#define LOCKSTEP_CELL static inline __attribute__((always_inline))
#endif

namespace lockstep {

// forward: x and p of each gate become the new h (and c), and what the gradient reads.
// backward: `state` and `before` are c of an lstm, else h, after and before the step; dkept arrived at
// `kept`. dp and dx are written, and dh (and dc), which arrive at the step's result, become what arrives at
// h_before other than by dp.
template <class Math>
struct SimpleCell {
  using V = typename Math::Value;
  static constexpr int kGates = 1, kKept = 0;
  static constexpr bool kCells = false, kInputGradient = false;

  LOCKSTEP_CELL void forward(const V* x, const V* p, V& h, V&, V*) { h = Math::tanh(x[0] + p[0]); }
  LOCKSTEP_CELL void backward(const V*, const V* /*dkept*/, const V& state, const V&, V& dh, V&, V* dp, V*) {
    dp[0] = dh * (Math::one() - state * state);
    dh = dh - dh;
  }
};

template <class Math>
struct LstmCell {
  using V = typename Math::Value;
  static constexpr int kGates = 4, kKept = 4;
  static constexpr bool kCells = true, kInputGradient = false;

  LOCKSTEP_CELL void forward(const V* x, const V* p, V& h, V& c, V* kept) {
    kept[0] = Math::sigmoid(x[0] + p[0]);
    kept[1] = Math::sigmoid(x[1] + p[1]);
    kept[2] = Math::tanh(x[2] + p[2]);
    kept[3] = Math::sigmoid(x[3] + p[3]);
    c = kept[1] * c + kept[0] * kept[2];
    h = kept[3] * Math::tanh(c);
  }
  LOCKSTEP_CELL void backward(const V* kept, const V* dkept, const V& state, const V& before, V& dh, V& dc,
                              V* dp, V*) {
    const V one = Math::one();
    const V &i = kept[0], &f = kept[1], &g = kept[2], &o = kept[3];
    const V a = Math::tanh(state);
    dc = dc + dh * o * (one - a * a);
    dp[0] = (dc * g + dkept[0]) * (i * (one - i));
    dp[1] = (dc * before + dkept[1]) * (f * (one - f));
    dp[2] = (dc * i + dkept[2]) * (one - g * g);
    dp[3] = (dh * a + dkept[3]) * (o * (one - o));
    dc = dc * f;
    dh = dh - dh;
  }
};

template <class Math>
struct GruCell {
  using V = typename Math::Value;
  static constexpr int kGates = 3, kKept = 4;
  static constexpr bool kCells = false, kInputGradient = true;

  LOCKSTEP_CELL void forward(const V* x, const V* p, V& h, V&, V* kept) {
    kept[0] = Math::sigmoid(x[0] + p[0]);
    kept[1] = Math::sigmoid(x[1] + p[1]);
    kept[2] = Math::tanh(x[2] + kept[1] * p[2]);
    kept[3] = p[2];
    h = kept[2] + kept[0] * (h - kept[2]);
  }
  LOCKSTEP_CELL void backward(const V* kept, const V* dkept, const V&, const V& before, V& dh, V&, V* dp,
                              V* dx) {
    const V one = Math::one();
    const V &z = kept[0], &r = kept[1], &n = kept[2], &q = kept[3];
    dx[2] = (dh * (one - z) + dkept[2]) * (one - n * n);
    dx[1] = (dx[2] * q + dkept[1]) * (r * (one - r));
    dx[0] = (dh * (before - n) + dkept[0]) * (z * (one - z));
    dp[0] = dx[0];
    dp[1] = dx[1];
    dp[2] = dx[2] * r + dkept[3];
    dh = dh * z;
  }
};

}  // namespace lockstep
