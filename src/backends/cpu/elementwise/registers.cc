#include "backends/cpu/elementwise/registers.h"

#include <algorithm>
#include <limits>

namespace lockstep::cpu::jit {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr int kMinimum = 5;  // vector registers that even the widest instruction can work with

bool is_commutative(const VectorInstruction& i) {
  switch (i.op) {
    case Op::add:
    case Op::mul:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::mask_and:
    case Op::mask_or:
    case Op::mask_xor: return true;
    default: return false;
  }
}

// Whether the machine instruction can read this argument from memory.
bool may_be_memory(const VectorInstruction& i, size_t arg, bool masks_are_vectors) {
  switch (i.op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::maximum:
    case Op::minimum:
    case Op::scale:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::bit_andn:
    case Op::compare: return arg == 1;
    case Op::mask_and:
    case Op::mask_or:
    case Op::mask_xor:
    case Op::mask_andn: return arg == 1 && masks_are_vectors;
    case Op::select: return arg == 1;
    case Op::fma:
    case Op::fnma: return true;
    case Op::patch: return arg == 1 || arg == 2;
    default: return false;
  }
}

// The machine instruction overwrites one of these arguments, so the result had best take its register.
bool is_overwritten(const VectorInstruction& i, size_t arg) {
  return i.op == Op::fma || i.op == Op::fnma || (i.op == Op::patch && arg == 0);
}

// The argument is still read after the result has been written to, so they need two registers.
bool outlives_result(const VectorInstruction& i, size_t arg) { return i.op == Op::patch && arg != 0; }

class Allocator {
 public:
  Allocator(const VectorProgram& program, RegisterCounts counts)
      : program_(program), masks_are_vectors_(counts.masks == 0), state_(program.code.size()) {
    owners_[0].assign(static_cast<size_t>(counts.vectors), -1);
    owners_[1].assign(static_cast<size_t>(counts.masks), -1);
  }

  Placement run() {
    std::vector<int> row;
    std::vector<int> body;
    for (size_t i = 0; i < program_.code.size(); ++i) {
      const VectorInstruction& instruction = program_.code[i];
      if (instruction.op == Op::constant) continue;
      (instruction.invariant ? row : body).push_back(static_cast<int>(i));
    }
    for (const int i : body)
      for (const int arg : code(i).args)
        if (arg >= 0 && code(arg).invariant) state(arg).outlives_row = true;
    pin(body);
    walk(row, result_.row);
    for (size_t kind = 0; kind < 2; ++kind)
      for (int& owner : owners_[kind])
        if (owner >= 0 && !state(owner).pinned) forget(owner);
    walk(body, result_.body);
    return std::move(result_);
  }

 private:
  struct State {
    int reg = -1;
    int slot = -1;
    bool pinned = false;        // keeps its register throughout
    bool outlives_row = false;  // computed once per row, used in the body
    std::vector<int> uses;      // positions in the segment being walked, ascending
    size_t next_use = 0;
  };

  const VectorInstruction& code(int number) const { return program_.code[static_cast<size_t>(number)]; }
  State& state(int value) { return state_[static_cast<size_t>(value)]; }
  size_t kind_of(int value) const { return code(value).is_mask && !masks_are_vectors_ ? 1 : 0; }

  // Chooses what keeps a register through all rows: the values used most among those that the
  // body's own values leave room for.
  void pin(const std::vector<int>& body) {
    std::array<int, 2> live = {0, 0};
    std::array<int, 2> most = {0, 0};
    std::vector<int> last(program_.code.size(), -1);
    std::vector<int> worth(program_.code.size(), 0);
    for (const int i : body) {
      for (size_t a = 0; a < 4; ++a) {
        const int arg = code(i).args[a];
        if (arg < 0) continue;
        last[static_cast<size_t>(arg)] = i;
        worth[static_cast<size_t>(arg)] += may_be_memory(code(i), a, masks_are_vectors_) ? 1 : 3;
      }
    }
    for (const int i : body) {
      if (!is_store(code(i).op)) ++live[kind_of(i)];
      for (size_t kind = 0; kind < 2; ++kind) most[kind] = std::max(most[kind], live[kind]);
      std::array<int, 4> args = code(i).args;
      std::ranges::sort(args);
      for (size_t a = 0; a < 4; ++a) {
        const int arg = args[a];
        if (arg < 0 || (a > 0 && args[a - 1] == arg) || code(arg).invariant) continue;
        if (last[static_cast<size_t>(arg)] == i) --live[kind_of(arg)];
      }
    }

    std::vector<int> candidates;
    for (size_t v = 0; v < program_.code.size(); ++v)
      if (program_.code[v].invariant && worth[v] > 0) candidates.push_back(static_cast<int>(v));
    std::ranges::stable_sort(candidates, std::ranges::greater{},
                             [&](int v) { return worth[static_cast<size_t>(v)]; });
    std::array<int, 2> room;
    for (size_t kind = 0; kind < 2; ++kind) {
      const int registers = static_cast<int>(owners_[kind].size());
      room[kind] = std::min(registers - most[kind] - 1, registers - (kind == 0 ? kMinimum : 3));
    }
    for (const int value : candidates) {
      const size_t kind = kind_of(value);
      if (room[kind] <= 0) continue;
      const int reg = static_cast<int>(owners_[kind].size()) - room[kind]--;
      state(value).reg = reg;
      state(value).pinned = true;
      owners_[kind][static_cast<size_t>(reg)] = value;
      if (code(value).op == Op::constant) result_.constants.push_back({value, reg});
    }
  }

  void walk(const std::vector<int>& segment, std::vector<PlacedInstruction>& placed) {
    for (State& s : state_) {
      s.uses.clear();
      s.next_use = 0;
    }
    for (size_t position = 0; position < segment.size(); ++position)
      for (const int arg : code(segment[position]).args)
        if (arg >= 0) state(arg).uses.push_back(static_cast<int>(position));
    for (size_t position = 0; position < segment.size(); ++position)
      placed.push_back(place_one(segment[position], static_cast<int>(position)));
  }

  PlacedInstruction place_one(int number, int position) {
    const VectorInstruction& instruction = code(number);
    PlacedInstruction placed;
    placed.number = number;
    placed.first_move = static_cast<int>(result_.moves.size());

    std::array<int, 4> args = instruction.args;
    if (is_commutative(instruction) && in_register(args[1]) && !in_register(args[0]))
      std::swap(args[0], args[1]);
    bool memory_used = false;
    for (size_t a = 0; a < 4; ++a) locked_[a] = args[a];
    for (size_t a = 0; a < 4; ++a) {
      const int arg = args[a];
      if (arg < 0) continue;
      // One argument at most comes from memory; a patch reads its own one by one.
      const bool is_patch = instruction.op == Op::patch;
      const bool is_repeated = std::count(args.begin(), args.end(), arg) > 1;
      if (!in_register(arg) && may_be_memory(instruction, a, masks_are_vectors_) &&
          (is_patch || (!is_repeated && !memory_used))) {
        memory_used = true;
        placed.args[a] = memory_of(arg);
        continue;
      }
      if (!in_register(arg)) bring(arg);
      placed.args[a] = {Location::Kind::reg, state(arg).reg};
    }

    for (const int arg : args) {
      if (arg < 0) continue;
      State& s = state(arg);
      while (s.next_use < s.uses.size() && s.uses[s.next_use] <= position) ++s.next_use;
    }
    const auto is_dead = [&](int arg) {
      return arg >= 0 && !state(arg).pinned && state(arg).next_use == state(arg).uses.size();
    };
    int preferred = -1;
    for (size_t a = 0; a < 4; ++a) {
      if (!is_dead(args[a]) || outlives_result(instruction, a)) continue;
      if (in_register(args[a]) && is_overwritten(instruction, a) && preferred < 0)
        preferred = state(args[a]).reg;
      forget(args[a]);
    }

    if (!is_store(instruction.op)) {
      for (size_t a = 0; a < 4; ++a)
        if (!in_register(args[a])) locked_[a] = -1;
      State& s = state(number);
      if (s.pinned) {
        placed.result = s.reg;
      } else {
        const size_t kind = kind_of(number);
        placed.result = preferred >= 0 ? preferred : take(kind);
        s.reg = placed.result;
        owners_[kind][static_cast<size_t>(placed.result)] = number;
        if (s.outlives_row) placed.stored_to = s.slot = result_.slots++;
      }
      if (!s.pinned && s.uses.empty()) forget(number);
    }
    locked_.fill(-1);
    // Slots only now: the instruction may read one that the result's eviction would have written to.
    for (const int arg : args) {
      if (!is_dead(arg)) continue;
      forget(arg);
      if (!code(arg).invariant) release_slot(arg);
    }
    placed.last_move = static_cast<int>(result_.moves.size());
    return placed;
  }

  bool in_register(int value) { return value >= 0 && state(value).reg >= 0; }

  Location memory_of(int value) {
    if (code(value).op == Op::constant) return {Location::Kind::pool, value};
    return {Location::Kind::slot, state(value).slot};
  }

  void forget(int value) {
    State& s = state(value);
    if (s.reg < 0) return;
    owners_[kind_of(value)][static_cast<size_t>(s.reg)] = -1;
    s.reg = -1;
  }

  void bring(int value) {
    const size_t kind = kind_of(value);
    const int reg = take(kind);
    result_.moves.push_back({Move::Direction::to_register, code(value).is_mask, reg, memory_of(value)});
    state(value).reg = reg;
    owners_[kind][static_cast<size_t>(reg)] = value;
  }

  // A free register, or that of the value needed last.
  int take(size_t kind) {
    int victim = -1;
    int furthest = -1;
    for (size_t reg = 0; reg < owners_[kind].size(); ++reg) {
      const int owner = owners_[kind][reg];
      if (owner < 0) return static_cast<int>(reg);
      const State& s = state(owner);
      if (s.pinned || std::ranges::find(locked_, owner) != locked_.end()) continue;
      const int next = s.next_use < s.uses.size() ? s.uses[s.next_use] : kNever;
      if (next > furthest) {
        furthest = next;
        victim = owner;
      }
    }
    State& s = state(victim);
    const int reg = s.reg;
    if (code(victim).op != Op::constant && s.slot < 0) {
      s.slot = take_slot();
      result_.moves.push_back(
          {Move::Direction::to_memory, code(victim).is_mask, reg, {Location::Kind::slot, s.slot}});
    }
    forget(victim);
    return reg;
  }

  int take_slot() {
    if (free_slots_.empty()) return result_.slots++;
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void release_slot(int value) {
    if (state(value).slot < 0) return;
    free_slots_.push_back(state(value).slot);
    state(value).slot = -1;
  }

  const VectorProgram& program_;
  const bool masks_are_vectors_;
  std::vector<State> state_;
  std::array<std::vector<int>, 2> owners_;  // of vector and of mask registers; -1 is free
  std::array<int, 4> locked_ = {-1, -1, -1, -1};
  std::vector<int> free_slots_;
  Placement result_;
};

}  // namespace

Placement place(const VectorProgram& program, RegisterCounts counts) {
  return Allocator(program, counts).run();
}

}  // namespace lockstep::cpu::jit
