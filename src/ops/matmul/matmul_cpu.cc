// Matrix products on the CPU: own loops for vectors and for the types that oneDNN lacks, oneDNN for the rest.
// Large products of 16-bit floats that it lacks are computed in float32.
#include <algorithm>

#include "backends/cpu/activated_kernel.h"
#include "backends/cpu/dnnl_sequence.h"
#include "backends/cpu/product_threads.h"
#include "backends/cpu/simple_matmul.h"
#include "backends/cpu/widened_kernel.h"
#include "base/parallel.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matvec_cpu.h"

namespace lockstep {
namespace {

using cpu::DnnlSequence;

// oneDNN wants batch dimensions of equal rank; a missing one is 1.
OperandLayout with_rank(OperandLayout layout, int rank) {
  while (layout.spec.shape.rank() < rank) {
    layout.spec.shape.insert(0, 1);
    layout.strides.insert(0, 0);
  }
  // A stride of 0 stands for a broadcast dimension; oneDNN says it by a size of 1.
  for (int i = 0; i < rank - 2; ++i)
    if (layout.strides[i] == 0) layout.spec.shape[i] = 1;
  for (int i = 0; i < rank; ++i)
    if (layout.spec.shape[i] == 1)
      layout.strides[i] =
          i + 1 < rank ? std::max<int64_t>(layout.strides[i + 1], 1) * layout.spec.shape[i + 1] : 1;
  return layout;
}

// oneDNN's matrices must have one dimension of stride 1, and none that runs backwards.
bool dense_matrix(const OperandLayout& layout) {
  const Shape& shape = layout.spec.shape;
  if (std::any_of(layout.strides.begin(), layout.strides.end(), [](int64_t stride) { return stride < 0; }))
    return false;
  return layout.strides[-1] == 1 || layout.strides[-2] == 1 || shape[-1] == 1 || shape[-2] == 1;
}

std::unique_ptr<Kernel> prepare_dnnl(const KernelRequest& request, OperandLayout a, OperandLayout b) {
  const auto& attrs = request.attrs<MatmulAttrs>();
  const int rank = request.outputs[0].spec.shape.rank();
  a = with_rank(a, rank);
  b = with_rank(b, rank);
  const auto a_desc = cpu::dnnl_desc(a, request.where);
  const auto b_desc = cpu::dnnl_desc(b, request.where);
  const auto c_desc = cpu::dnnl_desc(request.outputs[0], request.where);
  const dnnl::primitive_attr attributes = cpu::dnnl_attributes();
  const int threads =
      cpu::threads_for_products(request.outputs[0].spec.shape.size() * a.spec.shape[-1], request.threads);
  const TeamScope team(threads);
  auto kernel = std::make_unique<DnnlSequence>(threads);
  std::vector<DnnlSequence::Argument> arguments = {{DNNL_ARG_SRC, a_desc, DnnlSequence::input(0)},
                                                   {DNNL_ARG_WEIGHTS, b_desc, DnnlSequence::input(1)},
                                                   {DNNL_ARG_DST, c_desc, DnnlSequence::output(0)}};
  if (attrs.bias) {
    // A bias is read as if it lay densely, whatever its descriptor says: a strided one is copied first.
    const OperandLayout& given = request.inputs[2];
    const OperandLayout dense{given.spec, contiguous_strides(given.spec.shape)};
    const auto bias_desc = cpu::dnnl_desc(with_rank(dense, rank), request.where);
    DnnlSequence::Slot bias = DnnlSequence::input(2);
    if (!given.contiguous()) {
      bias = kernel->temporary(bias_desc);
      kernel->add_reorder(cpu::dnnl_desc(with_rank(given, rank), request.where), DnnlSequence::input(2),
                          bias_desc, bias);
    }
    arguments.push_back({DNNL_ARG_BIAS, bias_desc, bias});
    const dnnl::matmul::primitive_desc product({a_desc, b_desc, bias_desc, c_desc}, attributes,
                                               cpu::dnnl_engine());
    kernel->add(dnnl::matmul(product), product.scratchpad_desc(), arguments);
  } else {
    const dnnl::matmul::primitive_desc product({a_desc, b_desc, c_desc}, attributes, cpu::dnnl_engine());
    kernel->add(dnnl::matmul(product), product.scratchpad_desc(), arguments);
  }
  return kernel;
}

// Whether a product of 16-bit floats is faster in float32, conversions of all operands included: each element
// takes part in several multiplications, and rows are dense, so that conversions are vector code.
bool pays_in_float32(const KernelRequest& request, int64_t inner) {
  constexpr int64_t kFewProducts = 1 << 15, kPerElement = 8;
  const int64_t results = request.outputs[0].spec.shape.size();
  int64_t elements = results;
  for (const OperandLayout& operand : request.inputs) {
    if (operand.strides[-1] != 1) return false;
    elements += operand.spec.shape.size();
  }
  return results * inner >= std::max(kFewProducts, kPerElement * elements);
}

std::unique_ptr<Kernel> prepare_product(const KernelRequest& request) {
  const auto& attrs = request.attrs<MatmulAttrs>();
  const OperandLayout a = attrs.transpose_a ? cpu::transposed(request.inputs[0]) : request.inputs[0];
  const OperandLayout b = attrs.transpose_b ? cpu::transposed(request.inputs[1]) : request.inputs[1];
  if (auto kernel = cpu::prepare_matvec(request, a, b)) return kernel;
  const DType dtype = request.dtype(0);
  const bool dnnl_type = dtype == DType::float32 || dtype == DType::bfloat16;
  const int64_t inner = a.spec.shape[-1];
  if (dnnl_type && request.outputs[0].spec.shape.size() > 0 && inner > 0 && dense_matrix(a) &&
      dense_matrix(b)) {
    try {
      return prepare_dnnl(request, a, b);
    } catch (const dnnl::error&) {
      // Not every combination of strided batches has a primitive, and not every processor those of bfloat16.
    }
  }
  if (size_of(dtype) == 2 && pays_in_float32(request, inner))
    return cpu::prepare_in_float32(request, prepare_product);
  return cpu::prepare_simple_matmul(request, a, b);
}

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return cpu::with_activation(prepare_product(request), request.attrs<MatmulAttrs>().epilogue, request);
}

const RegisterKernel registered(DeviceKind::cpu, kMatmul, {.prepare = prepare, .strided_inputs = true});

}  // namespace
}  // namespace lockstep
