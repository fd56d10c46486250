#include "compile/passes/buffer_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compile/passes/passes.h"
#include "execute/compile_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::error_of;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const TensorSpec kSquare{DType::float32, {3, 3}};

class Results : public ::testing::Test {
 protected:
  void assign(const TracedBody& body) {
    graph_ = assign_result_buffers(remove_dead_nodes(traced({kSquare}, body)), {}, edges_);
    const Placement placement = place_nodes(graph_, {});
    order_ = schedule(graph_, placement, edges_);  // throws where the edges make a cycle
  }

  bool runs_before(int a, int b) const {
    return std::find(order_.begin(), order_.end(), a) < std::find(order_.begin(), order_.end(), b);
  }

  // Every result is written by a launch of its own, and nobody reads a variable's old value after it was
  // overwritten.
  void check() {
    std::set<std::pair<int, int>> written;
    const auto check_result = [&](Value v) {
      const OpDef& op = *graph_.node(v).op;
      EXPECT_FALSE(is_source(op)) << op.name << " has no launch that could write it";
      EXPECT_EQ(op.view, nullptr) << op.name << " is a view of other memory";
      EXPECT_TRUE(written.insert({v.node, v.output}).second)
          << op.name << " would have to write to two places";
    };
    for (const Value v : graph_.outputs) check_result(v);
    for (const VariableUpdate& update : graph_.updates) {
      const Node& source = graph_.node(update.value);
      if (source.op == &kVariable && source.attrs.as<VariableAttrs>().variable.id() == update.variable.id())
        continue;
      check_result(update.value);
    }
    for (const VariableUpdate& update : graph_.updates) {
      for (const int reader : readers_of(update.variable)) {
        if (reader == update.value.node) continue;
        EXPECT_TRUE(runs_before(reader, update.value.node))
            << graph_.nodes[static_cast<size_t>(reader)].op->name << " reads " << update.variable.name()
            << " after it was overwritten";
      }
    }
  }

  // Launches that read the variable's memory, directly or through views.
  std::vector<int> readers_of(const Variable& variable) const {
    std::vector<int> readers;
    std::vector<bool> alias(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == &kVariable) alias[i] = node.attrs.as<VariableAttrs>().variable.id() == variable.id();
      const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](Value v) { return alias[static_cast<size_t>(v.node)]; });
      if (reads && node.op->view)
        alias[i] = true;
      else if (reads)
        readers.push_back(static_cast<int>(i));
    }
    return readers;
  }

  int copies() const { return count_ops(graph_, kIdentity); }

  Graph graph_;
  std::vector<OrderEdge> edges_;
  std::vector<int> order_;
};

Variable variable(const char* name) {
  return Variable(Tensor::full(DType::float32, {3, 3}, 1), {.name = name});
}

TEST_F(Results, ComputedValuesAreWrittenInPlace) {
  assign([](const TensorList& p) { return TensorList{exp(p[0]), matmul(p[0], p[0])}; });
  check();
  EXPECT_EQ(copies(), 0);
}

TEST_F(Results, SourcesViewsAndDuplicatesAreCopied) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    const Tensor y = exp(p[0]);
    return TensorList{p[0], transpose(p[0]), v.value(), ones({3, 3}), y, y, transpose(y)};
  });
  check();
  EXPECT_EQ(copies(), 6);
}

TEST_F(Results, AnElementwiseUpdateOverwritesWhatItReads) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    v.assign(v + p[0]);
    return TensorList{};
  });
  check();
  EXPECT_EQ(copies(), 0);
}

TEST_F(Results, OtherReadersComeFirst) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    const Tensor product = matmul(p[0], v);
    v.assign(v * 2.0);
    return TensorList{product, matmul(product, transpose(v)) * 2.0};
  });
  check();
}

TEST_F(Results, AnUpdateThatIsNoElementwiseOpIsCopied) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    v.assign(matmul(v, p[0]));
    return TensorList{};
  });
  check();
  EXPECT_EQ(copies(), 1) << "a product cannot overwrite its own operand";
}

TEST_F(Results, AnUpdateThatReadsItsVariableThroughAViewIsCopied) {
  for (const bool transposed : {true, false}) {
    const Variable v = variable("v");
    edges_.clear();
    assign([&](const TensorList& p) {
      v.assign(v + (transposed ? transpose(v) : slice(v, {0, 0}, {1, 3})) * p[0]);
      return TensorList{};
    });
    check();
    // Where one launch both reads other elements and writes, the copy comes after it.
    const Node& writer = graph_.node(graph_.updates[0].value);
    for (const Value input : writer.inputs) EXPECT_EQ(graph_.node(input).op->view, nullptr);
  }
}

TEST_F(Results, OldValuesThatAreReadAfterTheUpdateAreCopied) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    const Tensor old = v.value();
    v.assign(v + p[0]);
    return TensorList{matmul(v, old)};
  });
  check();
}

TEST_F(Results, TheOldValueIsReturned) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    const Tensor old = v.value();
    v.assign(v + p[0]);
    return TensorList{old};
  });
  check();
}

TEST_F(Results, AVariableIsGivenToAnother) {
  const Variable a = variable("a"), b = variable("b");
  assign([&](const TensorList& p) {
    const Tensor old = a.value();
    a.assign(a + p[0]);
    b.assign(old);
    return TensorList{};
  });
  check();
}

TEST_F(Results, TwoVariablesAreSwapped) {
  const Variable a = variable("a"), b = variable("b");
  assign([&](const TensorList&) {
    const Tensor old = a.value();
    a.assign(b.value());
    b.assign(old);
    return TensorList{};
  });
  check();
}

TEST_F(Results, VariablesRotate) {
  const Variable a = variable("a"), b = variable("b"), c = variable("c");
  assign([&](const TensorList& p) {
    const Tensor old = a.value();
    a.assign(b + p[0]);
    b.assign(transpose(c));
    c.assign(old);
    return TensorList{};
  });
  check();
}

TEST_F(Results, OneValueForTwoVariablesAndTheCaller) {
  const Variable a = variable("a"), b = variable("b");
  assign([&](const TensorList& p) {
    const Tensor y = exp(p[0]);
    a.assign(y);
    b.assign(y);
    return TensorList{y};
  });
  check();
  EXPECT_EQ(copies(), 2);
}

TEST_F(Results, AssignedItsOwnValueNothingIsWritten) {
  const Variable v = variable("v");
  assign([&](const TensorList&) {
    v.assign(v.value());
    return TensorList{};
  });
  EXPECT_EQ(copies(), 0);
  EXPECT_EQ(graph_.node(graph_.updates[0].value).op, &kVariable);
}

TEST_F(Results, AVariableThatIsOnlyWritten) {
  const Variable v = variable("v");
  assign([&](const TensorList& p) {
    v.assign(matmul(p[0], p[0]));
    return TensorList{};
  });
  check();
  EXPECT_EQ(copies(), 0);
  EXPECT_THAT(edges_, IsEmpty());
}

TEST_F(Results, AValueThatDiffersBetweenReplicasIsRefused) {
  const Variable v(Tensor::full(DType::float32, {3}, 1), {.name = "moving_mean"});
  const auto settle_as_replica = [&](bool summed) {
    const Graph graph = traced({kSquare},
                               [&](const TensorList& p) {
                                 const Tensor mean = reduce_mean(p[0], {.axis = {0}});
                                 v.assign(summed ? all_reduce_sum(mean) : mean);
                                 return TensorList{};
                               },
                               {.global_batch = 6, .local_batch = 3});
    assign_result_buffers(graph, {true}, edges_);
  };
  const Error error = error_of([&] { settle_as_replica(false); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"moving_mean\""), HasSubstr("all_reduce_sum")));
  settle_as_replica(true);
}

}  // namespace
}  // namespace lockstep::compile
