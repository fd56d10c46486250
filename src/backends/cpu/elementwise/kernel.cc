#include "backends/cpu/elementwise/kernel.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <optional>

#include "backends/cpu/elementwise/code_cache.h"
#include "backends/cpu/elementwise/jit.h"
#include "backends/cpu/elementwise/loop_nest.h"
#include "base/parallel.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

using elementwise::kMaxOperands;
using elementwise::ScalarProgram;

constexpr int64_t kCacheLine = 64;

// What a thread must have to do before waking it pays.
constexpr double kNanosecondsPerThread = 4000;
// A core's share of the traffic to and from the caches.
constexpr double kBytesPerNanosecond = 50;

int64_t last_level_cache() {
  static const int64_t size = [] {
    const auto reported = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return reported > 0 ? int64_t{reported} : int64_t{32} << 20;
  }();
  return size;
}

// Bytes that the operands of one walk occupy; repeated elements count once.
int64_t bytes_touched(const LoopNest& nest, std::span<const DType> dtypes) {
  int64_t total = 0;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const LoopNest::Operand& operand = nest.operands[i];
    int64_t elements = 1;
    if (operand.column_stride != 0) elements *= nest.columns;
    if (operand.row_stride != 0) elements *= nest.rows;
    for (int d = 0; d < nest.outer.rank(); ++d)
      if (operand.outer_strides[d] != 0) elements *= nest.outer[d];
    total += elements * static_cast<int64_t>(size_of(dtypes[i]));
  }
  return total;
}

using Pointers = std::array<std::byte*, kMaxOperands>;

class NestKernel final : public ElementwiseKernel {
 public:
  NestKernel(LoopNest nest, size_t inputs, std::shared_ptr<const BlockCode> code,
             std::shared_ptr<const BlockCode> streaming, int threads)
      : nest_(std::move(nest)),
        inputs_(inputs),
        lines_(nest_.outer.size() * nest_.rows),
        code_(std::move(code)),
        streaming_(std::move(streaming)),
        threads_(threads) {
    const auto walks_across = [](const LoopNest::Operand& operand) {
      return std::abs(operand.column_stride) >= kCacheLine && operand.row_stride != 0 &&
             std::abs(operand.row_stride) < kCacheLine;
    };
    if (nest_.rows > 1 && std::ranges::any_of(nest_.operands, walks_across)) tile_ = kTransposedTile;
  }

  const char* implementation() const override { return code_->implementation(); }
  int threads() const override { return threads_; }

  void run(void* const* operands) const override {
    Pointers data;
    for (size_t i = 0; i < nest_.operands.size(); ++i)
      data[i] = static_cast<std::byte*>(operands[i]) + nest_.operands[i].offset;

    int64_t first = 0;
    const BlockCode* code = code_.get();
    if (const std::optional<int64_t> aligned = streaming_ ? first_aligned_column(data) : std::nullopt) {
      if (*aligned > 0) walk(*code, data, 0, lines_, 0, *aligned);
      first = *aligned;
      code = streaming_.get();
    }
    // Whole lines where there are enough of them to share evenly, else a range of every line.
    const int64_t columns = nest_.columns - first;
    if (lines_ >= kLinesPerThread * threads_) {
      parallel_for(lines_, 1, threads_,
                   [&](int64_t begin, int64_t end) { walk(*code, data, begin, end, first, nest_.columns); });
    } else {
      parallel_for(columns, kCacheLine, threads_, [&](int64_t begin, int64_t end) {
        walk(*code, data, 0, lines_, first + begin, first + end);
      });
    }
  }

 private:
  static constexpr int64_t kLinesPerThread = 8;
  // Columns of a tile where an operand lies the other way round: each cache line of it then serves
  // all rows that it reaches into before it is evicted.
  static constexpr int64_t kTransposedTile = 16;

  // The first column from which on all outputs are aligned as streaming needs them. Nothing where
  // there is none, or where an output is also an input and so in the caches anyway.
  std::optional<int64_t> first_aligned_column(const Pointers& data) const {
    const size_t count = nest_.operands.size();
    for (size_t o = inputs_; o < count; ++o)
      for (size_t i = 0; i < inputs_; ++i)
        if (data[o] == data[i]) return std::nullopt;

    const auto misalignment = [&](size_t output, int64_t column) {
      const auto address = reinterpret_cast<uintptr_t>(data[output]) +
                           static_cast<uintptr_t>(column * nest_.operands[output].column_stride);
      return static_cast<int64_t>(address % kCacheLine);
    };
    int64_t first = 0;
    if (lines_ == 1 && misalignment(inputs_, 0) != 0)
      first = (kCacheLine - misalignment(inputs_, 0)) / nest_.operands[inputs_].column_stride;
    if (first >= nest_.columns) return std::nullopt;
    for (size_t o = inputs_; o < count; ++o) {
      const LoopNest::Operand& output = nest_.operands[o];
      const auto is_aligned = [](int64_t stride) { return stride % kCacheLine == 0; };
      if (misalignment(o, first) != 0 || !is_aligned(output.row_stride) ||
          !std::ranges::all_of(output.outer_strides, is_aligned))
        return std::nullopt;
    }
    return first;
  }

  // Runs columns [left, right) of lines [begin, end); a line is a row of any of the outer loops.
  void walk(const BlockCode& code, const Pointers& data, int64_t begin, int64_t end, int64_t left,
            int64_t right) const {
    const size_t count = nest_.operands.size();
    const int depth = nest_.outer.rank();
    std::array<int64_t, kMaxRank> index{};
    Block block;

    int64_t outer = begin / nest_.rows;
    for (int d = depth - 1; d >= 0; --d) {
      index[static_cast<size_t>(d)] = outer % nest_.outer.begin()[d];
      outer /= nest_.outer.begin()[d];
    }
    for (size_t i = 0; i < count; ++i) {
      const LoopNest::Operand& operand = nest_.operands[i];
      std::byte* position = data[i] + left * operand.column_stride;
      for (int d = 0; d < depth; ++d)
        position += index[static_cast<size_t>(d)] * operand.outer_strides.begin()[d];
      block.operands[i] = {position, operand.row_stride, operand.column_stride};
    }

    int64_t row = begin % nest_.rows;
    for (int64_t line = begin; line < end;) {
      block.rows = std::min(nest_.rows - row, end - line);
      const auto shift_rows = [&](int64_t by) {
        if (by == 0) return;
        for (size_t i = 0; i < count; ++i) block.operands[i].data += by * nest_.operands[i].row_stride;
      };
      shift_rows(row);
      run_tiles(code, block, right - left);
      shift_rows(-row);
      line += block.rows;
      row = 0;
      if (line < end) step(block, index, depth);
    }
  }

  void run_tiles(const BlockCode& code, Block& block, int64_t columns) const {
    block.columns = columns;
    if (columns <= tile_) return code.run(block);
    const auto shift_columns = [&](int64_t by) {
      for (size_t i = 0; i < nest_.operands.size(); ++i)
        block.operands[i].data += by * nest_.operands[i].column_stride;
    };
    int64_t done = 0;
    for (; done < columns; done += tile_) {
      block.columns = std::min(tile_, columns - done);
      code.run(block);
      shift_columns(tile_);
    }
    shift_columns(-done);
  }

  // Moves the block on to the next outer index.
  void step(Block& block, std::array<int64_t, kMaxRank>& index, int depth) const {
    for (int d = depth - 1; d >= 0; --d) {
      int64_t& position = index[static_cast<size_t>(d)];
      const bool wraps = ++position == nest_.outer.begin()[d];
      const int64_t moved = wraps ? 1 - position : 1;
      if (wraps) position = 0;
      for (size_t i = 0; i < nest_.operands.size(); ++i)
        block.operands[i].data += moved * nest_.operands[i].outer_strides.begin()[d];
      if (!wraps) return;
    }
  }

  const LoopNest nest_;
  const size_t inputs_;
  const int64_t lines_;
  const std::shared_ptr<const BlockCode> code_;
  const std::shared_ptr<const BlockCode> streaming_;  // may be null
  const int threads_;
  int64_t tile_ = std::numeric_limits<int64_t>::max();  // columns handed to the code at once
};

// Nothing to compute: an empty shape, or a program without outputs.
class EmptyKernel final : public ElementwiseKernel {
 public:
  explicit EmptyKernel(const char* implementation) : implementation_(implementation) {}
  void run(void* const*) const override {}
  const char* implementation() const override { return implementation_; }
  int threads() const override { return 1; }

 private:
  const char* implementation_;
};

CodeKind choose(ElementwiseOptions::Implementation wanted) {
  using Implementation = ElementwiseOptions::Implementation;
  static const std::optional<jit::Isa> best = jit::best_isa();
  const auto demand = [](jit::Isa isa, const char* name) {
    require(jit::is_supported(isa), ErrorCode::unsupported, std::source_location::current(),
            "elementwise: this processor cannot run ", name, " code; leave the implementation automatic");
  };
  switch (wanted) {
    case Implementation::interpreter: return CodeKind::interpreter;
    case Implementation::avx512: demand(jit::Isa::avx512, "AVX-512"); return CodeKind::avx512;
    case Implementation::avx2: demand(jit::Isa::avx2, "AVX2"); return CodeKind::avx2;
    case Implementation::automatic: break;
  }
  if (!best) return CodeKind::interpreter;
  return *best == jit::Isa::avx512 ? CodeKind::avx512 : CodeKind::avx2;
}

bool wants_streaming(const LoopNest& nest, size_t inputs, std::span<const DType> dtypes,
                     ElementwiseOptions::Streaming wanted) {
  if (wanted == ElementwiseOptions::Streaming::never) return false;
  for (size_t o = inputs; o < nest.operands.size(); ++o)
    if (nest.operands[o].access != Access::contiguous) return false;
  if (wanted == ElementwiseOptions::Streaming::always) return true;
  return bytes_touched(nest, dtypes) > 2 * last_level_cache();
}

int choose_threads(const LoopNest& nest, std::span<const DType> dtypes, const BlockCode& code, int threads) {
  int64_t bytes = 0;
  for (const DType dtype : dtypes) bytes += static_cast<int64_t>(size_of(dtype));
  const double memory = static_cast<double>(bytes) / kBytesPerNanosecond;
  const double total = static_cast<double>(nest.size()) * std::max(memory, code.nanoseconds_per_element());
  return static_cast<int>(
      std::clamp(total / kNanosecondsPerThread, 1.0, static_cast<double>(std::max(threads, 1))));
}

}  // namespace

std::unique_ptr<ElementwiseKernel> prepare_elementwise(const ScalarProgram& program, const Shape& shape,
                                                       std::span<const Strides> input_strides,
                                                       std::span<const Strides> output_strides, int threads,
                                                       const ElementwiseOptions& options) {
  const auto here = std::source_location::current();
  const size_t inputs = program.inputs.size();
  const size_t count = inputs + program.outputs.size();
  require(input_strides.size() == inputs && output_strides.size() == program.outputs.size(),
          ErrorCode::invalid_argument, here, "elementwise: received strides for ", input_strides.size(),
          " inputs and ", output_strides.size(), " outputs of a program with ", inputs, " and ",
          program.outputs.size());
  if (count > kMaxOperands) validate(program);  // says so

  std::array<OperandLayout, kMaxOperands> layouts;
  std::array<DType, kMaxOperands> dtypes;
  for (size_t i = 0; i < count; ++i) {
    if (i < inputs) {
      dtypes[i] = program.inputs[i];
      layouts[i].strides = &input_strides[i];
    } else {
      const auto value = static_cast<size_t>(program.outputs[i - inputs]);
      if (value >= program.instructions.size()) validate(program);  // says so
      dtypes[i] = program.instructions[value].dtype;
      layouts[i].strides = &output_strides[i - inputs];
    }
    layouts[i].dtype = dtypes[i];
  }
  const std::span<const OperandLayout> all(layouts.data(), count);
  LoopNest nest = make_loop_nest(shape, all.first(inputs), all.subspan(inputs));

  std::array<Access, kMaxOperands> accesses;
  for (size_t i = 0; i < count; ++i) accesses[i] = nest.operands[i].access;
  const std::span<const Access> access(accesses.data(), count);
  const std::span<const DType> dtype(dtypes.data(), count);
  const CodeKind kind = choose(options.implementation);
  CodeCache& cache = CodeCache::global();
  std::shared_ptr<const BlockCode> code = cache.find(program, access, kind, false);
  if (nest.size() == 0 || program.outputs.empty())
    return std::make_unique<EmptyKernel>(code->implementation());

  std::shared_ptr<const BlockCode> streaming;
  if (wants_streaming(nest, inputs, dtype, options.streaming))
    streaming = cache.find(program, access, kind, true);
  threads = choose_threads(nest, dtype, *code, threads);
  return std::make_unique<NestKernel>(std::move(nest), inputs, std::move(code), std::move(streaming),
                                      threads);
}

}  // namespace lockstep::cpu
