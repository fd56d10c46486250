#include "ops/debugging/debugging.h"

#include <iostream>
#include <mutex>

#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "graph/numerics.h"
#include "lockstep/ops/debugging.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

SpecList token(const InferContext&) { return {{DType::boolean, {}}}; }

constexpr OpDef effect_op(std::string_view name) {
  return {.name = name, .min_inputs = 1, .max_inputs = -1, .infer = token, .pure = false};
}

// An op that happens in the order of the program, in every replica.
void emit_effect(const OpDef& op, TensorList inputs, const Attrs& attrs, std::source_location where) {
  Trace& trace = *Trace::current();
  inputs.push_back(trace.effect());
  if (trace.replica().local_batch >= 0) inputs.push_back(emit_one(kExampleOffset, {}, {}, where));
  trace.set_effect(emit_one(op, inputs, attrs, where));
}

}  // namespace

constinit const OpDef kPrint = effect_op("print");
constinit const OpDef kAssert = effect_op("assert");
constinit const OpDef kCheckNumerics{.name = "check_numerics",
                                     .infer = [](const InferContext& c) -> SpecList {
                                       c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch,
                                               "takes floating-point tensors, received ", c.inputs[0]);
                                       return {c.inputs[0]};
                                     },
                                     .grad = [](const GradContext& g) -> TensorList { return {g.dout()}; }};

namespace {
const RegisterOp registered(kCheckNumerics);
}

void print_line(const PrintAttrs& attrs, std::span<const TensorSpec> specs, std::span<const Strides> strides,
                void* const* data) {
  std::string line;
  if (const int replica = launch_place().replica; replica >= 0)
    line = detail::concat("[replica ", replica, "] ");
  for (size_t i = 0; i < attrs.texts.size(); ++i) {
    line += attrs.texts[i];
    if (i < specs.size()) line += elements_text(specs[i], strides[i], data[i], attrs.summarize);
  }
  line += '\n';
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  (attrs.output ? *attrs.output : std::cerr) << line << std::flush;
}

void print(std::initializer_list<PrintPart> parts, const PrintOptions& options, std::source_location where) {
  require(options.summarize >= -1, ErrorCode::invalid_argument, where,
          "print: summarize is a number of elements, or -1 for all, received ", options.summarize);
  PrintAttrs attrs{.texts = {""}, .output = options.output, .summarize = options.summarize};
  TensorList tensors;
  for (const PrintPart& part : parts) {
    if (&part != parts.begin()) attrs.texts.back() += ' ';
    attrs.texts.back() += part.text();
    if (!part.tensor().defined()) continue;
    tensors.push_back(part.tensor());
    attrs.texts.emplace_back();
  }
  if (Trace::current()) return emit_effect(kPrint, std::move(tensors), attrs, where);
  std::vector<TensorSpec> specs;
  std::vector<Strides> strides;
  std::vector<void*> data;
  for (Tensor& tensor : tensors) {
    require(!tensor.symbolic(), ErrorCode::failed_precondition, where,
            "print: a tensor of a traced function that has ended has no elements");
    specs.push_back(tensor.spec());
    strides.push_back(tensor.impl()->strides);
    data.push_back(tensor.impl()->data());
  }
  print_line(attrs, specs, strides, data.data());
}

namespace debugging {

void enable_check_numerics() { detail::numerics_checked.store(true, std::memory_order_relaxed); }
void disable_check_numerics() { detail::numerics_checked.store(false, std::memory_order_relaxed); }

Tensor check_numerics(const TensorArg& x, std::string_view message) {
  return emit_one(kCheckNumerics, {x.tensor()}, MessageAttrs{std::string(message)}, x.where());
}

void assert_true(const TensorArg& condition, std::string_view message) {
  const Tensor& tensor = condition.tensor("assert_true");
  require(tensor.dtype() == DType::boolean, ErrorCode::dtype_mismatch, condition.where(),
          "assert_true: takes a boolean tensor, received ", tensor.spec());
  const MessageAttrs attrs{std::string(message)};
  if (Trace::current())
    emit_effect(kAssert, {tensor}, attrs, condition.where());
  else
    run_eager(kAssert, {&tensor, 1}, attrs, SpecList{{DType::boolean, {}}}, condition.where());
}

void assert_equal(const OperandArg& x, const OperandArg& y, std::string_view message) {
  assert_true(TensorArg(equal(x, y), x.where()), message);
}

}  // namespace debugging
}  // namespace lockstep
