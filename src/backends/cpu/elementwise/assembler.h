// Writes the machine code of a placed vector program: a function void(const Block*) that walks the
// rows and columns of a block. x86-64, System V calling convention.
#pragma once

#include <xbyak/xbyak.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "backends/cpu/elementwise/registers.h"

namespace lockstep::cpu::jit {

class Assembler : private Xbyak::CodeGenerator {
 public:
  // With `streaming`, contiguous outputs are written past the caches; each row of each of them must
  // then begin at a multiple of 64 bytes.
  Assembler(const VectorProgram& program, const Placement& placement, bool streaming);

  // Position independent. Valid as long as this object.
  std::span<const uint8_t> code() const { return {getCode(), getSize()}; }

 private:
  // One pass over the body: `offset` elements after the column index, or a row's last few elements.
  struct Pass {
    int offset = 0;
    bool is_tail = false;
  };

  // In the frame, AVX2 only: masks of a row's last lanes, for 32-bit lanes and both 64-bit parts.
  static constexpr int kTailMasks = 224;

  // How an operand is reached.
  struct Operand {
    int size = 0;  // bytes per element
    Access access;
    int pointer = -1;        // general register that holds the row's address, or -1
    int pointer_offset = 0;  // in the frame, where there is no register
    int stage = -1;          // in the frame: room for one vector of elements
  };

  // A rare call out of the main path.
  struct ColdCall {
    Xbyak::Label begin;
    Xbyak::Label back;
    const VectorInstruction* instruction;
    PlacedInstruction placed;
  };

  // assembler.cc: the frame and the loops.
  void lay_out_frame();
  void enter();
  void leave();
  void rows();
  void columns();
  void advance_pointers();
  void body(Pass pass);
  void segment(const std::vector<PlacedInstruction>& code, Pass pass);
  void instruction(const PlacedInstruction& placed, Pass pass);
  void cold_calls();
  void save_and_call();
  void constants();

  // assembler_arithmetic.cc: what happens in registers.
  void binary(const VectorInstruction& i, const PlacedInstruction& p);
  void bitwise(Op op, Lane lane, const Xbyak::Xmm& to, const Xbyak::Xmm& a, const Xbyak::Operand& b);
  void shift(const VectorInstruction& i, const Xbyak::Xmm& to, const Xbyak::Xmm& a);
  void unary(const VectorInstruction& i, const PlacedInstruction& p);
  void convert(const VectorInstruction& i, const PlacedInstruction& p);
  void multiply_add(const VectorInstruction& i, const PlacedInstruction& p);
  void compare(const VectorInstruction& i, const PlacedInstruction& p);
  void select(const VectorInstruction& i, const PlacedInstruction& p);
  void mask_logic(const VectorInstruction& i, const PlacedInstruction& p);
  void patch(const VectorInstruction& i, const PlacedInstruction& p);

  // assembler_memory.cc: what goes to and from memory.
  void move(const Move& m);
  void load_location(int reg, bool is_mask, Location from);
  void store_location(int reg, bool is_mask, int slot);
  Xbyak::Address address(Location location);
  Xbyak::Reg64 pointer(const Operand& operand, const Xbyak::Reg64& scratch);
  bool is_staged(const Operand& operand, Pass pass) const;
  Xbyak::RegExp element_address(const Operand& operand, Pass pass);
  void strided_address(const Operand& operand, int number, Pass pass);
  void copy_element(const Operand& operand, const Xbyak::RegExp& to, const Xbyak::RegExp& from);
  void stage(const Operand& operand, int number, Pass pass, bool is_store);
  void load(const VectorInstruction& i, int result, Pass pass);
  void load_masked(const VectorInstruction& i, const Xbyak::Xmm& to, const Xbyak::Address& from);
  void store_masked(const VectorInstruction& i, const Xbyak::Address& to, const Xbyak::Xmm& from);
  void splat(const VectorInstruction& i, int result);
  void store(const VectorInstruction& i, int value, Pass pass);
  void store_narrow(const VectorInstruction& i, int value, const Xbyak::RegExp& to, bool is_masked,
                    bool streams);

  bool is_avx512() const { return program_.isa == Isa::avx512; }
  int width() const { return lanes(program_.isa); }
  int vector_bytes() const { return is_avx512() ? 64 : 32; }
  bool in_mask_register(bool is_mask) const { return is_mask && is_avx512(); }

  Xbyak::Xmm full(int reg) const {
    return Xbyak::Xmm(is_avx512() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM, reg);
  }
  Xbyak::Xmm half(int reg) const {
    return Xbyak::Xmm(is_avx512() ? Xbyak::Operand::YMM : Xbyak::Operand::XMM, reg);
  }
  static Xbyak::Xmm quarter(int reg) { return Xbyak::Xmm(reg); }
  int scratch() const { return is_avx512() ? 31 : 15; }
  static Xbyak::Opmask mask_register(int reg) { return Xbyak::Opmask(reg + 3); }

  // Calls f with the register or the memory operand of a location.
  template <class F>
  void with(Location location, F f) {
    if (location.kind == Location::Kind::reg)
      f(static_cast<const Xbyak::Operand&>(full(location.index)));
    else
      f(static_cast<const Xbyak::Operand&>(address(location)));
  }

  const VectorProgram& program_;
  const Placement& placement_;
  const bool streaming_;
  bool calls_ = false;

  std::vector<Operand> operands_;
  int saved_registers_ = 0;  // frame offsets
  int slots_ = 0;
  int frame_size_ = 0;

  std::deque<ColdCall> cold_calls_;
  Xbyak::Label save_and_call_;
  Xbyak::Label constants_;
  Xbyak::Label byte_ones_;
  Xbyak::Label ones_then_zeros_;
  std::map<int, int> constant_offsets_;  // by the constant's instruction
  std::vector<uint8_t> pool_;
};

}  // namespace lockstep::cpu::jit
