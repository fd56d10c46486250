#include "graph/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error_of_test.h"
#include "graph/kernel.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

const TensorSpec kSpec{DType::float32, {2}};
Tensor pair(float a, float b) { return Tensor::from<float>({a, b}, {2}); }

// --- emit --------------------------------------------------------------------------------------------------

TEST(Emit, CountsInputs) {
  const Tensor x = pair(1, 2);
  const auto where = here();
  const Error error = error_of([&] { emit(kAdd, TensorList{x}, {}, where); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("add"), HasSubstr("takes 2"), HasSubstr("received 1")));
  EXPECT_EQ(error.where().line(), where.line());
  EXPECT_THROW(emit(kExp, TensorList{x, x}, {}, where), Error);
  EXPECT_THROW(emit(kExp, {}, {}, where), Error);
}

TEST(Emit, RefusesNone) {
  const Error error = error_of([&] { emit(kAdd, TensorList{pair(1, 2), Tensor()}, {}, here()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("add"), HasSubstr("input 1"), HasSubstr("none")));
}

TEST(Emit, RunsAtOnceOutsideATrace) {
  EXPECT_THAT(emit_one(kAdd, {pair(1, 2), pair(10, 20)}, {}, here()).to_vector<float>(), ElementsAre(11, 22));
  EXPECT_THAT(fill(kSpec, 3).to_vector<float>(), ElementsAre(3, 3));
}

TEST(Emit, AppendsANodeInsideATrace) {
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  const auto where = here();
  const Tensor y = emit_one(kAdd, {x, x}, {}, where);
  EXPECT_TRUE(y.symbolic());
  EXPECT_EQ(y.spec(), kSpec);
  ASSERT_EQ(trace.graph().nodes.size(), 2u);
  const Node& node = trace.graph().nodes[1];
  EXPECT_EQ(node.op, &kAdd);
  EXPECT_THAT(node.inputs, ElementsAre(Value{0, 0}, Value{0, 0}));
  EXPECT_EQ(node.where.line(), where.line());
}

TEST(Emit, AShapeRuleThatFailsAppendsNothing) {
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  EXPECT_THROW(x + zeros({3}), Error);
  EXPECT_EQ(trace.graph().nodes.size(), 2u) << "the parameter and the constant";
}

TEST(Emit, MemoryThatThereIsNotIsAnError) {
  const OpDef greedy{.name = "greedy",
                     .infer = [](const InferContext&) -> SpecList { throw std::bad_alloc(); }};
  const auto where = here();
  const Error error = error_of([&] { emit_one(greedy, {pair(1, 2)}, {}, where); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.message(), HasSubstr("greedy: there is not enough memory"));
  EXPECT_EQ(error.where().line(), where.line());
}

// --- traces ------------------------------------------------------------------------------------------------

TEST(Traces, NestAndEnd) {
  EXPECT_EQ(Trace::current(), nullptr);
  {
    Trace outer;
    EXPECT_EQ(Trace::current(), &outer);
    {
      Trace inner;
      EXPECT_EQ(Trace::current(), &inner);
    }
    EXPECT_EQ(Trace::current(), &outer);
  }
  EXPECT_EQ(Trace::current(), nullptr);
  EXPECT_FALSE(pair(1, 2).symbolic());
}

TEST(Traces, CaptureEachTensorOnce) {
  const Tensor outside = pair(1, 2);
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  static_cast<void>(x + outside);
  static_cast<void>(x * outside);
  static_cast<void>(outside - x);
  int captured = 0;
  for (const Node& node : trace.graph().nodes) captured += node.op == &kCapturedInput;
  EXPECT_EQ(captured, 1);
}

TEST(Traces, RefuseSymbolsOfOthers) {
  Tensor stranger;
  {
    Trace trace;
    stranger = trace.parameter(0, kSpec, here());
  }
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  EXPECT_EQ(error_of([&] { x + stranger; }).code(), ErrorCode::failed_precondition);
}

TEST(Traces, ReadAndWriteVariablesInProgramOrder) {
  const Variable v(pair(1, 2), {.name = "v"});
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  const Value first = trace.value_of(v.value(), here());
  EXPECT_EQ(trace.value_of(v.value(), here()), first) << "read twice, one node";
  v.assign(x);
  v.assign(exp(x));
  ASSERT_EQ(trace.graph().updates.size(), 1u) << "the last assignment counts";
  EXPECT_EQ(trace.graph().node(trace.graph().updates[0].value).op, &kExp);
  int variables = 0;
  for (const Node& node : trace.graph().nodes) variables += node.op == &kVariable;
  EXPECT_EQ(variables, 1);
}

TEST(Traces, CountersGoUpOnceAtTheEnd) {
  const Variable counter(Tensor::scalar(int64_t{5}), {.trainable = false});
  Trace trace;
  trace.count_runs(counter);
  trace.count_runs(counter);
  EXPECT_THAT(trace.graph().updates, IsEmpty());
  trace.finish();
  ASSERT_EQ(trace.graph().updates.size(), 1u);
  EXPECT_EQ(trace.graph().node(trace.graph().updates[0].value).op, &kAdd);
}

TEST(Traces, NumberTheirSumsAndRandomDraws) {
  Trace trace;
  EXPECT_EQ(trace.next_collective(), 0);
  EXPECT_EQ(trace.next_collective(), 1);
  EXPECT_EQ(trace.next_random(), 0);
  EXPECT_EQ(trace.replica().local_batch, -1);
  Trace replica({.global_batch = 8, .local_batch = 2});
  EXPECT_EQ(replica.replica().global_batch, 8);
  EXPECT_EQ(replica.next_collective(), 0);
}

TEST(Graphs, PrintTheirNodesResultsAndUpdates) {
  const Variable v(pair(1, 2), {.name = "weights"});
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  const Tensor y = transpose(exp(x) + v, {0});
  v.assign(y);
  trace.graph().outputs.push_back(trace.value_of(y, here()));
  std::ostringstream out;
  out << trace.graph();
  EXPECT_THAT(out.str(), AllOf(HasSubstr("%0 = parameter() float32(2,)"), HasSubstr("= exp(%0) float32(2,)"),
                               HasSubstr("return %"), HasSubstr("weights <- %")));
}

// --- recorders ---------------------------------------------------------------------------------------------

class Log final : public Recorder {
 public:
  explicit Log(std::string name, std::vector<std::string>& lines) : name_(std::move(name)), lines_(lines) {
    push_recorder(this);
  }
  ~Log() override { remove_recorder(this); }
  void record(const OpDef& op, const Attrs&, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) override {
    lines_.push_back(name_ + " " + std::string(op.name) + " " + std::to_string(inputs.size()) + "->" +
                     std::to_string(outputs.size()));
  }
  void read(const Variable& variable, const Tensor&) override {
    lines_.push_back(name_ + " reads " + variable.name());
  }

 private:
  std::string name_;
  std::vector<std::string>& lines_;
};

TEST(Recorders, AreToldInTheOrderInWhichTheyCame) {
  const Variable v(pair(1, 2), {.name = "v"});
  std::vector<std::string> lines;
  {
    const Log first("first", lines);
    const Log second("second", lines);
    EXPECT_TRUE(has_recorders());
    exp(v);
  }
  EXPECT_FALSE(has_recorders());
  EXPECT_THAT(lines, ElementsAre("first reads v", "second reads v", "first exp 1->1", "second exp 1->1"));
}

TEST(Recorders, SeeNothingWhilePaused) {
  std::vector<std::string> lines;
  const Log log("log", lines);
  {
    const RecorderPause pause;
    EXPECT_FALSE(has_recorders());
    exp(pair(1, 2));
    {
      const RecorderPause again;
      exp(pair(1, 2));
    }
    EXPECT_FALSE(has_recorders());
    // One that comes during the pause works.
    const Log inside("inside", lines);
    EXPECT_TRUE(has_recorders());
    sin(pair(1, 2));
  }
  cos(pair(1, 2));
  EXPECT_THAT(lines, ElementsAre("inside sin 1->1", "log cos 1->1"));
}

TEST(Recorders, AnOpThatFailsIsNotTold) {
  std::vector<std::string> lines;
  const Log log("log", lines);
  EXPECT_THROW(pair(1, 2) + zeros({3}), Error);
  EXPECT_THAT(lines, IsEmpty());
}

// --- registries --------------------------------------------------------------------------------------------

TEST(Ops, AreFoundByName) {
  EXPECT_EQ(find_op("add"), &kAdd);
  EXPECT_EQ(find_op("no_such_op"), nullptr);
  for (const OpDef* op : registered_ops()) {
    EXPECT_EQ(find_op(op->name), op);
    EXPECT_NE(op->infer, nullptr) << op->name;
  }
}

TEST(Ops, AreRegisteredOnce) {
  const Error error = error_of([] { const RegisterOp again(kAdd); });
  EXPECT_EQ(error.code(), ErrorCode::internal);
  EXPECT_THAT(error.message(), HasSubstr("\"add\""));
}

TEST(Ops, WithoutACostRuleMoveTheirBytes) {
  static constexpr OpDef kPlain{.name = "plain"};
  const SpecList in = {kSpec, kSpec}, out = {{DType::float64, {3}}};
  const Cost cost = op_cost(kPlain, in, out, {});
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.bytes, 8 + 8 + 24);
}

TEST(Kernels, AMissingOneIsNamed) {
  static constexpr OpDef kPlain{.name = "plain"};
  const Error error = error_of([] { find_kernel(DeviceKind::cpu, kPlain, here()); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("plain"), HasSubstr("CPU")));
  // One for another kind of device is none.
  static constexpr OpDef kOnCpus{.name = "on_cpus"};
  static const RegisterKernel on_cpus(DeviceKind::cpu, kOnCpus, {});
  EXPECT_NO_THROW(find_kernel(DeviceKind::cpu, kOnCpus, here()));
  EXPECT_THROW(find_kernel(DeviceKind::gpu, kOnCpus, here()), Error);
}

// --- pauses ------------------------------------------------------------------------------------------------

class Listener final : public Recorder {
 public:
  Listener() { push_recorder(this); }
  ~Listener() override { remove_recorder(this); }
  void record(const OpDef& op, const Attrs&, std::span<const Tensor>, std::span<const Tensor>) override {
    heard.emplace_back(op.name);
  }
  void read(const Variable&, const Tensor&) override { heard.emplace_back("read"); }
  std::vector<std::string> heard;
};

TEST(TracePauses, RunOpsAtOnceInsideATraceUnheard) {
  const Listener outside;
  Trace trace;
  const Tensor x = trace.parameter(0, kSpec, here());
  Variable made;
  {
    const TracePause pause;
    EXPECT_EQ(Trace::current(), nullptr);
    const Listener inside;
    made = Variable(emit_one(kAdd, {pair(1, 2), pair(10, 20)}, {}, here()));
    EXPECT_THAT(made.value().to_vector<float>(), ElementsAre(11, 22));
    EXPECT_THAT(inside.heard, ElementsAre("add", "read"));
    {
      Trace other;
      EXPECT_TRUE(emit_one(kExp, {pair(1, 2)}, {}, here()).symbolic());
      const TracePause again;
      EXPECT_EQ(Trace::current(), nullptr);
    }
    EXPECT_EQ(Trace::current(), nullptr);
  }
  EXPECT_EQ(Trace::current(), &trace);
  EXPECT_THAT(outside.heard, IsEmpty());
  EXPECT_TRUE(emit_one(kAdd, {x, made.value()}, {}, here()).symbolic());
  EXPECT_THAT(outside.heard, ElementsAre("read", "add"));
}

}  // namespace
}  // namespace lockstep
