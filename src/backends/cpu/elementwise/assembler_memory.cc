#if defined(__x86_64__)

#include <cstddef>
#include <cstring>

#include "backends/cpu/elementwise/assembler.h"

namespace lockstep::cpu::jit {

void Assembler::move(const Move& m) {
  if (m.direction == Move::Direction::to_register)
    load_location(m.reg, m.is_mask, m.memory);
  else
    store_location(m.reg, m.is_mask, m.memory.index);
}

void Assembler::load_location(int reg, bool is_mask, Location from) {
  const bool is_constant = from.kind == Location::Kind::pool;
  if (in_mask_register(is_mask)) {
    const Xbyak::Opmask to = mask_register(reg);
    if (!is_constant) return kmovw(to, address(from));
    return program_.code[static_cast<size_t>(from.index)].bits ? kxnorw(to, to, to) : kxorw(to, to, to);
  }
  if (!is_constant || !is_avx512()) return vmovaps(full(reg), address(from));
  const bool wide = is_wide(program_.code[static_cast<size_t>(from.index)].lane);
  address(from);  // enters the constant into the pool
  const auto place = ptr[rip + constants_ + constant_offsets_.at(from.index)];
  return wide ? vbroadcastsd(Xbyak::Zmm(reg), place) : vbroadcastss(full(reg), place);
}

void Assembler::store_location(int reg, bool is_mask, int slot) {
  const Xbyak::Address to = address({Location::Kind::slot, slot});
  if (in_mask_register(is_mask)) return kmovw(to, mask_register(reg));
  vmovaps(to, full(reg));
}

// A constant is stored once and broadcast by the instruction that reads it; AVX2 cannot do that and
// gets whole vectors.
Xbyak::Address Assembler::address(Location location) {
  if (location.kind == Location::Kind::slot) return ptr[rsp + slots_ + location.index * vector_bytes()];
  const VectorInstruction& constant = program_.code[static_cast<size_t>(location.index)];
  const size_t bytes = is_wide(constant.lane) ? 8 : 4;
  const auto [entry, is_new] = constant_offsets_.try_emplace(location.index, 0);
  if (is_new) {
    while (pool_.size() % 8 != 0) pool_.push_back(0);
    entry->second = static_cast<int>(pool_.size());
    const size_t copies = is_avx512() ? 1 : static_cast<size_t>(vector_bytes()) / bytes;
    for (size_t i = 0; i < copies; ++i) {
      uint8_t value[8];
      std::memcpy(value, &constant.bits, sizeof value);
      pool_.insert(pool_.end(), value, value + bytes);
    }
  }
  if (is_avx512()) return ptr_b[rip + constants_ + entry->second];
  return ptr[rip + constants_ + entry->second];
}

Xbyak::Reg64 Assembler::pointer(const Operand& operand, const Xbyak::Reg64& scratch) {
  if (operand.pointer >= 0) return Xbyak::Reg64(operand.pointer);
  mov(scratch, ptr[rsp + operand.pointer_offset]);
  return scratch;
}

// Elements apart from each other, and the end of a row where lanes of that size cannot be masked, are
// copied one by one to or from the frame; the vector instructions are the same as ever.
bool Assembler::is_staged(const Operand& operand, Pass pass) const {
  if (operand.access == Access::contiguous) return pass.is_tail && !is_avx512() && operand.size < 4;
  return operand.access == Access::strided;
}

Xbyak::RegExp Assembler::element_address(const Operand& operand, Pass pass) {
  if (is_staged(operand, pass)) return rsp + operand.stage;
  return pointer(operand, rax) + rcx * operand.size + pass.offset * operand.size;
}

// rax becomes the address of the pass's first element, rdx the distance to the next.
void Assembler::strided_address(const Operand& operand, int number, Pass pass) {
  mov(rdx, ptr[r11 + offsetof(Block, operands) + static_cast<size_t>(number) * sizeof(BlockOperand) +
               offsetof(BlockOperand, column_stride)]);
  lea(rax, ptr[rcx + pass.offset]);
  imul(rax, rdx);
  add(rax, pointer(operand, r8));
}

void Assembler::copy_element(const Operand& operand, const Xbyak::RegExp& to, const Xbyak::RegExp& from) {
  switch (operand.size) {
    case 1: movzx(r8d, byte[from]); return mov(byte[to], r8b);
    case 2: movzx(r8d, word[from]); return mov(word[to], r8w);
    case 4: mov(r8d, dword[from]); return mov(dword[to], r8d);
    default: mov(r8, qword[from]); return mov(qword[to], r8);
  }
}

void Assembler::stage(const Operand& operand, int number, Pass pass, bool is_store) {
  strided_address(operand, number, pass);
  const auto copy = [&](const Xbyak::RegExp& staged) {
    if (is_store)
      copy_element(operand, rax, staged);
    else
      copy_element(operand, staged, rax);
    add(rax, rdx);
  };
  if (!pass.is_tail) {
    for (int lane = 0; lane < width(); ++lane) copy(rsp + operand.stage + lane * operand.size);
    return;
  }
  Xbyak::Label loop;
  xor_(r10d, r10d);
  L(loop);
  copy(rsp + r10 * operand.size + operand.stage);
  inc(r10);
  cmp(r10, r9);
  jb(loop);
}

void Assembler::load(const VectorInstruction& i, int result, Pass pass) {
  const Operand& operand = operands_[static_cast<size_t>(i.operand)];
  const bool staged = is_staged(operand, pass);
  if (staged && i.immediate == 0) stage(operand, i.operand, pass, false);
  const bool masked = pass.is_tail && !staged;
  const Xbyak::RegExp from = element_address(operand, pass);
  const Xbyak::Xmm to = full(result);
  const Xbyak::Xmm chosen = masked ? to | k1 | T_z : to;

  switch (i.op) {
    case Op::load8: return vpmovzxbd(chosen, ptr[from]);
    case Op::load16: return vpmovzxwd(chosen, ptr[from]);
    case Op::load_half: return vcvtph2ps(chosen, ptr[from]);
    case Op::load32:
    case Op::load64: {
      const Xbyak::Address part = ptr[from + i.immediate * vector_bytes()];
      return masked ? load_masked(i, to, part) : vmovups(to, part);
    }
    default: break;
  }
  if (is_avx512()) {
    const Xbyak::Xmm bytes = quarter(scratch());
    vmovdqu8(masked ? bytes | k1 | T_z : bytes, ptr[from]);
    return vptestmb(mask_register(result), bytes, bytes);
  }
  vpmovzxbd(to, ptr[from]);
  vpxor(full(scratch()), full(scratch()), full(scratch()));
  vpcmpgtd(to, to, full(scratch()));
}

// The lanes of a row's end, from 32-bit elements or from one part of 64-bit ones.
void Assembler::load_masked(const VectorInstruction& i, const Xbyak::Xmm& to, const Xbyak::Address& from) {
  const bool wide = i.op == Op::load64;
  if (is_avx512()) {
    if (i.immediate == 1) kshiftrw(k2, k1, 8);
    const Xbyak::Xmm chosen = to | (i.immediate == 1 ? k2 : k1) | T_z;
    return wide ? vmovupd(chosen, from) : vmovups(chosen, from);
  }
  vmovdqa(full(scratch()), ptr[rsp + kTailMasks + (wide ? 32 + i.immediate * 32 : 0)]);
  return wide ? vmaskmovpd(to, full(scratch()), from) : vmaskmovps(to, full(scratch()), from);
}

void Assembler::store_masked(const VectorInstruction& i, const Xbyak::Address& to, const Xbyak::Xmm& from) {
  const bool wide = i.op == Op::store64;
  if (is_avx512()) {
    if (i.immediate == 1) kshiftrw(k2, k1, 8);
    const Xbyak::Address chosen = to | (i.immediate == 1 ? k2 : k1);
    return wide ? vmovupd(chosen, from) : vmovups(chosen, from);
  }
  vmovdqa(full(scratch()), ptr[rsp + kTailMasks + (wide ? 32 + i.immediate * 32 : 0)]);
  return wide ? vmaskmovpd(to, full(scratch()), from) : vmaskmovps(to, full(scratch()), from);
}

void Assembler::splat(const VectorInstruction& i, int result) {
  const Operand& operand = operands_[static_cast<size_t>(i.operand)];
  const Xbyak::RegExp from = pointer(operand, rax);
  const Xbyak::Xmm to = full(result);
  const auto broadcast_eax = [&] {
    if (is_avx512()) return vpbroadcastd(to, eax);
    vmovd(Xbyak::Xmm(result), eax);
    vpbroadcastd(to, Xbyak::Xmm(result));
  };
  switch (i.op) {
    case Op::splat8: movzx(eax, byte[from]); return broadcast_eax();
    case Op::splat16: movzx(eax, word[from]); return broadcast_eax();
    case Op::splat32: return vbroadcastss(to, dword[from]);
    case Op::splat64:
      return vbroadcastsd(is_avx512() ? Xbyak::Ymm(Xbyak::Zmm(result)) : Xbyak::Ymm(result), qword[from]);
    case Op::splat_half: vpbroadcastw(half(result), word[from]); return vcvtph2ps(to, half(result));
    default: break;
  }
  // All ones where the byte is not 0.
  movzx(eax, byte[from]);
  neg(eax);
  sbb(eax, eax);
  if (is_avx512()) return kmovw(mask_register(result), eax);
  broadcast_eax();
}

void Assembler::store(const VectorInstruction& i, int value, Pass pass) {
  const Operand& operand = operands_[static_cast<size_t>(i.operand)];
  const bool staged = is_staged(operand, pass);
  const bool masked = pass.is_tail && !staged;
  const bool streams = streaming_ && !pass.is_tail && !staged;
  const Xbyak::RegExp to = element_address(operand, pass);
  const Xbyak::Xmm from = full(value);

  if (i.op == Op::store32 || i.op == Op::store64) {
    const Xbyak::Address part = ptr[to + i.immediate * vector_bytes()];
    if (streams)
      vmovntps(part, from);
    else if (masked)
      store_masked(i, part, from);
    else
      vmovups(part, from);
  } else {
    store_narrow(i, value, to, masked, streams);
  }
  const bool is_last_part = i.op != Op::store64 || i.immediate == 1;
  if (staged && is_last_part) stage(operand, i.operand, pass, true);
}

void Assembler::store_narrow(const VectorInstruction& i, int value, const Xbyak::RegExp& to, bool is_masked,
                             bool streams) {
  const Xbyak::Xmm passing = quarter(scratch());
  if (is_avx512()) {
    const Xbyak::Address memory = is_masked ? ptr[to] | k1 : ptr[to];
    switch (i.op) {
      case Op::store8:
        if (!streams) return vpmovdb(memory, full(value));
        vpmovdb(passing, full(value));
        return vmovntdq(memory, passing);
      case Op::store16:
        if (!streams) return vpmovdw(memory, full(value));
        vpmovdw(half(scratch()), full(value));
        return vmovntdq(memory, half(scratch()));
      case Op::store_half:
        if (!streams) return vcvtps2ph(memory, full(value), 0);
        vcvtps2ph(half(scratch()), full(value), 0);
        return vmovntdq(memory, half(scratch()));
      default:
        vmovdqu8(passing | mask_register(value) | T_z, ptr[rip + byte_ones_]);
        return streams ? vmovntdq(memory, passing) : vmovdqu8(memory, passing);
    }
  }

  if (i.op == Op::store_half) {
    vcvtps2ph(passing, full(value), 0);
    return streams ? vmovntdq(ptr[to], passing) : vmovdqu(ptr[to], passing);
  }
  vextracti128(passing, Xbyak::Ymm(value), 1);
  if (i.op == Op::store_mask)
    vpackssdw(passing, Xbyak::Xmm(value), passing);
  else
    vpackusdw(passing, Xbyak::Xmm(value), passing);
  if (i.op == Op::store16) return streams ? vmovntdq(ptr[to], passing) : vmovdqu(ptr[to], passing);
  if (i.op == Op::store_mask) {
    vpacksswb(passing, passing, passing);
    vpand(passing, passing, ptr[rip + byte_ones_]);
  } else {
    vpackuswb(passing, passing, passing);
  }
  vmovq(ptr[to], passing);
}

}  // namespace lockstep::cpu::jit

#endif
