// sparse_update on GPUs. A row's sum is kept at the place of the last of its values, in the order of rows;
// the other places hold whatever is there, which is updated and thrown away.
#include <optional>

#include "backends/cuda/elementwise_kernel.h"
#include "ops/array/row_sums_cuda.h"
#include "ops/update/sparse_update.h"

namespace lockstep::cuda {
namespace {

// Tables whose rows one launch moves: one for each y of the grid. Rows consist of units.
struct RowMoves {
  static constexpr int kMost = 8;
  void* table[kMost];
  void* rows[kMost];
  Divider units[kMost];
};

template <class Unit, bool put>
__global__ void move_rows(RowMoves moves, const uint64_t* sorted, int64_t count, uint64_t limit) {
  const Divider units = moves.units[blockIdx.y];
  auto* table = static_cast<Unit*>(moves.table[blockIdx.y]);
  auto* rows = static_cast<Unit*>(moves.rows[blockIdx.y]);
  for (int64_t u = first_index(); u < count * units.divisor(); u += index_step()) {
    const int64_t place = units.quotient(u);
    const uint64_t row = sorted[place];
    if (row >= limit || (place + 1 < count && sorted[place + 1] == row)) continue;
    Unit& in_table = table[static_cast<int64_t>(row) * units.divisor() + (u - place * units.divisor())];
    if constexpr (put)
      in_table = rows[u];
    else
      rows[u] = in_table;
  }
}

class SparseUpdateKernel final : public Kernel {
 public:
  explicit SparseUpdateKernel(const KernelRequest& request)
      : plan_(request),
        indices_(request, 1, plan_.rows, {kScatterAdd.name}),  // which the program calls
        rows_(elementwise_kernel(plan_.of_rows)),
        table_(elementwise_kernel(plan_.of_table)),
        row_pointers_(plan_.of_rows.operands.size()),
        table_pointers_(plan_.of_table.operands.size()) {
    if (plan_.count * plan_.width > 0) sums_.emplace(plan_.count, plan_.rows, plan_.width, request.where);
  }

  size_t workspace_bytes() const override {
    return plan_.workspace_bytes + (sums_ ? sums_->workspace_bytes() : 0);
  }
  bool in_place(int input, int output) const override { return plan_.in_place(input, output); }

  void launch(const LaunchArgs& args) const override {
    const cudaStream_t stream = stream_of(args);
    auto* workspace = static_cast<char*>(args.workspace);
    RowSums::Sorted sorted{};
    if (sums_) {
      sorted = sums_->sort(indices_.read(args), workspace + plan_.workspace_bytes, stream);
      dispatch_elements(plan_.dtype, [&]<class T>() {
        if constexpr (!std::is_same_v<T, bool>)
          sums_->add<AmongValues>(sorted, static_cast<const T*>(args.inputs[0]),
                                  reinterpret_cast<T*>(workspace + plan_.sums_offset),
                                  workspace + plan_.workspace_bytes, stream);
      });
      move<false>(plan_.taken, args, sorted.rows);
      plan_.of_rows.bind(args, row_pointers_);
      rows_.launch(row_pointers_.data(), stream);
    }
    plan_.of_table.bind(args, table_pointers_);
    table_.launch(table_pointers_.data(), stream);
    if (sums_) move<true>(plan_.put, args, sorted.rows);
    launched();
  }

 private:
  static ElementwiseKernel elementwise_kernel(const SparseUpdatePlan::Pass& pass) {
    std::vector<Strides> strides = pass.input_strides;
    strides.insert(strides.end(), pass.output_strides.begin(), pass.output_strides.end());
    return {pass.program, pass.shape, strides};
  }

  template <bool put>
  void move(const std::vector<SparseUpdatePlan::Table>& tables, const LaunchArgs& args,
            const uint64_t* sorted) const {
    for (size_t first = 0; first < tables.size(); first += RowMoves::kMost) {
      const size_t count = std::min<size_t>(RowMoves::kMost, tables.size() - first);
      RowMoves moves;
      size_t unit = 16;
      int64_t most = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto& [operand, row_bytes, offset] = tables[first + i];
        moves.table[i] = args.inputs[operand];
        moves.rows[i] = static_cast<char*>(args.workspace) + offset;
        unit = std::min(unit, unit_of_rows(row_bytes, {moves.table[i], moves.rows[i]}));
        most = std::max(most, row_bytes);
      }
      if (most == 0) continue;
      const auto bytes = static_cast<int64_t>(unit);
      for (size_t i = 0; i < count; ++i) moves.units[i] = Divider(tables[first + i].row_bytes / bytes);
      dispatch_bytes(unit, [&]<class Unit>() {
        move_rows<Unit, put>
            <<<dim3(blocks_for(plan_.count * most / bytes), static_cast<unsigned>(count)), kThreads, 0,
               stream_of(args)>>>(moves, sorted, plan_.count, static_cast<uint64_t>(plan_.rows));
      });
    }
  }

  SparseUpdatePlan plan_;
  Indices indices_;
  std::optional<RowSums> sums_;  // none: no row has values
  ElementwiseKernel rows_, table_;
  mutable std::vector<void*> row_pointers_, table_pointers_;
};

const RegisterKernel registered(DeviceKind::gpu, kSparseUpdate,
                                {.prepare = prepare<SparseUpdateKernel>, .thread_invariant = true});

}  // namespace
}  // namespace lockstep::cuda
