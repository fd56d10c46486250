#include "backends/cpu/elementwise/lowering.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/elementwise/scalar_functions.h"
#include "backends/cpu/elementwise/vector_arithmetic.h"
#include "backends/cpu/elementwise/vector_math.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu::jit {
namespace {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;

// The lanes in which values of a dtype are computed.
Lane lane_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::bfloat16:
    case DType::float16: return Lane::f32;
    case DType::float64: return Lane::f64;
    case DType::int32:
    case DType::uint8: return Lane::i32;
    case DType::int64: return Lane::i64;
    case DType::boolean: break;
  }
  return Lane::mask;
}

// A scalar program's value: one vector, or the two parts of a 64-bit one.
struct Value {
  DType dtype = DType::float32;
  bool rounded = false;  // a bfloat16 or float16 that needs no rounding to be stored
  Vec parts[2];

  Lane lane() const { return lane_of(dtype); }
  size_t count() const { return is_wide(lane()) ? 2 : 1; }
  Vec only() const { return parts[0]; }
};

class Lowering {
 public:
  Lowering(const ScalarProgram& source, VectorProgram& target) : source_(source), builder_(target) {
    accesses_ = target.accesses;
  }

  void run() {
    const std::vector<Instruction>& code = source_.instructions;
    inputs_.resize(source_.inputs.size());
    size_t last_read = 0;
    for (size_t i = 0; i < code.size(); ++i)
      if (code[i].op == Opcode::input) last_read = i;

    // Outputs are stored as soon as that is safe, so that they do not occupy registers: once all
    // inputs are read, since an output may be the memory of an input.
    std::vector<std::vector<size_t>> due(code.size());
    for (size_t i = 0; i < source_.outputs.size(); ++i)
      due[std::max(last_read, static_cast<size_t>(source_.outputs[i]))].push_back(i);
    for (size_t i = 0; i < code.size(); ++i) {
      values_.push_back(lower(code[i]));
      values_.back().dtype = code[i].dtype;
      for (const size_t output : due[i]) store(output, values_[static_cast<size_t>(source_.outputs[output])]);
    }
  }

 private:
  const Value& arg(const Instruction& i, size_t number) const {
    return values_[static_cast<size_t>(i.args[number])];
  }

  template <class F>
  static Value map(const Value& a, F f) {
    Value result;
    for (size_t p = 0; p < a.count(); ++p) result.parts[p] = f(a.parts[p]);
    return result;
  }

  template <class F>
  static Value map(const Value& a, const Value& b, F f) {
    Value result;
    for (size_t p = 0; p < a.count(); ++p) result.parts[p] = f(a.parts[p], b.parts[p]);
    return result;
  }

  Value lower(const Instruction& i) {
    switch (i.op) {
      case Opcode::input: return load(i.index);
      case Opcode::constant: return constant(i.dtype, i.immediate);
      case Opcode::cast: return cast(arg(i, 0), i.dtype);
      case Opcode::select: return select_values(arg(i, 0).only(), arg(i, 1), arg(i, 2));
      case Opcode::logical_and: return {.parts = {arg(i, 0).only() & arg(i, 1).only()}};
      case Opcode::logical_or: return {.parts = {arg(i, 0).only() | arg(i, 1).only()}};
      case Opcode::logical_not: return {.parts = {!arg(i, 0).only()}};
      default: break;
    }
    if (i.op >= Opcode::less && i.op <= Opcode::not_equal) return compare_values(i.op, arg(i, 0), arg(i, 1));
    Value result = arity(i.op) == 2
                       ? map(arg(i, 0), arg(i, 1), [&](Vec a, Vec b) { return binary(i.op, a, b); })
                       : map(arg(i, 0), [&](Vec a) { return unary(i.op, a); });
    if (i.dtype == DType::uint8) result.parts[0] = result.only() & builder_.i32(0xff);
    return result;
  }

  Vec binary(Opcode op, Vec a, Vec b) {
    const bool floats = is_float(a.lane);
    switch (op) {
      case Opcode::add: return a + b;
      case Opcode::sub: return a - b;
      case Opcode::mul: return a * b;
      case Opcode::div: return floats ? a / b : divide_integers(a, b);
      case Opcode::mod: return floats ? mod(a, b) : mod_integers(a, b);
      case Opcode::pow: return floats ? pow(a, b) : pow_integers(a, b);
      case Opcode::maximum: return extremum(true, a, b);
      case Opcode::minimum: return extremum(false, a, b);
      default: break;
    }
    fail(ErrorCode::internal, std::source_location::current(), "elementwise lowering: no code for ",
         name(op));
  }

  Vec unary(Opcode op, Vec a) {
    const bool floats = is_float(a.lane);
    switch (op) {
      case Opcode::neg: return floats ? negate(a) : constant_like(a, 0) - a;
      case Opcode::abs: return floats ? abs(a) : raw_maximum(a, constant_like(a, 0) - a);
      case Opcode::sign: return sign(a);
      case Opcode::floor: return floats ? round(a, kFloor) : a;
      case Opcode::ceil: return floats ? round(a, kCeil) : a;
      case Opcode::round: return floats ? round(a, kNearest) : a;
      case Opcode::sqrt: return sqrt(a);
      default: break;
    }
    switch (op) {
      case Opcode::exp: return exp(a);
      case Opcode::log: return log(a);
      case Opcode::expm1: return expm1(a);
      case Opcode::log1p: return log1p(a);
      case Opcode::tanh: return tanh(a);
      case Opcode::erf: return erf(a);
      case Opcode::sin: return sin(a);
      case Opcode::cos: return cos(a);
      default: break;
    }
    fail(ErrorCode::internal, std::source_location::current(), "elementwise lowering: no code for ",
         name(op));
  }

  static Vec compare_vectors(Opcode op, Vec a, Vec b) {
    if (is_mask(a.lane)) {
      switch (op) {
        case Opcode::less: return and_not(b, a);
        case Opcode::less_equal: return b | !a;
        case Opcode::greater: return and_not(a, b);
        case Opcode::greater_equal: return a | !b;
        case Opcode::equal: return !(a ^ b);
        default: return a ^ b;
      }
    }
    if (is_float(a.lane)) {
      switch (op) {
        case Opcode::less: return compare(a, kLess, b);
        case Opcode::less_equal: return compare(a, kLessEqual, b);
        case Opcode::greater: return compare(a, kGreater, b);
        case Opcode::greater_equal: return compare(a, kGreaterEqual, b);
        case Opcode::equal: return compare(a, kEqual, b);
        default: return compare(a, kNotEqual, b);
      }
    }
    switch (op) {
      case Opcode::less: return compare(b, kGreater, a);
      case Opcode::less_equal: return !compare(a, kGreater, b);
      case Opcode::greater: return compare(a, kGreater, b);
      case Opcode::greater_equal: return !compare(b, kGreater, a);
      case Opcode::equal: return compare(a, kEqual, b);
      default: return !compare(a, kEqual, b);
    }
  }

  Vec join(const Vec (&parts)[2]) {
    return builder_.emit(Op::mask_join, Lane::mask64, Lane::mask, {parts[0], parts[1]}, {});
  }

  Value compare_values(Opcode op, const Value& a, const Value& b) {
    Value result = map(a, b, [&](Vec x, Vec y) { return compare_vectors(op, x, y); });
    if (a.count() == 2) result.parts[0] = join(result.parts);
    return result;
  }

  Value select_values(Vec condition, const Value& a, const Value& b) {
    if (is_mask(a.lane())) return {.parts = {(condition & a.only()) | and_not(b.only(), condition)}};
    Value result;
    result.rounded = a.rounded && b.rounded;
    for (size_t p = 0; p < a.count(); ++p)
      result.parts[p] = select(a.count() == 2 ? mask_part(condition, p) : condition, a.parts[p], b.parts[p]);
    return result;
  }

  Vec mask_part(Vec mask, size_t part) {
    return builder_.emit(Op::mask_part, Lane::mask, Lane::mask64, {mask},
                         {.immediate = static_cast<uint8_t>(part)});
  }

  Value constant(DType dtype, double immediate) {
    Value result;
    result.rounded = true;
    dispatch(dtype, [&]<class T>() {
      const auto value = scalar::convert<T>(immediate);
      if constexpr (std::is_same_v<T, bool>)
        result.parts[0] = builder_.mask(value != 0);
      else if constexpr (std::is_same_v<T, double>)
        result.parts[0] = builder_.f64(value);
      else if constexpr (std::is_same_v<T, int64_t>)
        result.parts[0] = builder_.i64(value);
      else if constexpr (std::integral<T>)
        result.parts[0] = builder_.i32(value);
      else
        result.parts[0] = builder_.f32(value);
    });
    result.parts[1] = result.parts[0];
    return result;
  }

  // Each operand is read once, however many instructions name it.
  Value load(int index) {
    Value& known = inputs_[static_cast<size_t>(index)];
    if (known.only().id >= 0) return known;
    const DType dtype = source_.inputs[static_cast<size_t>(index)];
    const bool splat = accesses_[static_cast<size_t>(index)] == Access::broadcast;
    const auto read = [&](Op loads, Op splats, Lane lane, int part = 0) {
      return builder_.load(index, splat ? splats : loads, lane, part);
    };
    known.dtype = dtype;
    known.rounded = true;
    switch (dtype) {
      case DType::float32:
      case DType::int32: known.parts[0] = read(Op::load32, Op::splat32, lane_of(dtype)); break;
      case DType::float16: known.parts[0] = read(Op::load_half, Op::splat_half, Lane::f32); break;
      case DType::bfloat16:
        known.parts[0] = as(Lane::f32, shift_left(read(Op::load16, Op::splat16, Lane::i32), 16));
        break;
      case DType::uint8: known.parts[0] = read(Op::load8, Op::splat8, Lane::i32); break;
      case DType::boolean: known.parts[0] = read(Op::load_mask, Op::splat_mask, Lane::mask); break;
      case DType::float64:
      case DType::int64:
        known.parts[0] = read(Op::load64, Op::splat64, lane_of(dtype), 0);
        known.parts[1] = splat ? known.parts[0] : read(Op::load64, Op::splat64, lane_of(dtype), 1);
        break;
    }
    return known;
  }

  void store(size_t output, const Value& value) {
    const int operand = static_cast<int>(source_.inputs.size() + output);
    switch (value.dtype) {
      case DType::float32:
      case DType::int32: return builder_.store(operand, Op::store32, value.only());
      case DType::float16: return builder_.store(operand, Op::store_half, value.only());
      case DType::bfloat16: {
        const Vec bits = value.rounded ? as(Lane::i32, value.only()) : round_to_bfloat16(value.only());
        return builder_.store(operand, Op::store16, shift_right(bits, 16));
      }
      case DType::uint8: return builder_.store(operand, Op::store8, value.only());
      case DType::boolean: return builder_.store(operand, Op::store_mask, value.only());
      case DType::float64:
      case DType::int64:
        for (int p = 0; p < 2; ++p) builder_.store(operand, Op::store64, value.parts[p], p);
        return;
    }
  }

  // To a 32-bit integer, saturating; NaN becomes 0.
  Vec truncate(const Value& a) {
    const Vec zero = builder_.i32(0);
    if (a.lane() == Lane::f32) {
      const Vec x = a.only();
      const Vec integer = builder_.emit(Op::to_i32_trunc, Lane::f32, Lane::i32, {x}, {});
      const Vec high = compare(x, kGreaterEqual, builder_.f32(0x1p31f));
      return select(is_nan(x), zero, select(high, builder_.i32(INT32_MAX), integer));
    }
    const Value inside = map(a, [&](Vec x) {
      const Vec low = raw_maximum(x, builder_.f64(INT32_MIN));
      return select(is_nan(x), builder_.f64(0), raw_minimum(low, builder_.f64(INT32_MAX)));
    });
    return builder_.emit(Op::narrow_to_i32, Lane::f64, Lane::i32, {inside.parts[0], inside.parts[1]}, {});
  }

  Value truncate_to_i64(const Value& a) {
    return map(a, [&](Vec x) {
      const Vec integer = builder_.emit(Op::to_i64_trunc, Lane::f64, Lane::i64, {x}, {});
      const Vec high = compare(x, kGreaterEqual, builder_.f64(0x1p63));
      return select(is_nan(x), builder_.i64(0), select(high, builder_.i64(INT64_MAX), integer));
    });
  }

  template <class F>
  Value both_parts(F f) {
    Value result;
    for (uint8_t p = 0; p < 2; ++p) result.parts[p] = f(p);
    return result;
  }

  Value cast_mask(Vec mask, DType to) {
    const Lane lane = lane_of(to);
    const Vec model{&builder_, -1, lane};
    const Vec one = constant_like(model, 1);
    const Vec zero = constant_like(model, 0);
    Value result;
    result.rounded = true;
    if (!is_wide(lane))
      result.parts[0] = select(mask, one, zero);
    else
      result = both_parts([&](uint8_t p) { return select(mask_part(mask, p), one, zero); });
    return result;
  }

  Value cast(const Value& a, DType to) {
    const Lane from = a.lane();
    if (to == DType::boolean) {
      if (from == Lane::mask) return a;
      Value zero;
      zero.parts[0] = zero.parts[1] = constant_like(a.only(), 0);
      return compare_values(Opcode::not_equal, a, zero);
    }
    if (from == Lane::mask) return cast_mask(a.only(), to);

    Value result;
    switch (to) {
      case DType::float32:
      case DType::bfloat16:
      case DType::float16: {
        Vec value = cast_to_f32(a);
        const bool exact = a.dtype == to && a.rounded;
        if (to == DType::float16 && !exact)
          value = builder_.emit(Op::round_half, Lane::f32, Lane::f32, {value}, {});
        if (to == DType::bfloat16 && !exact)
          value = as(Lane::f32, round_to_bfloat16(value) & builder_.i32(-0x10000));
        result.parts[0] = value;
        result.rounded = true;
        return result;
      }
      case DType::float64: return cast_to_f64(a);
      case DType::int32: result.parts[0] = is_float(from) ? truncate(a) : cast_to_i32(a); return result;
      case DType::uint8:
        result.parts[0] = is_float(from)
                              ? raw_minimum(raw_maximum(truncate(a), builder_.i32(0)), builder_.i32(255))
                              : cast_to_i32(a) & builder_.i32(0xff);
        return result;
      default: break;
    }
    switch (from) {
      case Lane::i64: return a;
      case Lane::f64: return truncate_to_i64(a);
      case Lane::f32: return truncate_to_i64(cast_to_f64(a));
      default:
        return both_parts([&](uint8_t p) {
          return builder_.emit(Op::widen, Lane::i32, Lane::i64, {a.only()}, {.immediate = p});
        });
    }
  }

  Vec cast_to_f32(const Value& a) {
    switch (a.lane()) {
      case Lane::f64: return builder_.emit(Op::narrow, Lane::f64, Lane::f32, {a.parts[0], a.parts[1]}, {});
      case Lane::i64:
        return builder_.emit(Op::narrow_to_f32, Lane::i64, Lane::f32, {a.parts[0], a.parts[1]}, {});
      case Lane::i32: return builder_.emit(Op::to_f32, Lane::i32, Lane::f32, {a.only()}, {});
      default: return a.only();
    }
  }

  Value cast_to_f64(const Value& a) {
    Value result;
    result.dtype = DType::float64;
    switch (a.lane()) {
      case Lane::f64: return a;
      case Lane::i64:
        result = map(a, [&](Vec x) { return builder_.emit(Op::to_f64, Lane::i64, Lane::f64, {x}, {}); });
        break;
      default: {
        const Op op = a.lane() == Lane::f32 ? Op::widen : Op::widen_to_f64;
        result = both_parts(
            [&](uint8_t p) { return builder_.emit(op, a.lane(), Lane::f64, {a.only()}, {.immediate = p}); });
      }
    }
    result.dtype = DType::float64;
    return result;
  }

  Vec cast_to_i32(const Value& a) {
    if (a.lane() == Lane::i32) return a.only();
    return builder_.emit(Op::narrow, Lane::i64, Lane::i32, {a.parts[0], a.parts[1]}, {});
  }

  const ScalarProgram& source_;
  Builder builder_;
  std::vector<Access> accesses_;
  std::vector<Value> inputs_;
  std::vector<Value> values_;
};

}  // namespace

std::optional<VectorProgram> lower(const ScalarProgram& program, std::span<const Access> accesses, Isa isa) {
  if (isa == Isa::avx2) {
    const auto is_int64 = [](const Instruction& i) { return i.dtype == DType::int64; };
    if (std::ranges::any_of(program.instructions, is_int64)) return std::nullopt;
  }
  VectorProgram result;
  result.isa = isa;
  result.operands = program.inputs;
  for (const int16_t output : program.outputs)
    result.operands.push_back(program.instructions[static_cast<size_t>(output)].dtype);
  result.accesses.assign(accesses.begin(), accesses.end());
  Lowering(program, result).run();
  remove_dead_code(result);
  return result;
}

}  // namespace lockstep::cpu::jit
