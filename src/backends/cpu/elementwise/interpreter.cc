#include "backends/cpu/elementwise/interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "backends/cpu/elementwise/scalar_functions.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;
using scalar::Computed;

// One instruction over a tile. Tiles hold computed values, 8 bytes of room an element.
using Step = void (*)(void* result, const void* a, const void* b, const void* c, int64_t n);
using Load = void (*)(void* tile, const std::byte* memory, int64_t stride, int64_t n);
using Store = void (*)(std::byte* memory, const void* tile, int64_t stride, int64_t n);

template <class T>
const T* in(const void* tile) {
  return static_cast<const T*>(tile);
}
template <class T>
T* out(void* tile) {
  return static_cast<T*>(tile);
}

template <class T, auto F>
void unary(void* result, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out<T>(result)[i] = F(in<T>(a)[i]);
}

template <class T, auto F>
void binary(void* result, const void* a, const void* b, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out<T>(result)[i] = F(in<T>(a)[i], in<T>(b)[i]);
}

template <class T, class F>
void compare(void* result, const void* a, const void* b, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out<uint8_t>(result)[i] = F{}(in<T>(a)[i], in<T>(b)[i]);
}

template <class T>
void select(void* result, const void* a, const void* b, const void* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out<T>(result)[i] = in<uint8_t>(a)[i] ? in<T>(b)[i] : in<T>(c)[i];
}

template <class From, class To>
void cast(void* result, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out<Computed<To>>(result)[i] = scalar::convert<To>(in<Computed<From>>(a)[i]);
}

// A boolean in memory is any byte, true where it is not 0.
template <class T>
void load(void* tile, const std::byte* memory, int64_t stride, int64_t n) {
  using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  for (int64_t i = 0; i < n; ++i, memory += stride) {
    const Stored value = *reinterpret_cast<const Stored*>(memory);
    if constexpr (std::is_same_v<T, bool>)
      out<uint8_t>(tile)[i] = value != 0;
    else
      out<Computed<T>>(tile)[i] = static_cast<Computed<T>>(value);
  }
}

template <class T>
void store(std::byte* memory, const void* tile, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i, memory += stride)
    *reinterpret_cast<T*>(memory) = static_cast<T>(in<Computed<T>>(tile)[i]);
}

template <class T>
void fill(void* tile, double immediate, int64_t n) {
  std::fill_n(out<Computed<T>>(tile), n, scalar::convert<T>(immediate));
}

template <std::floating_point T>
Step float_step(Opcode op) {
  switch (op) {
    case Opcode::floor: return unary<T, [](T x) { return std::floor(x); }>;
    case Opcode::ceil: return unary<T, [](T x) { return std::ceil(x); }>;
    case Opcode::round: return unary<T, [](T x) { return std::nearbyint(x); }>;
    case Opcode::sqrt: return unary<T, [](T x) { return std::sqrt(x); }>;
    case Opcode::exp: return unary<T, [](T x) { return std::exp(x); }>;
    case Opcode::log: return unary<T, [](T x) { return std::log(x); }>;
    case Opcode::expm1: return unary<T, [](T x) { return std::expm1(x); }>;
    case Opcode::log1p: return unary<T, [](T x) { return std::log1p(x); }>;
    case Opcode::tanh: return unary<T, [](T x) { return std::tanh(x); }>;
    case Opcode::erf: return unary<T, [](T x) { return std::erf(x); }>;
    case Opcode::sin: return unary<T, [](T x) { return std::sin(x); }>;
    case Opcode::cos: return unary<T, [](T x) { return std::cos(x); }>;
    default: return nullptr;
  }
}

template <class T>
Step number_step(Opcode op) {
  switch (op) {
    case Opcode::add: return binary<T, scalar::add<T>>;
    case Opcode::sub: return binary<T, scalar::sub<T>>;
    case Opcode::mul: return binary<T, scalar::mul<T>>;
    case Opcode::div: return binary<T, scalar::div<T>>;
    case Opcode::maximum: return binary<T, scalar::maximum<T>>;
    case Opcode::minimum: return binary<T, scalar::minimum<T>>;
    case Opcode::pow: return binary<T, scalar::pow<T>>;
    case Opcode::mod: return binary<T, scalar::mod<T>>;
    case Opcode::neg: return unary<T, scalar::neg<T>>;
    case Opcode::abs: return unary<T, scalar::abs<T>>;
    case Opcode::sign: return unary<T, scalar::sign<T>>;
    default: break;
  }
  if constexpr (std::floating_point<T>)
    return float_step<T>(op);
  else if (op == Opcode::floor || op == Opcode::ceil || op == Opcode::round)
    return unary<T, [](T x) { return x; }>;
  return nullptr;
}

template <class T>
Step compare_step(Opcode op) {
  switch (op) {
    case Opcode::less: return compare<T, std::less<T>>;
    case Opcode::less_equal: return compare<T, std::less_equal<T>>;
    case Opcode::greater: return compare<T, std::greater<T>>;
    case Opcode::greater_equal: return compare<T, std::greater_equal<T>>;
    case Opcode::equal: return compare<T, std::equal_to<T>>;
    case Opcode::not_equal: return compare<T, std::not_equal_to<T>>;
    case Opcode::select: return select<T>;
    default: return nullptr;
  }
}

Step logic_step(Opcode op) {
  switch (op) {
    case Opcode::logical_and: return binary<uint8_t, [](uint8_t a, uint8_t b) -> uint8_t { return a & b; }>;
    case Opcode::logical_or: return binary<uint8_t, [](uint8_t a, uint8_t b) -> uint8_t { return a | b; }>;
    case Opcode::logical_not: return unary<uint8_t, [](uint8_t a) -> uint8_t { return a ^ 1; }>;
    default: return nullptr;
  }
}

// `operand` is the dtype of the arguments (of select: of the values chosen from).
Step find_step(Opcode op, DType operand, DType result) {
  Step step = nullptr;
  if (op == Opcode::cast) {
    step = dispatch(operand, [&]<class From>() {
      return dispatch(result, []<class To>() -> Step { return cast<From, To>; });
    });
  } else {
    step = dispatch(operand, [&]<class T>() {
      Step found = compare_step<Computed<T>>(op);
      if (!found) found = std::is_same_v<T, bool> ? logic_step(op) : number_step<Computed<T>>(op);
      return found;
    });
  }
  require(step != nullptr, ErrorCode::internal, std::source_location::current(),
          "elementwise interpreter: no ", name(op), " for ", operand);
  return step;
}

class Interpreter final : public BlockCode {
 public:
  explicit Interpreter(const ScalarProgram& program) {
    const std::vector<Instruction>& code = program.instructions;
    std::vector<size_t> last_use(code.size(), 0);
    for (size_t i = 0; i < code.size(); ++i)
      for (const int16_t arg : code[i].args)
        if (arg >= 0) last_use[static_cast<size_t>(arg)] = i;
    for (const int16_t output : program.outputs) last_use[static_cast<size_t>(output)] = code.size();

    std::vector<int> tile(code.size(), -1);
    std::vector<int> free;
    // Constants come first: their tiles are filled once per block and never used for anything else.
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].op != Opcode::constant) continue;
      tile[i] = tiles_++;
      constants_.push_back(
          {tile[i], code[i].immediate, dispatch(code[i].dtype, []<class T>() { return &fill<T>; })});
    }
    for (size_t i = 0; i < code.size(); ++i) {
      const Instruction& instruction = code[i];
      if (instruction.op == Opcode::constant) continue;
      Action action;
      const int count = arity(instruction.op);
      for (int k = 0; k < count; ++k)
        action.args[k] = tile[static_cast<size_t>(instruction.args[static_cast<size_t>(k)])];
      if (free.empty()) free.push_back(tiles_++);
      action.result = tile[i] = free.back();
      free.pop_back();
      if (instruction.op == Opcode::input) {
        action.operand = instruction.index;
        action.load = dispatch(instruction.dtype, []<class T>() { return &load<T>; });
      } else {
        const size_t typed = instruction.op == Opcode::select ? 1 : 0;
        const DType operand = code[static_cast<size_t>(instruction.args[typed])].dtype;
        action.step = find_step(instruction.op, operand, instruction.dtype);
        if (instruction.op >= Opcode::sqrt && instruction.op <= Opcode::cos) nanoseconds_ += 8;
      }
      actions_.push_back(action);
      nanoseconds_ += 0.4;

      release(instruction, i, last_use, code, tile, free);
      if (last_use[i] <= i) free.push_back(tile[i]);  // a value that nothing reads
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const size_t value = static_cast<size_t>(program.outputs[i]);
      stores_.push_back({tile[value], static_cast<int>(program.inputs.size() + i),
                         dispatch(code[value].dtype, []<class T>() { return &store<T>; })});
    }
    require(tiles_ <= kScratch / kRoom, ErrorCode::unsupported, std::source_location::current(),
            "elementwise interpreter: ", tiles_, " values are alive at once; at most ", kScratch / kRoom,
            " are supported, split the program");
    tile_size_ = std::min<int64_t>(kMaxTile, kScratch / kRoom / std::max(tiles_, 1));
  }

  void run(const Block& block) const override {
    alignas(64) std::byte scratch[kScratch];
    const auto tile = [&](int number) { return scratch + number * tile_size_ * kRoom; };
    for (const Constant& c : constants_)
      c.fill(tile(c.tile), c.immediate, std::min(tile_size_, block.columns));

    for (int64_t row = 0; row < block.rows; ++row) {
      for (int64_t column = 0; column < block.columns; column += tile_size_) {
        const int64_t n = std::min(tile_size_, block.columns - column);
        const auto address = [&](int number) {
          const BlockOperand& operand = block.operands[static_cast<size_t>(number)];
          return operand.data + row * operand.row_stride + column * operand.column_stride;
        };
        const auto stride = [&](int number) {
          return block.operands[static_cast<size_t>(number)].column_stride;
        };
        for (const Action& a : actions_) {
          if (a.load)
            a.load(tile(a.result), address(a.operand), stride(a.operand), n);
          else
            a.step(tile(a.result), tile(a.args[0]), tile(a.args[1]), tile(a.args[2]), n);
        }
        // Only now: an output may be the memory of an input.
        for (const Output& o : stores_) o.store(address(o.operand), tile(o.tile), stride(o.operand), n);
      }
    }
  }

  const char* implementation() const override { return "interpreter"; }
  double nanoseconds_per_element() const override { return nanoseconds_; }

 private:
  static constexpr int64_t kRoom = 8;             // bytes per element of a tile
  static constexpr int64_t kScratch = 64 * 1024;  // on the stack, so that running never allocates
  static constexpr int64_t kMaxTile = 512;

  struct Constant {
    int tile;
    double immediate;
    void (*fill)(void*, double, int64_t);
  };
  struct Action {
    Step step = nullptr;
    Load load = nullptr;
    int operand = 0;
    int result = 0;
    int args[3] = {0, 0, 0};
  };
  struct Output {
    int tile;
    int operand;
    Store store;
  };

  // Gives back the tiles of arguments that are read here for the last time. Only after the result
  // has its own tile: a select reads bytes and writes words, so it may not work in place.
  static void release(const Instruction& instruction, size_t number, const std::vector<size_t>& last_use,
                      const std::vector<Instruction>& code, const std::vector<int>& tile,
                      std::vector<int>& free) {
    for (size_t k = 0; k < instruction.args.size(); ++k) {
      const int16_t arg = instruction.args[k];
      if (arg < 0) continue;
      const size_t value = static_cast<size_t>(arg);
      const bool repeated =
          std::find(instruction.args.begin(), instruction.args.begin() + static_cast<ptrdiff_t>(k), arg) !=
          instruction.args.begin() + static_cast<ptrdiff_t>(k);
      if (!repeated && last_use[value] == number && code[value].op != Opcode::constant)
        free.push_back(tile[value]);
    }
  }

  int tiles_ = 0;
  int64_t tile_size_ = kMaxTile;
  double nanoseconds_ = 0;
  std::vector<Constant> constants_;
  std::vector<Action> actions_;
  std::vector<Output> stores_;
};

}  // namespace

std::unique_ptr<BlockCode> interpret(const ScalarProgram& program) {
  return std::make_unique<Interpreter>(program);
}

}  // namespace lockstep::cpu
