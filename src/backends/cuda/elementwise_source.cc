#include "backends/cuda/elementwise_source.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;

// The meaning of every opcode that is not an operator of the language; ops/elementwise/program.h says what it
// is.
constexpr const char* kPrelude = R"(
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned char u8;

#define FLOATS(X) X(float, f) X(double, )
#define INTEGERS(X) X(int, unsigned) X(i64, u64) X(u8, unsigned)

#define X(T, s) \
  __device__ inline T add(T a, T b) { return a + b; } \
  __device__ inline T sub(T a, T b) { return a - b; } \
  __device__ inline T mul(T a, T b) { return a * b; } \
  __device__ inline T div(T a, T b) { return a / b; } \
  __device__ inline T neg(T a) { return -a; } \
  __device__ inline T absolute(T a) { return fabs##s(a); } \
  __device__ inline T floor_(T a) { return floor##s(a); } \
  __device__ inline T ceil_(T a) { return ceil##s(a); } \
  __device__ inline T round_(T a) { return rint##s(a); } \
  __device__ inline T sqrt_(T a) { return sqrt##s(a); } \
  __device__ inline T exp_(T a) { return exp##s(a); } \
  __device__ inline T log_(T a) { return log##s(a); } \
  __device__ inline T expm1_(T a) { return expm1##s(a); } \
  __device__ inline T log1p_(T a) { return log1p##s(a); } \
  __device__ inline T tanh_(T a) { return tanh##s(a); } \
  __device__ inline T erf_(T a) { return erf##s(a); } \
  __device__ inline T sin_(T a) { return sin##s(a); } \
  __device__ inline T cos_(T a) { return cos##s(a); } \
  __device__ inline T power(T a, T b) { return pow##s(a, b); } \
  __device__ inline T mod(T a, T b) { \
    const T r = fmod##s(a, b); \
    if (r == 0) return copysign##s((T)0, b); \
    return (r < 0) != (b < 0) ? r + b : r; \
  }
FLOATS(X)
#undef X

#define X(T, U) \
  __device__ inline T add(T a, T b) { return (T)((U)a + (U)b); } \
  __device__ inline T sub(T a, T b) { return (T)((U)a - (U)b); } \
  __device__ inline T mul(T a, T b) { return (T)((U)a * (U)b); } \
  __device__ inline T neg(T a) { return (T)((U)0 - (U)a); } \
  __device__ inline T absolute(T a) { return a < 0 ? neg(a) : a; } \
  __device__ inline T floor_(T a) { return a; } \
  __device__ inline T ceil_(T a) { return a; } \
  __device__ inline T round_(T a) { return a; } \
  __device__ inline T div(T a, T b) { \
    if (b == 0) return 0; \
    if ((T)-1 < 0 && b == (T)-1) return neg(a); \
    return (T)(a / b); \
  } \
  __device__ inline T mod(T a, T b) { \
    if (b == 0 || ((T)-1 < 0 && b == (T)-1)) return 0; \
    const T r = (T)(a % b); \
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; \
  } \
  __device__ inline T power(T a, T b) { \
    if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (b % 2 != 0 ? a : (T)1) : (T)0; \
    T result = 1; \
    for (; b != 0; b = (T)(b / 2), a = mul(a, a)) \
      if (b % 2 != 0) result = mul(result, a); \
    return result; \
  }
INTEGERS(X)
#undef X

template <class T> __device__ inline T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ inline T minimum(T a, T b) { return a < b || a != a ? a : b; }
template <class T> __device__ inline T sign(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a == 0 ? (T)0 : a; }

__device__ inline float load_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
__device__ inline unsigned short store_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ inline float load_f16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
__device__ inline unsigned short store_f16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ inline float round_bf16(float x) { return load_bf16(store_bf16(x)); }
__device__ inline float round_f16(float x) { return load_f16(store_f16(x)); }

// 1 + erf(x) within 2^-16 of itself, where erf() alone leaves an error of 2^-24: for results of 16 bits. A polynomial for
// log2(erfc(|x|)), good up to 5 and falling from there on.
__device__ inline float one_plus_erf(float x) {
  const float t = fabsf(x);
  float p = -1.7699424e-05f;
  p = fmaf(p, t, 0.00044483834f);
  p = fmaf(p, t, -0.0049682026f);
  p = fmaf(p, t, 0.033124427f);
  p = fmaf(p, t, -0.15118154f);
  p = fmaf(p, t, -0.91803877f);
  p = fmaf(p, t, -1.6277785f);
  p = fmaf(p, t, -1.5370244e-05f);
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(p));
  return x < 0 ? e : 2 - e;
}

// Values outside the integer's range become its nearest end, NaN becomes 0.
template <class T, class F> __device__ inline T saturate(F x, T low, T high, F above) {
  return x != x ? (T)0 : x <= (F)low ? low : x >= above ? high : (T)x;
}
template <class F> __device__ inline int to_i32(F x) { return saturate<int, F>(x, -2147483647 - 1, 2147483647, (F)2147483648.0); }
template <class F> __device__ inline i64 to_i64(F x) {
  return saturate<i64, F>(x, -9223372036854775807ll - 1, 9223372036854775807ll, (F)9223372036854775808.0);
}
template <class F> __device__ inline u8 to_u8(F x) { return saturate<u8, F>(x, 0, 255, (F)256); }

// As many elements as one thread reads or writes at once.
template <class T, int V> struct alignas(sizeof(T) * V <= 16 ? sizeof(T) * V : 16) Pack { T at[V]; };
)";

// While it is computed.
const char* computed_type(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
    case DType::float16: return "float";
    case DType::boolean: return "bool";
    default: return stored_type(dtype);
  }
}

std::string bits_text(const char* format, unsigned long long bits) {
  char text[64];
  std::snprintf(text, sizeof text, format, bits);
  return text;
}

std::string constant_text(DType dtype, double value) {
  const auto float_text = [](float x) {
    return bits_text("__uint_as_float(0x%llxu)", std::bit_cast<uint32_t>(x));
  };
  switch (dtype) {
    case DType::float32: return float_text(static_cast<float>(value));
    case DType::bfloat16: return float_text(static_cast<float>(BFloat16(static_cast<float>(value))));
    case DType::float16: return float_text(static_cast<float>(Float16(static_cast<float>(value))));
    case DType::float64: return bits_text("__longlong_as_double(0x%llxll)", std::bit_cast<uint64_t>(value));
    case DType::boolean: return value != 0 ? "true" : "false";
    default: break;
  }
  // As a C++ cast does it, but never undefined.
  const double low = dtype == DType::uint8 ? 0 : dtype == DType::int32 ? -0x1p31 : -0x1p63;
  const double high = dtype == DType::uint8 ? 255 : dtype == DType::int32 ? 0x1p31 - 1 : 0x1p63;
  const int64_t integer = value != value || value <= low ? (value != value ? 0 : static_cast<int64_t>(low))
                          : value >= high ? (dtype == DType::int64 ? std::numeric_limits<int64_t>::max()
                                                                   : static_cast<int64_t>(high))
                                          : static_cast<int64_t>(value);
  return detail::concat("(", stored_type(dtype), ")", bits_text("0x%llxull", static_cast<uint64_t>(integer)));
}

std::string loaded(DType dtype, const std::string& element) {
  switch (dtype) {
    case DType::bfloat16: return "load_bf16(" + element + ")";
    case DType::float16: return "load_f16(" + element + ")";
    case DType::boolean: return "(" + element + " != 0)";
    default: return element;
  }
}

std::string to_store(DType dtype, const std::string& value) {
  switch (dtype) {
    case DType::bfloat16: return "store_bf16(" + value + ")";
    case DType::float16: return "store_f16(" + value + ")";
    case DType::boolean: return "(u8)" + value;
    default: return value;
  }
}

std::string cast_text(DType from, DType to, const std::string& a) {
  const bool floats = is_floating(from);
  switch (to) {
    case DType::boolean: return from == DType::boolean ? a : "(" + a + " != 0)";
    case DType::float32: return "(float)" + a;
    case DType::float64: return "(double)" + a;
    case DType::bfloat16: return "round_bf16((float)" + a + ")";
    case DType::float16: return "round_f16((float)" + a + ")";
    case DType::int32: return (floats ? "to_i32(" : "(int)(") + a + ")";
    case DType::int64: return (floats ? "to_i64(" : "(i64)(") + a + ")";
    case DType::uint8: return (floats ? "to_u8(" : "(u8)(") + a + ")";
  }
  return a;
}

const char* function_of(Opcode op) {
  switch (op) {
    case Opcode::add: return "add";
    case Opcode::sub: return "sub";
    case Opcode::mul: return "mul";
    case Opcode::div: return "div";
    case Opcode::maximum: return "maximum";
    case Opcode::minimum: return "minimum";
    case Opcode::pow: return "power";
    case Opcode::mod: return "mod";
    case Opcode::neg: return "neg";
    case Opcode::abs: return "absolute";
    case Opcode::sign: return "sign";
    case Opcode::floor: return "floor_";
    case Opcode::ceil: return "ceil_";
    case Opcode::round: return "round_";
    case Opcode::sqrt: return "sqrt_";
    case Opcode::exp: return "exp_";
    case Opcode::log: return "log_";
    case Opcode::expm1: return "expm1_";
    case Opcode::log1p: return "log1p_";
    case Opcode::tanh: return "tanh_";
    case Opcode::erf: return "erf_";
    case Opcode::sin: return "sin_";
    case Opcode::cos: return "cos_";
    default: return nullptr;
  }
}

const char* operator_of(Opcode op) {
  switch (op) {
    case Opcode::less: return " < ";
    case Opcode::less_equal: return " <= ";
    case Opcode::greater: return " > ";
    case Opcode::greater_equal: return " >= ";
    case Opcode::equal: return " == ";
    case Opcode::not_equal: return " != ";
    case Opcode::logical_and: return " && ";
    case Opcode::logical_or: return " || ";
    default: return nullptr;
  }
}

std::string expression(const ScalarProgram& program, const Instruction& i, const std::string& prefix) {
  const auto arg = [&](size_t k) { return prefix + std::to_string(i.args[k]); };
  if (i.op == Opcode::cast)
    return cast_text(program.instructions[static_cast<size_t>(i.args[0])].dtype, i.dtype, arg(0));
  if (i.op == Opcode::select) return arg(0) + " ? " + arg(1) + " : " + arg(2);
  if (i.op == Opcode::logical_not) return "!" + arg(0);
  if (const char* between = operator_of(i.op)) return arg(0) + between + arg(1);
  std::string call = function_of(i.op) + std::string("(") + arg(0);
  if (elementwise::arity(i.op) > 1) call += ", " + arg(1);
  return call + ")";
}

}  // namespace

namespace {

bool is_narrow(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

// By value: whether more than 16 bits of it are seen, in results or in decisions.
std::vector<bool> seen_whole(const ScalarProgram& program) {
  std::vector<bool> whole(program.instructions.size(), false);
  for (const int16_t output : program.outputs)
    if (!is_narrow(program.instructions[static_cast<size_t>(output)].dtype))
      whole[static_cast<size_t>(output)] = true;
  for (size_t n = program.instructions.size(); n-- > 0;) {
    const Instruction& i = program.instructions[n];
    if (i.op == Opcode::cast && is_narrow(i.dtype)) continue;
    for (const int16_t arg : i.args)
      if (arg >= 0 && (whole[n] || i.dtype == DType::boolean)) whole[static_cast<size_t>(arg)] = true;
  }
  return whole;
}

// The argument x of the instruction where it is 1 + erf(x) in float32 for results of 16 bits; -1: it is not.
int16_t erf_plus_one(const ScalarProgram& program, const Instruction& i, bool whole) {
  if (whole || i.op != Opcode::add || std::string_view(computed_type(i.dtype)) != "float") return -1;
  for (const size_t side : {0, 1}) {
    const Instruction& one = program.instructions[static_cast<size_t>(i.args[side])];
    const Instruction& erf = program.instructions[static_cast<size_t>(i.args[1 - side])];
    if (one.op == Opcode::constant && one.immediate == 1 && erf.op == Opcode::erf) return erf.args[0];
  }
  return -1;
}

}  // namespace

const char* stored_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::bfloat16:
    case DType::float16: return "unsigned short";
    case DType::int32: return "int";
    case DType::int64: return "i64";
    default: return "u8";
  }
}

std::string_view scalar_prelude() { return kPrelude; }

ScalarCode scalar_code(const ScalarProgram& program, const std::function<std::string(size_t)>& element,
                       const std::string& prefix) {
  ScalarCode code;
  const std::vector<bool> whole = seen_whole(program);
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    const Instruction& i = program.instructions[n];
    const int16_t erf_of = erf_plus_one(program, i, whole[n]);
    const std::string value = i.op == Opcode::input ? loaded(i.dtype, element(static_cast<size_t>(i.index)))
                              : i.op == Opcode::constant ? constant_text(i.dtype, i.immediate)
                              : erf_of >= 0 ? detail::concat("one_plus_erf(", prefix, erf_of, ")")
                                            : expression(program, i, prefix);
    code.statements +=
        detail::concat("      const ", computed_type(i.dtype), " ", prefix, n, " = ", value, ";\n");
  }
  for (const int16_t output : program.outputs)
    code.outputs.push_back(
        to_store(program.instructions[static_cast<size_t>(output)].dtype, prefix + std::to_string(output)));
  return code;
}

int64_t Walk::size() const {
  int64_t size = 1;
  for (const int64_t s : sizes) size *= s;
  return size;
}

Walk make_walk(const Shape& shape, std::span<const Strides> strides, std::span<const DType> dtypes) {
  Walk walk;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < strides.size(); ++i)
      bytes.push_back(strides[i][d] * static_cast<int64_t>(size_of(dtypes[i])));
    bool one_walk = !walk.sizes.empty();
    for (size_t i = 0; one_walk && i < bytes.size(); ++i)
      one_walk = walk.strides.back()[i] == bytes[i] * shape[d];
    if (one_walk) {
      walk.sizes.back() *= shape[d];
      walk.strides.back() = std::move(bytes);
    } else {
      walk.sizes.push_back(shape[d]);
      walk.strides.push_back(std::move(bytes));
    }
  }
  if (walk.sizes.empty()) {
    walk.sizes = {1};
    auto& bytes = walk.strides.emplace_back();
    for (const DType dtype : dtypes) bytes.push_back(static_cast<int64_t>(size_of(dtype)));
  }
  return walk;
}

InnerAccess inner_access(const Walk& walk, size_t operand, DType dtype) {
  const int64_t stride = walk.strides.back()[operand];
  if (stride == 0) return InnerAccess::broadcast;
  return stride == static_cast<int64_t>(size_of(dtype)) ? InnerAccess::contiguous : InnerAccess::strided;
}

int vector_width(const Walk& walk, std::span<const DType> dtypes) {
  int64_t widest = 1;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const InnerAccess access = inner_access(walk, i, dtypes[i]);
    if (access == InnerAccess::strided) return 1;
    if (access == InnerAccess::contiguous)
      widest = std::max(widest, static_cast<int64_t>(size_of(dtypes[i])));
  }
  int64_t width = std::min<int64_t>(8, 16 / widest);
  const auto fits = [&] {
    if (walk.sizes.back() % width != 0) return false;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      if (inner_access(walk, i, dtypes[i]) != InnerAccess::contiguous) continue;
      const int64_t unit = width * static_cast<int64_t>(size_of(dtypes[i]));
      for (size_t d = 0; d + 1 < walk.sizes.size(); ++d)
        if (walk.strides[d][i] % unit != 0) return false;
    }
    return true;
  };
  while (width > 1 && !fits()) width /= 2;
  return static_cast<int>(width);
}

namespace {

// What a thread does with V elements: pointers a0, a1, ... say where each operand has them, or the one that
// all read.
std::string unit_code(const ScalarProgram& program, std::span<const DType> dtypes,
                      const std::function<bool(size_t)>& packed) {
  const size_t inputs = program.inputs.size();
  std::string text;
  const auto add = [&](const auto&... parts) { text += detail::concat(parts..., "\n"); };
  const auto pack = [&](size_t i) { return detail::concat("Pack<", stored_type(dtypes[i]), ", V>"); };
  for (size_t i = 0; i < inputs; ++i) {
    const std::string type = packed(i) ? pack(i) : stored_type(dtypes[i]);
    add("    const ", type, " in", i, " = *(const ", type, "*)a", i, ";");
  }
  for (size_t o = inputs; o < dtypes.size(); ++o) add("    ", pack(o), " out", o, ";");
  add("    _Pragma(\"unroll\") for (int j = 0; j < V; ++j) {");
  const ScalarCode code = scalar_code(
      program, [&](size_t k) { return detail::concat("in", k, packed(k) ? ".at[j]" : ""); }, "v");
  text += code.statements;
  for (size_t o = inputs; o < dtypes.size(); ++o)
    add("      out", o, ".at[j] = ", code.outputs[o - inputs], ";");
  add("    }");
  for (size_t o = inputs; o < dtypes.size(); ++o) add("    *(", pack(o), "*)a", o, " = out", o, ";");
  return text;
}

}  // namespace

std::string elementwise_source(const ScalarProgram& program, const Walk& walk,
                               std::span<const DType> dtypes) {
  const size_t operands = dtypes.size();
  const size_t rank = walk.sizes.size();
  const int width = vector_width(walk, dtypes);
  const bool wide = walk.size() > std::numeric_limits<int32_t>::max();
  std::string text = kPrelude;
  const auto add = [&](const auto&... parts) { text += detail::concat(parts..., "\n"); };
  add("typedef ", wide ? "u64" : "unsigned", " Index;");
  add("struct Arguments { char* at[", operands, "]; i64 stride[", rank, "][", operands, "]; u64 size[", rank,
      "]; u64 units; u64 vectors; };");
  add("template <int V> __device__ inline void walk(const Arguments& p) {");
  add("  const Index units = (Index)p.units;");
  add("  for (Index unit = blockIdx.x * blockDim.x + threadIdx.x; unit < units; unit += gridDim.x * "
      "blockDim.x) {");
  for (size_t i = 0; i < operands; ++i) add("    char* a", i, " = p.at[", i, "];");
  add("    Index rest = unit;");
  for (size_t d = rank; d-- > 0;) {
    const bool inner = d + 1 == rank;
    if (d > 0) {
      add("    const Index i", d, " = rest % (Index)p.size[", d, "]; rest /= (Index)p.size[", d, "];");
    } else {
      add("    const Index i0 = rest;");
    }
    for (size_t i = 0; i < operands; ++i) {
      if (!inner) {
        add("    a", i, " += (i64)i", d, " * p.stride[", d, "][", i, "];");
      } else if (const InnerAccess access = inner_access(walk, i, dtypes[i]);
                 access == InnerAccess::contiguous) {
        add("    a", i, " += (i64)i", d, " * (V * ", size_of(dtypes[i]), ");");
      } else if (access == InnerAccess::strided) {
        add("    a", i, " += (i64)i", d, " * p.stride[", d, "][", i, "];");
      }
    }
  }
  text += unit_code(program, dtypes,
                    [&](size_t i) { return inner_access(walk, i, dtypes[i]) == InnerAccess::contiguous; });
  add("  }\n}");
  add("extern \"C\" __global__ void ", kElementwiseKernel, "(const __grid_constant__ Arguments p) {");
  if (width > 1)
    add("  if (p.vectors) walk<", width, ">(p); else walk<1>(p);");
  else
    add("  walk<1>(p);");
  add("}");
  return text;
}

std::string elementwise_group_source(const ScalarProgram& program, const std::vector<bool>& whole,
                                     std::span<const DType> dtypes, const GroupLayout& layout) {
  const size_t operands = dtypes.size();
  std::string text = kPrelude;
  const auto add = [&](const auto&... parts) { text += detail::concat(parts..., "\n"); };
  add("struct Arguments { u64 members; char* at[", layout.capacity, "][", operands, "]; u64 size[",
      layout.capacity, "]; unsigned end[", layout.capacity, "]; unsigned vectors[", layout.capacity, "]; };");
  add("template <int V> __device__ inline void walk(const Arguments& p, unsigned member, unsigned block) {");
  add("  const u64 units = p.size[member] / V;");
  add("  u64 unit = (u64)block * ", layout.units, " + threadIdx.x;");
  for (size_t i = 0; i < operands; ++i) add("  char* const b", i, " = p.at[member][", i, "];");
  add("  for (unsigned k = 0; k < ", layout.units,
      " && unit < units; k += blockDim.x, unit += blockDim.x) {");
  for (size_t i = 0; i < operands; ++i) {
    if (whole[i])
      add("    char* const a", i, " = b", i, " + unit * (V * ", size_of(dtypes[i]), ");");
    else
      add("    char* const a", i, " = b", i, ";");
  }
  text += unit_code(program, dtypes, [&](size_t i) { return whole[i]; });
  add("  }\n}");
  add("extern \"C\" __global__ void ", kElementwiseKernel, "(const __grid_constant__ Arguments p) {");
  add("  unsigned member = 0, members = (unsigned)p.members;");
  add("  while (members > 1) {  // the first whose blocks end behind this one");
  add("    const unsigned half = members / 2;");
  add("    if (p.end[member + half - 1] <= blockIdx.x) { member += half; members -= half; } else { members = "
      "half; }");
  add("  }");
  add("  const unsigned block = blockIdx.x - (member > 0 ? p.end[member - 1] : 0);");
  if (layout.width > 1)
    add("  if (p.vectors[member]) walk<", layout.width,
        ">(p, member, block); else walk<1>(p, member, block);");
  else
    add("  walk<1>(p, member, block);");
  add("}");
  return text;
}

}  // namespace lockstep::cuda
