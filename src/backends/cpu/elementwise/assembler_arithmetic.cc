#if defined(__x86_64__)

#include <utility>

#include "backends/cpu/elementwise/assembler.h"

namespace lockstep::cpu::jit {

void Assembler::binary(const VectorInstruction& i, const PlacedInstruction& p) {
  const Xbyak::Xmm to = full(p.result);
  const Xbyak::Xmm a = full(p.args[0].index);
  with(p.args[1], [&](const Xbyak::Operand& b) {
    switch (i.op) {
      case Op::add:
        switch (i.lane) {
          case Lane::f32: return vaddps(to, a, b);
          case Lane::f64: return vaddpd(to, a, b);
          case Lane::i64: return vpaddq(to, a, b);
          default: return vpaddd(to, a, b);
        }
      case Op::sub:
        switch (i.lane) {
          case Lane::f32: return vsubps(to, a, b);
          case Lane::f64: return vsubpd(to, a, b);
          case Lane::i64: return vpsubq(to, a, b);
          default: return vpsubd(to, a, b);
        }
      case Op::mul:
        switch (i.lane) {
          case Lane::f32: return vmulps(to, a, b);
          case Lane::f64: return vmulpd(to, a, b);
          case Lane::i64: return vpmullq(to, a, b);
          default: return vpmulld(to, a, b);
        }
      case Op::div: return i.lane == Lane::f32 ? vdivps(to, a, b) : vdivpd(to, a, b);
      case Op::maximum:
        switch (i.lane) {
          case Lane::f32: return vmaxps(to, a, b);
          case Lane::f64: return vmaxpd(to, a, b);
          case Lane::i64: return vpmaxsq(to, a, b);
          default: return vpmaxsd(to, a, b);
        }
      case Op::minimum:
        switch (i.lane) {
          case Lane::f32: return vminps(to, a, b);
          case Lane::f64: return vminpd(to, a, b);
          case Lane::i64: return vpminsq(to, a, b);
          default: return vpminsd(to, a, b);
        }
      case Op::scale: return i.lane == Lane::f32 ? vscalefps(to, a, b) : vscalefpd(to, a, b);
      default: return bitwise(i.op, i.lane, to, a, b);
    }
  });
}

void Assembler::bitwise(Op op, Lane lane, const Xbyak::Xmm& to, const Xbyak::Xmm& a,
                        const Xbyak::Operand& b) {
  switch (op) {
    case Op::bit_and:
      switch (lane) {
        case Lane::f32: return vandps(to, a, b);
        case Lane::f64: return vandpd(to, a, b);
        case Lane::i64: return is_avx512() ? vpandq(to, a, b) : vpand(to, a, b);
        default: return is_avx512() ? vpandd(to, a, b) : vpand(to, a, b);
      }
    case Op::bit_or:
      switch (lane) {
        case Lane::f32: return vorps(to, a, b);
        case Lane::f64: return vorpd(to, a, b);
        case Lane::i64: return is_avx512() ? vporq(to, a, b) : vpor(to, a, b);
        default: return is_avx512() ? vpord(to, a, b) : vpor(to, a, b);
      }
    case Op::bit_xor:
      switch (lane) {
        case Lane::f32: return vxorps(to, a, b);
        case Lane::f64: return vxorpd(to, a, b);
        case Lane::i64: return is_avx512() ? vpxorq(to, a, b) : vpxor(to, a, b);
        default: return is_avx512() ? vpxord(to, a, b) : vpxor(to, a, b);
      }
    default:
      switch (lane) {
        case Lane::f32: return vandnps(to, a, b);
        case Lane::f64: return vandnpd(to, a, b);
        case Lane::i64: return is_avx512() ? vpandnq(to, a, b) : vpandn(to, a, b);
        default: return is_avx512() ? vpandnd(to, a, b) : vpandn(to, a, b);
      }
  }
}

void Assembler::shift(const VectorInstruction& i, const Xbyak::Xmm& to, const Xbyak::Xmm& a) {
  const bool wide = is_wide(i.lane);
  switch (i.op) {
    case Op::shift_left: return wide ? vpsllq(to, a, i.immediate) : vpslld(to, a, i.immediate);
    case Op::shift_right: return wide ? vpsrlq(to, a, i.immediate) : vpsrld(to, a, i.immediate);
    default: return wide ? vpsraq(to, a, i.immediate) : vpsrad(to, a, i.immediate);
  }
}

void Assembler::unary(const VectorInstruction& i, const PlacedInstruction& p) {
  const Xbyak::Xmm to = full(p.result);
  const Xbyak::Xmm a = full(p.args[0].index);
  const bool wide = is_wide(i.lane);
  switch (i.op) {
    case Op::sqrt: return wide ? vsqrtpd(to, a) : vsqrtps(to, a);
    case Op::round:
      if (is_avx512()) return wide ? vrndscalepd(to, a, i.immediate) : vrndscaleps(to, a, i.immediate);
      return wide ? vroundpd(to, a, i.immediate) : vroundps(to, a, i.immediate);
    case Op::exponent: return wide ? vgetexppd(to, a) : vgetexpps(to, a);
    case Op::significand: return wide ? vgetmantpd(to, a, 3) : vgetmantps(to, a, 3);
    default: return shift(i, to, a);
  }
}

void Assembler::convert(const VectorInstruction& i, const PlacedInstruction& p) {
  const Xbyak::Xmm to = full(p.result);
  const int a = p.args[0].index;
  const int b = p.args[1].index;

  // The half of a that a part is made of.
  const auto half_of_a = [&] {
    if (i.immediate == 0) return half(a);
    if (is_avx512())
      vextractf64x4(Xbyak::Ymm(p.result), Xbyak::Zmm(a), 1);
    else
      vextractf128(Xbyak::Xmm(p.result), Xbyak::Ymm(a), 1);
    return half(p.result);
  };
  // Both parts, narrowed and put together; b first, since the result may be its register.
  const auto join = [&](auto narrow) {
    narrow(half(scratch()), full(b));
    narrow(half(p.result), full(a));
    if (is_avx512())
      vinsertf64x4(Xbyak::Zmm(p.result), Xbyak::Zmm(p.result), Xbyak::Ymm(scratch()), 1);
    else
      vinsertf128(Xbyak::Ymm(p.result), Xbyak::Ymm(p.result), Xbyak::Xmm(scratch()), 1);
  };

  switch (i.op) {
    case Op::to_i32_trunc: return vcvttps2dq(to, full(a));
    case Op::to_f32: return vcvtdq2ps(to, full(a));
    case Op::to_i64_trunc: return vcvttpd2qq(to, full(a));
    case Op::to_f64: return vcvtqq2pd(to, full(a));
    case Op::round_half: vcvtps2ph(half(p.result), full(a), 0); return vcvtph2ps(to, half(p.result));
    case Op::widen:
      if (i.lane == Lane::f32) return vcvtps2pd(to, half_of_a());
      return vpmovsxdq(to, half_of_a());
    case Op::widen_to_f64: return vcvtdq2pd(to, half_of_a());
    case Op::narrow:
      if (i.lane == Lane::f64)
        return join([&](const Xbyak::Xmm& x, const Xbyak::Xmm& y) { vcvtpd2ps(x, y); });
      return join([&](const Xbyak::Xmm& x, const Xbyak::Xmm& y) { vpmovqd(x, y); });
    case Op::narrow_to_i32: return join([&](const Xbyak::Xmm& x, const Xbyak::Xmm& y) { vcvttpd2dq(x, y); });
    default: return join([&](const Xbyak::Xmm& x, const Xbyak::Xmm& y) { vcvtqq2ps(x, y); });
  }
}

// The machine overwrites one operand of a * b + c; which one decides the form of the instruction.
void Assembler::multiply_add(const VectorInstruction& i, const PlacedInstruction& p) {
  const bool wide = is_wide(i.lane);
  const bool negated = i.op == Op::fnma;
  const Xbyak::Xmm to = full(p.result);
  const auto is_result = [&](const Location& l) {
    return l.kind == Location::Kind::reg && l.index == p.result;
  };
  const auto form_132 = [&](const Xbyak::Xmm& c, const Xbyak::Operand& b) {  // to * b + c
    if (negated) return wide ? vfnmadd132pd(to, c, b) : vfnmadd132ps(to, c, b);
    return wide ? vfmadd132pd(to, c, b) : vfmadd132ps(to, c, b);
  };
  const auto form_213 = [&](const Xbyak::Xmm& a, const Xbyak::Operand& c) {  // a * to + c
    if (negated) return wide ? vfnmadd213pd(to, a, c) : vfnmadd213ps(to, a, c);
    return wide ? vfmadd213pd(to, a, c) : vfmadd213ps(to, a, c);
  };
  const auto form_231 = [&](const Xbyak::Xmm& a, const Xbyak::Operand& b) {  // a * b + to
    if (negated) return wide ? vfnmadd231pd(to, a, b) : vfnmadd231ps(to, a, b);
    return wide ? vfmadd231pd(to, a, b) : vfmadd231ps(to, a, b);
  };

  Location a = p.args[0];
  Location b = p.args[1];
  const Location c = p.args[2];
  if (a.kind != Location::Kind::reg || (b.kind == Location::Kind::reg && is_result(b))) std::swap(a, b);
  // From here on a is in a register, and in the result's where either factor is.
  if (is_result(c)) {
    with(b, [&](const Xbyak::Operand& factor) { form_231(full(a.index), factor); });
  } else if (b.kind == Location::Kind::reg) {
    if (!is_result(a)) vmovaps(to, full(a.index));
    with(c, [&](const Xbyak::Operand& addend) { form_213(full(b.index), addend); });
  } else if (is_result(a)) {
    with(b, [&](const Xbyak::Operand& factor) { form_132(full(c.index), factor); });
  } else {
    vmovaps(to, full(c.index));
    with(b, [&](const Xbyak::Operand& factor) { form_231(full(a.index), factor); });
  }
}

void Assembler::compare(const VectorInstruction& i, const PlacedInstruction& p) {
  const Xbyak::Xmm a = full(p.args[0].index);
  const bool wide = is_wide(i.lane);
  with(p.args[1], [&](const Xbyak::Operand& b) {
    if (is_avx512()) {
      const Xbyak::Opmask to = mask_register(p.result);
      if (is_float(i.lane)) return wide ? vcmppd(to, a, b, i.immediate) : vcmpps(to, a, b, i.immediate);
      const uint8_t predicate = i.immediate == kEqual ? 0 : 6;
      return wide ? vpcmpq(to, a, b, predicate) : vpcmpd(to, a, b, predicate);
    }
    const Xbyak::Xmm to = full(p.result);
    if (is_float(i.lane)) return wide ? vcmppd(to, a, b, i.immediate) : vcmpps(to, a, b, i.immediate);
    if (i.immediate == kEqual) return wide ? vpcmpeqq(to, a, b) : vpcmpeqd(to, a, b);
    return wide ? vpcmpgtq(to, a, b) : vpcmpgtd(to, a, b);
  });
}

void Assembler::select(const VectorInstruction& i, const PlacedInstruction& p) {
  const Xbyak::Xmm otherwise = full(p.args[2].index);
  const bool wide = is_wide(i.lane);
  with(p.args[1], [&](const Xbyak::Operand& then) {
    if (is_avx512()) {
      const Xbyak::Xmm to = full(p.result) | mask_register(p.args[0].index);
      return wide ? vblendmpd(to, otherwise, then) : vblendmps(to, otherwise, then);
    }
    const Xbyak::Xmm mask = full(p.args[0].index);
    return wide ? vblendvpd(full(p.result), otherwise, then, mask)
                : vblendvps(full(p.result), otherwise, then, mask);
  });
}

void Assembler::mask_logic(const VectorInstruction& i, const PlacedInstruction& p) {
  if (is_avx512()) {
    const Xbyak::Opmask to = mask_register(p.result);
    const Xbyak::Opmask a = mask_register(p.args[0].index);
    const Xbyak::Opmask b = mask_register(p.args[1].index);
    switch (i.op) {
      case Op::mask_and: return kandw(to, a, b);
      case Op::mask_or: return korw(to, a, b);
      case Op::mask_xor: return kxorw(to, a, b);
      case Op::mask_andn: return kandnw(to, a, b);
      case Op::mask_not: return knotw(to, a);
      case Op::mask_part: return kshiftrw(to, a, static_cast<uint8_t>(i.immediate * 8));
      default: return kunpckbw(to, b, a);
    }
  }
  const Xbyak::Ymm to(p.result);
  const Xbyak::Ymm a(p.args[0].index);
  switch (i.op) {
    case Op::mask_not:
      vpcmpeqd(full(scratch()), full(scratch()), full(scratch()));
      return vpxor(to, a, full(scratch()));
    case Op::mask_part:
      if (i.immediate == 0) return vpmovsxdq(to, Xbyak::Xmm(a.getIdx()));
      vextracti128(Xbyak::Xmm(p.result), a, 1);
      return vpmovsxdq(to, Xbyak::Xmm(p.result));
    case Op::mask_join: vshufps(to, a, Xbyak::Ymm(p.args[1].index), 0x88); return vpermq(to, to, 0xd8);
    default: break;
  }
  with(p.args[1], [&](const Xbyak::Operand& b) {
    switch (i.op) {
      case Op::mask_and: return vpand(to, a, b);
      case Op::mask_or: return vpor(to, a, b);
      case Op::mask_xor: return vpxor(to, a, b);
      default: return vpandn(to, a, b);
    }
  });
}

}  // namespace lockstep::cpu::jit

#endif
