// What the checks share: a case's inputs in one dtype, running it, and comparing what comes out.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "lockstep/execute/function.h"
#include "ops/op_case.h"
#include "ops/run_kernel_test.h"

namespace lockstep::testing {

constexpr std::source_location here(std::source_location where = std::source_location::current()) {
  return where;
}

// --- inputs ------------------------------------------------------------------------------------------------

Tensor tensor_of(const Array& array);
TensorList tensors_of(const Arrays& arrays);
Array array_of(const Tensor& tensor);

// The case's inputs in one dtype, with the numbers that its tensors hold; in these shapes, or else its own.
Arrays inputs_of(const OpCase& c, DType dtype, std::span<const Shape> shapes = {});
// Inputs that are computed from others follow them.
void derive_again(const OpCase& c, Arrays& arrays);

// --- running -----------------------------------------------------------------------------------------------

const OpCases& all_cases();
const OpDef& op_of(const OpCase& c);
bool has_kernel(const OpCase& c);
bool in_dtype(const OpCase& c, DType dtype);

TensorList run(const OpCase& c, std::span<const Tensor> inputs, std::source_location where = here());
TensorList run_compiled(std::span<const Tensor> inputs, FunctionCore::Body body);

// --- comparing ---------------------------------------------------------------------------------------------

double epsilon(DType dtype);
double largest(const std::vector<double>& values);

// All report the first element that is off.
void expect_close(const Tensor& got, const Array& want, Tolerance tolerance, double slack,
                  std::string_view what);
void expect_same_bits(const TensorList& got, const TensorList& want, std::string_view what);

// --- checks ------------------------------------------------------------------------------------------------

// Parts of several checks.

// The results have the inferred specs and the reference's values.
void check_results(const OpCase& c, const Arrays& arrays, DType dtype);
// float64: finite differences of the reference.
void check_gradient(const OpCase& c, const Arrays& arrays);
void compiled_equals_eager(const OpCase& c, const TensorList& inputs);

// Of a random weighted sum of the results with respect to every floating-point input; undefined where none
// flows.
TensorList gradients(const OpCase& c, std::span<const Tensor> inputs);
std::vector<double> weights(int64_t count, uint64_t seed);

// Throws an Error of this code, with a message that holds all of `says`, from the file of `where`.
void expect_error(const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& says,
                  std::source_location where);

struct Check {
  const char* name;
  bool (*applies)(const OpCase&);
  void (*run)(const OpCase&);
};
extern const std::vector<Check> kValueChecks, kDerivativeChecks, kCompileChecks, kLayoutChecks,
    kSpecialChecks;

}  // namespace lockstep::testing
