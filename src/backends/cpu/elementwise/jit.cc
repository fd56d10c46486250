#include "backends/cpu/elementwise/jit.h"

#if defined(__x86_64__)

#include <xbyak/xbyak_util.h>

#include "backends/cpu/elementwise/assembler.h"
#include "backends/cpu/elementwise/executable_memory.h"
#include "backends/cpu/elementwise/lowering.h"
#include "backends/cpu/elementwise/registers.h"

namespace lockstep::cpu::jit {
namespace {

class CompiledCode final : public BlockCode {
 public:
  CompiledCode(std::span<const uint8_t> code, Isa isa, double nanoseconds)
      : memory_(code),
        function_(reinterpret_cast<Function>(const_cast<void*>(memory_.data()))),
        isa_(isa),
        nanoseconds_(nanoseconds) {}

  void run(const Block& block) const override { function_(&block); }
  const char* implementation() const override { return isa_ == Isa::avx512 ? "jit:avx512" : "jit:avx2"; }
  double nanoseconds_per_element() const override { return nanoseconds_; }

 private:
  using Function = void (*)(const Block*);

  ExecutableMemory memory_;
  Function function_;
  Isa isa_;
  double nanoseconds_;
};

// Between one and two vector operations a cycle. Divisions and roots take longer, and a call of the
// C library for every lane longer still.
double estimate(const VectorProgram& program) {
  double cycles = 0;
  for (const VectorInstruction& i : program.code) {
    if (i.invariant) continue;
    const bool calls_always =
        i.op == Op::patch && program.code[static_cast<size_t>(i.args[3])].op == Op::constant;
    if (calls_always)
      cycles += 30 * lanes(program.isa);
    else
      cycles += i.op == Op::div || i.op == Op::sqrt ? 10 : 1;
  }
  return cycles / 5 / lanes(program.isa);
}

}  // namespace

bool is_supported(Isa isa) {
  using Cpu = Xbyak::util::Cpu;
  static const Cpu cpu;
  if (!cpu.has(Cpu::tAVX2 | Cpu::tFMA | Cpu::tF16C)) return false;
  return isa == Isa::avx2 || cpu.has(Cpu::tAVX512F | Cpu::tAVX512BW | Cpu::tAVX512DQ | Cpu::tAVX512VL);
}

std::optional<Isa> best_isa() {
  if (is_supported(Isa::avx512)) return Isa::avx512;
  if (is_supported(Isa::avx2)) return Isa::avx2;
  return std::nullopt;
}

std::unique_ptr<BlockCode> compile(const elementwise::ScalarProgram& program,
                                   std::span<const Access> accesses, Isa isa, bool streaming) {
  const std::optional<VectorProgram> vector_program = lower(program, accesses, isa);
  if (!vector_program) return nullptr;
  const Placement placement = place(*vector_program, register_counts(isa));
  const Assembler assembler(*vector_program, placement, streaming);
  return std::make_unique<CompiledCode>(assembler.code(), isa, estimate(*vector_program));
}

}  // namespace lockstep::cpu::jit

#else

namespace lockstep::cpu::jit {

bool is_supported(Isa) { return false; }
std::optional<Isa> best_isa() { return std::nullopt; }
std::unique_ptr<BlockCode> compile(const elementwise::ScalarProgram&, std::span<const Access>, Isa, bool) {
  return nullptr;
}

}  // namespace lockstep::cpu::jit

#endif
