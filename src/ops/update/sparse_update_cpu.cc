// sparse_update on the CPU.
#include <algorithm>
#include <cstring>

#include "backends/cpu/elementwise/kernel.h"
#include "base/parallel.h"
#include "ops/array/indices_cpu.h"
#include "ops/update/sparse_update.h"

namespace lockstep {
namespace {

using cpu::Accumulator;
using cpu::Indices;
using cpu::threads_for;

// A looked-up row, and which of the values is for it: sorted, the values of a row lie together in their
// order. A row's sum is kept at the place of the first of them; the other places hold zeros, which are
// updated and thrown away.
struct Lookup {
  int64_t row, value;
  bool operator<(const Lookup& other) const {
    return row != other.row ? row < other.row : value < other.value;
  }
};

class SparseUpdateKernel final : public Kernel {
 public:
  explicit SparseUpdateKernel(const KernelRequest& request)
      : plan_(request),
        indices_(request, 1, {kScatterAdd.name}),  // which the program calls
        threads_(request.threads),
        rows_(prepare(plan_.of_rows)),
        table_(prepare(plan_.of_table)),
        row_pointers_(plan_.of_rows.operands.size()),
        table_pointers_(plan_.of_table.operands.size()) {}

  size_t workspace_bytes() const override {
    return plan_.workspace_bytes + static_cast<size_t>(plan_.count) * sizeof(Lookup);
  }
  bool in_place(int input, int output) const override { return plan_.in_place(input, output); }

  void launch(const LaunchArgs& args) const override {
    auto* workspace = static_cast<char*>(args.workspace);
    auto* lookups = reinterpret_cast<Lookup*>(workspace + plan_.workspace_bytes);
    sort(args, lookups);
    std::memset(workspace, 0, plan_.workspace_bytes);
    dispatch(plan_.dtype, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>)
        add<T>(static_cast<const T*>(args.inputs[0]), lookups,
               reinterpret_cast<T*>(workspace + plan_.sums_offset));
    });
    each_row(lookups, [&](int64_t place, int64_t row) {
      for (const auto& table : plan_.taken)
        std::memcpy(workspace + table.rows_offset + place * table.row_bytes,
                    static_cast<const char*>(args.inputs[table.operand]) + row * table.row_bytes,
                    static_cast<size_t>(table.row_bytes));
    });
    plan_.of_rows.bind(args, row_pointers_);
    rows_->run(row_pointers_.data());
    plan_.of_table.bind(args, table_pointers_);
    table_->run(table_pointers_.data());
    each_row(lookups, [&](int64_t place, int64_t row) {
      for (const auto& table : plan_.put)
        std::memcpy(static_cast<char*>(args.inputs[table.operand]) + row * table.row_bytes,
                    workspace + table.rows_offset + place * table.row_bytes,
                    static_cast<size_t>(table.row_bytes));
    });
  }

 private:
  std::unique_ptr<cpu::ElementwiseKernel> prepare(const SparseUpdatePlan::Pass& pass) const {
    return cpu::prepare_elementwise(pass.program, pass.shape, pass.input_strides, pass.output_strides,
                                    threads_);
  }

  void sort(const LaunchArgs& args, Lookup* lookups) const {
    const auto index = indices_.read_checked(args, plan_.rows);
    for (int64_t i = 0; i < plan_.count; ++i) lookups[i] = {index[i], i};
    std::sort(lookups, lookups + plan_.count);
  }

  // f(place, row) for every row that was looked up, on several threads.
  template <class F>
  void each_row(const Lookup* lookups, const F& f) const {
    const int threads = threads_for(plan_.count * plan_.width * 8, threads_);
    parallel_for(plan_.count, 1, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (i == 0 || lookups[i - 1].row != lookups[i].row) f(i, lookups[i].row);
    });
  }

  // In the order of scatter_add, so that the bits are its bits.
  template <class T>
  void add(const T* values, const Lookup* lookups, T* sums) const {
    using A = Accumulator<T>;
    each_row(lookups, [&](int64_t place, int64_t row) {
      int64_t end = place;
      while (end < plan_.count && lookups[end].row == row) ++end;
      for (int64_t k = 0; k < plan_.width; ++k) {
        A sum = 0;
        for (int64_t i = place; i < end; ++i)
          sum = static_cast<A>(sum + static_cast<A>(values[lookups[i].value * plan_.width + k]));
        sums[place * plan_.width + k] = static_cast<T>(sum);
      }
    });
  }

  SparseUpdatePlan plan_;
  Indices indices_;
  int threads_;
  std::unique_ptr<cpu::ElementwiseKernel> rows_, table_;
  mutable std::vector<void*> row_pointers_, table_pointers_;
};

const RegisterKernel registered(DeviceKind::cpu, kSparseUpdate,
                                {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                                   return std::make_unique<SparseUpdateKernel>(request);
                                 },
                                 .thread_invariant = true});

}  // namespace
}  // namespace lockstep
