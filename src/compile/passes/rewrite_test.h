// For tests of passes and rewrites: one rewrite at a time, and whether a graph still computes what it did.
#pragma once

#include <string_view>

#include "compile/passes/passes.h"
#include "compile/passes/verify.h"
#include "execute/compile_test.h"
#include "graph/rewrite.h"

namespace lockstep::testing {

// What the rewrite of this name makes of a graph; the graph without its dead nodes where that is nothing.
inline Graph rewritten(std::string_view name, const Graph& graph, DeviceKind kind = DeviceKind::gpu) {
  const Graph before = compile::remove_dead_nodes(graph);
  for (const Rewrite& rewrite : registered_rewrites(kind)) {
    if (rewrite.name != name) continue;
    const std::optional<Graph> changed = rewrite.apply(before, kind);
    if (!changed) return before;
    Graph after = compile::remove_dead_nodes(*changed);
    compile::verify(after, kind);
    return after;
  }
  ADD_FAILURE() << "no rewrite is called " << name;
  return before;
}

inline Tensor quarters(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * static_cast<float>(i) - 1;
  return Tensor::from(values, shape);
}

inline TensorList arguments(const SpecList& specs) {
  TensorList all;
  for (const TensorSpec& spec : specs) all.push_back(quarters(spec.shape));
  return all;
}

// The rewritten graph computes what the first one did.
inline void expect_same_results(const Graph& before, const Graph& after, const SpecList& specs,
                                double bound = 0) {
  ASSERT_TRUE(is_sorted(after));
  const TensorList a = results_of(before, arguments(specs)), b = results_of(after, arguments(specs));
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    ASSERT_EQ(a[k].spec(), b[k].spec()) << "result " << k;
    if (a[k].dtype() != DType::float32) continue;
    const auto x = a[k].to_vector<float>(), y = b[k].to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], bound) << "result " << k << " element " << i;
  }
}

}  // namespace lockstep::testing
