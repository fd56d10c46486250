#if defined(__x86_64__)

#include "backends/cpu/elementwise/assembler.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep::cpu::jit {
namespace {

// The frame, from the stack pointer upwards, which is aligned to 64 bytes.
constexpr int kCallResult = 0;  // vectors that a cold call passes
constexpr int kCallA = 64;
constexpr int kCallB = 128;
constexpr int kCallSet = 192;
constexpr int kCallerStack = 200;
constexpr int kRowsLeft = 208;
constexpr int kFixedEnd = 320;  // Assembler::kTailMasks lies between

constexpr int kStageBytes = 128;  // 16 elements of 8 bytes
constexpr int kOperandBytes = sizeof(BlockOperand);
static_assert(kOperandBytes == 24 && offsetof(BlockOperand, row_stride) == 8);

constexpr int align_up(int value, int alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

// While it runs: rcx is the column, r9 the last column at which a pass may start (at a row's end:
// how many elements are left), r11 the Block; rax, rdx, r8 and r10 are for passing; the rest hold
// operands' row addresses.
Assembler::Assembler(const VectorProgram& program, const Placement& placement, bool streaming)
    : Xbyak::CodeGenerator(4096, Xbyak::AutoGrow),
      program_(program),
      placement_(placement),
      streaming_(streaming) {
  setDefaultJmpNEAR(true);
  lay_out_frame();
  enter();
  rows();
  leave();
  cold_calls();
  constants();
  readyRE();
}

void Assembler::lay_out_frame() {
  for (size_t i = 0; i < program_.operands.size(); ++i) {
    Operand operand;
    operand.size = static_cast<int>(size_of(program_.operands[i]));
    operand.access = program_.accesses[i];
    operands_.push_back(operand);
  }
  // Row addresses that the inner loop needs get a register first.
  std::vector<int> registers = {rbx.getIdx(), rbp.getIdx(), rsi.getIdx(), rdi.getIdx(),
                                r12.getIdx(), r13.getIdx(), r14.getIdx(), r15.getIdx()};
  int end = kFixedEnd;
  for (const bool broadcast : {false, true}) {
    for (Operand& operand : operands_) {
      if ((operand.access == Access::broadcast) != broadcast) continue;
      if (!registers.empty()) {
        operand.pointer = registers.back();
        registers.pop_back();
      } else {
        operand.pointer_offset = end;
        end += 8;
      }
    }
  }
  end = align_up(end, 64);
  for (Operand& operand : operands_) {
    if (!is_staged(operand, {0, true})) continue;
    operand.stage = end;
    end += kStageBytes;
  }
  calls_ = std::ranges::any_of(program_.code, [](const VectorInstruction& i) { return i.op == Op::patch; });
  if (calls_) {
    saved_registers_ = end;
    end += (is_avx512() ? 32 : 16) * vector_bytes() + 16 * 8;
  }
  slots_ = align_up(end, 64);
  frame_size_ = align_up(slots_ + placement_.slots * vector_bytes(), 64);
}

void Assembler::enter() {
  for (const Xbyak::Reg64& reg : {rbx, rbp, r12, r13, r14, r15}) push(reg);
  mov(r11, rdi);
  mov(rax, rsp);
  sub(rsp, frame_size_);
  and_(rsp, -64);
  mov(ptr[rsp + kCallerStack], rax);
  mov(rax, ptr[r11 + offsetof(Block, rows)]);
  mov(ptr[rsp + kRowsLeft], rax);

  if (is_avx512()) {
    mov(rcx, ptr[r11 + offsetof(Block, columns)]);
    and_(ecx, width() - 1);
    mov(eax, 1);
    shl(eax, cl);
    dec(eax);
    kmovw(k1, eax);
  } else {
    // As many lanes as the row has left over: a window onto ones followed by zeros.
    const Xbyak::Ymm mask(scratch());
    mov(rcx, ptr[r11 + offsetof(Block, columns)]);
    and_(ecx, width() - 1);
    neg(rcx);
    lea(rax, ptr[rip + ones_then_zeros_ + 32]);
    vmovdqu(mask, ptr[rax + rcx * 4]);
    vmovdqa(ptr[rsp + kTailMasks], mask);
    for (int part = 0; part < 2; ++part) {
      vpmovsxdq(mask, ptr[rsp + kTailMasks + part * 16]);
      vmovdqa(ptr[rsp + kTailMasks + 32 + part * 32], mask);
    }
  }
  for (size_t i = 0; i < operands_.size(); ++i) {
    const auto source =
        ptr[r11 + offsetof(Block, operands) + i * kOperandBytes + offsetof(BlockOperand, data)];
    if (operands_[i].pointer >= 0) {
      mov(Xbyak::Reg64(operands_[i].pointer), source);
    } else {
      mov(rax, source);
      mov(ptr[rsp + operands_[i].pointer_offset], rax);
    }
  }
  for (const Placement::Pinned& pinned : placement_.constants)
    load_location(pinned.reg, program_.code[static_cast<size_t>(pinned.value)].is_mask,
                  {Location::Kind::pool, pinned.value});
}

void Assembler::leave() {
  if (streaming_) sfence();
  vzeroupper();
  mov(rsp, ptr[rsp + kCallerStack]);
  for (const Xbyak::Reg64& reg : {r15, r14, r13, r12, rbp, rbx}) pop(reg);
  ret();
}

void Assembler::rows() {
  Xbyak::Label row;
  L(row);
  segment(placement_.row, {});
  columns();
  advance_pointers();
  dec(qword[rsp + kRowsLeft]);
  jnz(row);
}

// Several vectors a turn while the body is short, then single ones, then the rest of the row.
void Assembler::columns() {
  const size_t length = placement_.body.size();
  const int unroll = length <= 16 ? 4 : length <= 48 ? 2 : 1;
  const auto total = ptr[r11 + offsetof(Block, columns)];
  Xbyak::Label tail;
  Xbyak::Label done;

  xor_(ecx, ecx);
  for (int vectors = unroll; vectors >= 1; vectors = vectors > 1 ? 1 : 0) {
    Xbyak::Label loop;
    Xbyak::Label next;
    mov(r9, total);
    sub(r9, vectors * width());
    cmp(rcx, r9);
    jg(vectors > 1 ? next : tail);
    align(32);
    L(loop);
    for (int v = 0; v < vectors; ++v) body({v * width(), false});
    add(rcx, vectors * width());
    cmp(rcx, r9);
    jle(loop);
    L(next);
  }
  L(tail);
  mov(r9, total);
  sub(r9, rcx);
  jz(done);
  body({0, true});
  L(done);
}

void Assembler::advance_pointers() {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const auto stride =
        ptr[r11 + offsetof(Block, operands) + i * kOperandBytes + offsetof(BlockOperand, row_stride)];
    if (operands_[i].pointer >= 0) {
      add(Xbyak::Reg64(operands_[i].pointer), stride);
    } else {
      mov(rax, stride);
      add(ptr[rsp + operands_[i].pointer_offset], rax);
    }
  }
}

void Assembler::body(Pass pass) { segment(placement_.body, pass); }

void Assembler::segment(const std::vector<PlacedInstruction>& code, Pass pass) {
  for (const PlacedInstruction& placed : code) {
    for (int m = placed.first_move; m < placed.last_move; ++m) move(placement_.moves[static_cast<size_t>(m)]);
    instruction(placed, pass);
    if (placed.stored_to >= 0)
      store_location(placed.result, program_.code[static_cast<size_t>(placed.number)].is_mask,
                     placed.stored_to);
  }
}

void Assembler::instruction(const PlacedInstruction& placed, Pass pass) {
  const VectorInstruction& i = program_.code[static_cast<size_t>(placed.number)];
  if (is_load(i.op)) return load(i, placed.result, pass);
  if (is_splat(i.op)) return splat(i, placed.result);
  if (is_store(i.op)) return store(i, placed.args[0].index, pass);
  switch (i.op) {
    case Op::fma:
    case Op::fnma: return multiply_add(i, placed);
    case Op::compare: return compare(i, placed);
    case Op::select: return select(i, placed);
    case Op::mask_and:
    case Op::mask_or:
    case Op::mask_xor:
    case Op::mask_andn:
    case Op::mask_not:
    case Op::mask_part:
    case Op::mask_join: return mask_logic(i, placed);
    case Op::patch: return patch(i, placed);
    default: break;
  }
  if (i.op >= Op::to_i32_trunc) return convert(i, placed);
  if (i.args[1] >= 0) return binary(i, placed);
  unary(i, placed);
}

void Assembler::patch(const VectorInstruction& i, const PlacedInstruction& p) {
  if (p.result != p.args[0].index) vmovaps(full(p.result), full(p.args[0].index));
  const int mask = p.args[3].index;
  if (is_avx512()) {
    kmovw(eax, mask_register(mask));
    if (is_wide(i.lane)) and_(eax, 0xff);
  } else if (is_wide(i.lane)) {
    vmovmskpd(eax, Xbyak::Ymm(mask));
  } else {
    vmovmskps(eax, Xbyak::Ymm(mask));
  }
  test(eax, eax);
  ColdCall& call = cold_calls_.emplace_back();
  call.instruction = &i;
  call.placed = p;
  jnz(call.begin);
  L(call.back);
}

void Assembler::cold_calls() {
  for (ColdCall& call : cold_calls_) {
    L(call.begin);
    mov(ptr[rsp + kCallSet], eax);
    vmovups(ptr[rsp + kCallResult], full(call.placed.result));
    for (const auto& [arg, place] : {std::pair{1, kCallA}, std::pair{2, kCallB}}) {
      Location from = call.placed.args[static_cast<size_t>(arg)];
      if (from.kind != Location::Kind::reg) {
        load_location(scratch(), false, from);
        from = {Location::Kind::reg, scratch()};
      }
      vmovups(ptr[rsp + place], full(from.index));
    }
    mov(rax, reinterpret_cast<size_t>(call.instruction->function));
    this->call(save_and_call_);
    vmovups(full(call.placed.result), ptr[rsp + kCallResult]);
    jmp(call.back);
  }
  if (calls_) save_and_call();
}

// Calls rax; every register survives. Rare enough that saving them all does not matter.
void Assembler::save_and_call() {
  const Xbyak::Reg64 general[] = {rcx, rsi, rdi, r8, r9, r10, r11};
  const int vectors = is_avx512() ? 32 : 16;
  L(save_and_call_);
  sub(rsp, 8);
  const int frame = 16;  // the return address and the alignment lie below it
  int end = frame + saved_registers_;
  const auto each = [&](auto&& vector, auto&& mask, auto&& integer) {
    int offset = end;
    for (int v = 0; v < vectors; ++v, offset += vector_bytes()) vector(full(v), ptr[rsp + offset]);
    if (is_avx512())
      for (int k = 1; k < 8; ++k, offset += 8) mask(Xbyak::Opmask(k), ptr[rsp + offset]);
    for (const Xbyak::Reg64& reg : general) {
      integer(reg, ptr[rsp + offset]);
      offset += 8;
    }
  };
  each([&](const Xbyak::Xmm& v, const Xbyak::Address& at) { vmovups(at, v); },
       [&](const Xbyak::Opmask& k, const Xbyak::Address& at) { kmovw(at, k); },
       [&](const Xbyak::Reg64& r, const Xbyak::Address& at) { mov(at, r); });
  lea(rdi, ptr[rsp + frame + kCallResult]);
  lea(rsi, ptr[rsp + frame + kCallA]);
  lea(rdx, ptr[rsp + frame + kCallB]);
  mov(ecx, ptr[rsp + frame + kCallSet]);
  vzeroupper();
  call(rax);
  each([&](const Xbyak::Xmm& v, const Xbyak::Address& at) { vmovups(v, at); },
       [&](const Xbyak::Opmask& k, const Xbyak::Address& at) { kmovw(k, at); },
       [&](const Xbyak::Reg64& r, const Xbyak::Address& at) { mov(r, at); });
  add(rsp, 8);
  ret();
}

void Assembler::constants() {
  align(64);
  L(constants_);
  for (const uint8_t byte : pool_) db(byte);
  L(byte_ones_);
  for (int i = 0; i < 16; ++i) db(1);
  L(ones_then_zeros_);
  for (int i = 0; i < 64; ++i) db(i < 32 ? 0xff : 0);
}

}  // namespace lockstep::cpu::jit

#endif
