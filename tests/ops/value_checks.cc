// Specs and values against the reference, and what must be refused.
#include <algorithm>

#include "ops/op_checks.h"

namespace lockstep::testing {

void check_results(const OpCase& c, const Arrays& arrays, DType dtype) {
  const TensorList inputs = tensors_of(arrays);
  const TensorList results = run(c, inputs);
  const Arrays expected = c.reference(arrays);
  ASSERT_EQ(results.size(), expected.size());
  ASSERT_EQ(results.size(), c.results.size()) << "the case says how many results there are, and their dtypes";
  for (size_t k = 0; k < results.size(); ++k) {
    EXPECT_EQ(results[k].spec(), (TensorSpec{c.results[k](dtype), expected[k].shape})) << "result " << k;
    expect_close(results[k], expected[k], c.tolerance, c.slack, "result " + std::to_string(k));
  }
  if (!has_kernel(c)) return;
  SpecList specs;
  for (const Tensor& input : inputs) specs.push_back(input.spec());
  const SpecList inferred = op_of(c).infer({op_of(c), specs, c.attrs, here()});
  ASSERT_EQ(inferred.size(), results.size());
  for (size_t k = 0; k < results.size(); ++k)
    EXPECT_EQ(inferred[k], results[k].spec()) << "inferred, result " << k;
  const Cost cost = op_cost(op_of(c), specs, inferred, c.attrs);
  EXPECT_GE(cost.flops, 0);
  EXPECT_GE(cost.bytes, 0);
}

void expect_error(const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& says,
                  std::source_location where) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code)) << error.what();
    for (const std::string& part : says)
      EXPECT_NE(error.message().find(part), std::string::npos)
          << "\"" << part << "\" is missing in: " << error.message();
    EXPECT_STREQ(error.where().file_name(), where.file_name()) << error.what();
    return;
  } catch (const std::exception& other) {
    FAIL() << "threw something else than an Error: " << other.what();
  }
  FAIL() << "was accepted";
}

namespace {

void values_against_reference(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    SCOPED_TRACE(name(dtype));
    check_results(c, inputs_of(c, dtype), dtype);
  }
}

void function_gives_the_op(const OpCase& c) {
  for (const DType dtype : c.dtypes) {
    const TensorList inputs = tensors_of(inputs_of(c, dtype));
    expect_same_bits(c.function(inputs), run(c, inputs), "the public function");
  }
}

bool any_case_in_dtype(const std::string& op, DType dtype) {
  return std::ranges::any_of(all_cases(), [&](const OpCase& c) { return c.op == op && in_dtype(c, dtype); });
}

// Dtypes that no case of the op names, dtypes that differ between inputs, and the wrong number of inputs.
void refusals(const OpCase& c) {
  const auto refused = [&](const TensorList& inputs, ErrorCode code, const std::vector<std::string>& says) {
    expect_error([&] { run(c, inputs, here()); }, code, says, here());
  };
  std::vector<size_t> free;  // inputs that have the case's dtype
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].dtype == same && !c.inputs[i].derive) free.push_back(i);
  if (!free.empty())
    for (const DType dtype : kAll) {
      if (any_case_in_dtype(c.op, dtype)) continue;
      SCOPED_TRACE(detail::concat("all inputs ", dtype));
      const TensorList inputs = tensors_of(inputs_of(c, dtype));
      refused(inputs, ErrorCode::dtype_mismatch, {c.op + ": ", detail::concat(inputs[free[0]].spec())});
    }
  const TensorList inputs = tensors_of(inputs_of(c, c.dtypes[0]));
  for (size_t k = 1; k < free.size(); ++k) {
    SCOPED_TRACE(detail::concat("input ", free[k], " of another dtype"));
    const DType other = c.dtypes[0] == DType::float64 ? DType::float32 : DType::float64;
    TensorList mixed = inputs;
    mixed[free[k]] = tensor_of(other, inputs[free[k]].shape(), values(inputs[free[k]]));
    refused(mixed, ErrorCode::dtype_mismatch, {c.op + ": ", detail::concat(mixed[free[k]].spec())});
  }
  const OpDef& op = op_of(c);
  SCOPED_TRACE("wrong number of inputs");
  if (static_cast<int>(inputs.size()) == op.min_inputs && !inputs.empty())
    refused({inputs.begin(), inputs.end() - 1}, ErrorCode::invalid_argument,
            {c.op + ": ", "inputs, received"});
  if (op.max_inputs >= 0) {
    TensorList more = inputs;
    more.resize(static_cast<size_t>(op.max_inputs) + 1, sample({}));
    refused(more, ErrorCode::invalid_argument, {c.op + ": ", "inputs, received"});
  }
  if (!inputs.empty()) {
    TensorList none = inputs;
    none.back() = Tensor();
    refused(none, ErrorCode::invalid_argument, {c.op + ": ", "none"});
  }
}

}  // namespace

const std::vector<Check> kValueChecks = {
    {"Values", [](const OpCase&) { return true; }, values_against_reference},
    {"Function", [](const OpCase& c) { return has_kernel(c) && c.function; }, function_gives_the_op},
    {"Refusals", has_kernel, refusals},
};

}  // namespace lockstep::testing
