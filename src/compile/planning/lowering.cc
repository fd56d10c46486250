#include "compile/planning/lowering.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "compile/passes/transfers.h"
#include "compile/planning/arena_layout.h"
#include "compile/planning/kernel_pool.h"
#include "compile/planning/launch_groups.h"
#include "compile/planning/spread.h"
#include "graph/numerics.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {
namespace {

struct Home {
  Operand operand;
  OperandLayout layout;
};

class Lowering {
 public:
  Lowering(const Graph& graph, const Placement& placement, const PlanOptions& options,
           const std::vector<std::vector<int>>& groups)
      : graph_(graph), placement_(placement), options_(options), group_(graph.nodes.size(), -1) {
    for (size_t g = 0; g < groups.size(); ++g)
      for (const int node : groups[g]) group_[static_cast<size_t>(node)] = static_cast<int>(g);
    for (const Node& node : graph.nodes) homes_.emplace_back(node.outputs.size());
    written_.assign(graph.nodes.size(), 0);
    plan_.phases = placement.phases;
    plan_.devices = options.devices;
    plan_.kernels = std::make_shared<KernelPool>();
    kernels_ = plan_.kernels->borrow(options);
  }

  Plan run(const std::vector<int>& order) {
    name_layers();
    collect_sources();
    assign_results();
    for (const int node : order) lower(node);
    extend_to_readers();
    overwrite_inputs();
    join_groups();
    arenas_.place(plan_);
    return std::move(plan_);
  }

 private:
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  Home& home(Value v) { return homes_[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)]; }
  static OperandLayout contiguous_layout(const TensorSpec& spec) {
    return {spec, contiguous_strides(spec.shape)};
  }

  // A node that reads a weight, or a conversion or view of one, belongs to its layer, and so does one whose
  // result an update of the weight reads.
  void name_layers() {
    layers_.resize(graph_.nodes.size());
    const auto layer_of = [](const Variable& variable) {
      return variable.name().substr(0, variable.name().rfind('/'));
    };
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const Value v : node(static_cast<int>(i)).inputs) {
        const Node* source = &graph_.node(v);
        if (source->inputs.size() == 1) source = &graph_.node(source->inputs[0]);
        if (source->op == &kVariable && layers_[i].empty())
          layers_[i] = layer_of(source->attrs.as<VariableAttrs>().variable);
      }
    for (const VariableUpdate& update : graph_.updates)
      for (Value v : graph_.node(update.value).inputs)
        for (int hops = 0; hops < 2; ++hops) {
          if (std::string& layer = layers_[static_cast<size_t>(v.node)]; layer.empty())
            layer = layer_of(update.variable);
          if (graph_.node(v).inputs.size() != 1) break;
          v = graph_.node(v).inputs[0];
        }
  }

  // --- sources and results ---------------------------------------------------------------------------------

  void collect_sources() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = node(static_cast<int>(i));
      if (!is_source(*n.op)) continue;
      Home& h = homes_[i][0];
      h.layout = contiguous_layout(n.outputs[0]);
      if (n.op == &kParameter) {
        const auto index = static_cast<size_t>(n.attrs.as<ParameterAttrs>().index);
        if (plan_.parameters.size() <= index) plan_.parameters.resize(index + 1);
        plan_.parameters[index] = n.outputs[0];
        h.operand = {Space::parameter, static_cast<int>(index), 0};
      } else if (n.op == &kVariable) {
        h.operand = {Space::variable, variable_index(n.attrs.as<VariableAttrs>().variable), 0};
      } else if (n.op == &kCapturedInput) {
        h.operand = {Space::captured_input, static_cast<int>(plan_.captured_inputs.size()), 0};
        plan_.captured_inputs.push_back(n.attrs.as<CapturedInputAttrs>().tensor);
        h.layout.strides = plan_.captured_inputs.back().impl()->strides;
      } else if (n.op == &kConstant) {
        h.operand = {Space::constant, static_cast<int>(plan_.constants.size()), 0};
        plan_.constants.emplace_back(n.outputs[0], n.attrs.as<ConstantAttrs>().value);
      } else {
        h.operand = {Space::example_offset, 0, 0};
      }
    }
  }

  int variable_index(const Variable& variable) {
    const auto it = std::find_if(plan_.variables.begin(), plan_.variables.end(),
                                 [&](const Variable& v) { return v.id() == variable.id(); });
    if (it != plan_.variables.end()) return static_cast<int>(it - plan_.variables.begin());
    plan_.variables.push_back(variable);
    plan_.variable_updated.push_back(false);
    return static_cast<int>(plan_.variables.size()) - 1;
  }

  void assign_results() {
    const std::vector<Spread> spreads =
        spreads_of_outputs(graph_, placement_, options_.local_batch, options_.stacks_outputs);
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const Value v = graph_.outputs[k];
      if (!v.valid()) {
        plan_.outputs.emplace_back();
        continue;
      }
      const int device = placement_.nodes[static_cast<size_t>(v.node)].device;
      home(v).operand = {Space::output, static_cast<int>(k), 0, device};
      result_values_.push_back(v);
      plan_.outputs.push_back(
          {graph_.spec(v), spreads[k] == Spread::rows, spreads[k] == Spread::blocks, device});
    }
    for (const VariableUpdate& update : graph_.updates) {
      const int index = variable_index(update.variable);
      if (is_source(*graph_.node(update.value).op)) continue;  // assigned its own value
      plan_.variable_updated[static_cast<size_t>(index)] = true;
      home(update.value).operand = {Space::variable, index, 0,
                                    placement_.nodes[static_cast<size_t>(update.value.node)].device};
      result_values_.push_back(update.value);
    }
  }

  // --- launches --------------------------------------------------------------------------------------------

  void lower(int i) {
    const Node& n = node(i);
    if (is_source(*n.op)) return;
    const NodePlace place = placement_.nodes[static_cast<size_t>(i)];
    if (n.op == &kAllReduceSum) return lower_collective(i, place);
    if (n.op == &kTransfer) return lower_transfer(i, place);
    if (n.op->view && lower_view(i)) return;

    KernelCall call{.node = i,
                    .op = n.op,
                    .attrs = n.attrs,
                    .input_layouts = {},
                    .output_layouts = {},
                    .inputs = {},
                    .outputs = {},
                    .workspace_bytes = 0,
                    .workspace_offset = 0,
                    .place = place,
                    .cost = {},
                    .where = n.where,
                    .layer = layers_[static_cast<size_t>(i)]};
    const DeviceKind kind = options_.kind_at(place);
    const bool needs_contiguous =
        kind != DeviceKind::null && !find_kernel(kind, *n.op, n.where).strided_inputs;
    for (const Value v : n.inputs) add_input(call, v, needs_contiguous);
    add_outputs(call);
    if (can_be_grouped(call)) call.group = group_[static_cast<size_t>(i)];
    push(std::move(call));
  }

  void add_outputs(KernelCall& call) {
    const Node& n = node(call.node);
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const Value v{static_cast<int32_t>(call.node), static_cast<int32_t>(k)};
      Home& h = home(v);
      h.layout = contiguous_layout(n.outputs[k]);
      if (std::find(result_values_.begin(), result_values_.end(), v) == result_values_.end())
        h.operand = new_buffer(n.outputs[k].bytes(), call.place);
      call.outputs.push_back(h.operand);
      call.output_layouts.push_back(h.layout);
    }
  }

  // A value as a node at `place` finds it: sources are bound on every device that reads them.
  Home home_at(Value v, NodePlace place) {
    Home h = home(v);
    if (is_source(*graph_.node(v).op)) h.operand.device = place.device;
    return h;
  }

  void lower_transfer(int i, NodePlace place) {
    const Node& n = node(i);
    const NodePlace from = placement_.nodes[static_cast<size_t>(n.inputs[0].node)];
    Home source = home_at(n.inputs[0], from);
    if (!source.layout.contiguous()) source = contiguous_copy(source, from, n.where);
    KernelCall call{.node = i,
                    .op = n.op,
                    .attrs = {},
                    .input_layouts = {source.layout},
                    .output_layouts = {},
                    .inputs = {source.operand},
                    .outputs = {},
                    .workspace_bytes = 0,
                    .workspace_offset = 0,
                    .place = place,
                    .copies = true,
                    .cost = {},
                    .where = n.where};
    add_outputs(call);
    push(std::move(call));
  }

  void add_input(KernelCall& call, Value v, bool needs_contiguous) {
    Home h = home_at(v, call.place);
    if (needs_contiguous && !h.layout.contiguous()) h = contiguous_copy(h, call.place, call.where);
    call.inputs.push_back(h.operand);
    call.input_layouts.push_back(h.layout);
  }

  Home contiguous_copy(const Home& source, NodePlace place, std::source_location where) {
    const OperandLayout target = contiguous_layout(source.layout.spec);
    const Operand buffer = new_buffer(target.spec.bytes(), place);
    push({.node = -1,
          .op = &kIdentity,
          .attrs = {},
          .input_layouts = {source.layout},
          .output_layouts = {target},
          .inputs = {source.operand},
          .outputs = {buffer},
          .workspace_bytes = 0,
          .workspace_offset = 0,
          .place = place,
          .cost = {},
          .where = where});
    return {buffer, target};
  }

  bool lower_view(int i) {
    const Node& n = node(i);
    const Home source = home_at(n.inputs[0], placement_.nodes[static_cast<size_t>(i)]);
    const auto view = n.op->view({source.layout.spec, source.layout.strides, n.outputs[0], n.attrs});
    if (!view) return false;
    Home& h = home({static_cast<int32_t>(i), 0});
    h = source;
    h.layout = {n.outputs[0], view->strides};
    h.operand.offset += view->offset * static_cast<int64_t>(size_of(n.outputs[0].dtype));
    return true;
  }

  void lower_collective(int i, NodePlace place) {
    const Node& n = node(i);
    const Home& input = home(n.inputs[0]);
    Home& h = home({static_cast<int32_t>(i), 0});
    h.layout = contiguous_layout(n.outputs[0]);
    h.operand = new_buffer(n.outputs[0].bytes(), place);
    plan_.collectives.push_back(
        {.sequence = n.attrs.as<CollectiveAttrs>().sequence,
         .spec = n.outputs[0],
         .input = input.operand,
         .result = h.operand,
         .condition = n.inputs.size() > 1 ? std::optional(home(n.inputs[1]).operand) : std::nullopt,
         .phase = place.phase,
         .ready = written_[static_cast<size_t>(n.inputs[0].node)]});
    // From then on the result may be written, while calls that do not need it still run.
    arenas_.written_from(h.operand, plan_.collectives.back().ready);
    collective_positions_.push_back(position());
  }

  int position() const { return static_cast<int>(plan_.calls.size()); }

  Operand new_buffer(size_t bytes, NodePlace place) { return arenas_.new_buffer(bytes, place, position()); }

  void push(KernelCall call) {
    SpecList in, out;
    for (const OperandLayout& layout : call.input_layouts) in.push_back(layout.spec);
    for (const OperandLayout& layout : call.output_layouts) out.push_back(layout.spec);
    call.cost = op_cost(*call.op, in, out, call.attrs);
    if (call.node >= 0) written_[static_cast<size_t>(call.node)] = position() + 1;
    plan_.calls.push_back(std::move(call));
    // A group is prepared as a whole, when it is known.
    if (plan_.calls.back().group < 0) prepare(plan_.calls.size() - 1);
  }

  void prepare(size_t s) {
    const Kernel* const kernel = kernels_->launch(plan_.calls, s).kernel.get();
    if (!kernel) return;
    plan_.calls[s].workspace_bytes = kernel->workspace_bytes();
    record_in_place(*kernel, static_cast<int>(s));
  }

  void record_in_place(const Kernel& kernel, int position) {
    const KernelCall& call = plan_.calls[static_cast<size_t>(position)];
    if (numerics_checked()) return;  // what went in is part of the report
    if (call.group >= 0) return;     // another of the group may read it meanwhile
    for (size_t o = 0; o < call.outputs.size(); ++o)
      for (size_t i = 0; i < call.inputs.size(); ++i)
        if (kernel.in_place(static_cast<int>(i), static_cast<int>(o)))
          in_place_.push_back({position, static_cast<int>(i), static_cast<int>(o)});
  }

  // --- memory ----------------------------------------------------------------------------------------------

  void extend_to_readers() {
    for (size_t s = 0; s < plan_.calls.size(); ++s) {
      for (const Operand& o : plan_.calls[s].inputs) arenas_.used_at(o, static_cast<int>(s));
      for (const Operand& o : plan_.calls[s].outputs) arenas_.used_at(o, static_cast<int>(s));
    }
    // The sums of a phase run together in front of its first call: what they read must not be reused
    // by that call, nor by each other.
    for (size_t c = 0; c < plan_.collectives.size(); ++c) {
      const Collective& sum = plan_.collectives[c];
      arenas_.used_at(sum.input, collective_positions_[c]);
      if (sum.condition) arenas_.used_at(*sum.condition, collective_positions_[c]);
    }
  }

  struct InPlace {
    int call, input, output;
  };

  void overwrite_inputs() {
    for (const InPlace& chance : in_place_) {
      const KernelCall& call = plan_.calls[static_cast<size_t>(chance.call)];
      arenas_.may_overwrite(chance.call, call, call.inputs[static_cast<size_t>(chance.input)],
                            call.outputs[static_cast<size_t>(chance.output)]);
    }
  }

  // The calls of a group run at the same time.
  void join_groups() {
    std::vector<KernelCall>& calls = plan_.calls;
    for (size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
      const int group = calls[begin].group;
      for (end = begin + 1; group >= 0 && end < calls.size() && calls[end].group == group;) ++end;
      if (end - begin < 2) {
        if (std::exchange(calls[begin].group, -1) >= 0) prepare(begin);
        continue;
      }
      const int from = static_cast<int>(begin), to = static_cast<int>(end);
      arenas_.run_together(from, to);
      for (Collective& collective : plan_.collectives)
        if (collective.ready > from && collective.ready < to) collective.ready = to;
      for (size_t s = begin; s < end; s += kernels_->launch(calls, s).calls) prepare(s);
    }
  }

  const Graph& graph_;
  const Placement& placement_;
  const PlanOptions& options_;
  Plan plan_;
  std::shared_ptr<KernelSet> kernels_;  // of the plan
  std::vector<int> group_;              // by node; -1: none
  std::vector<std::string> layers_;     // by node
  std::vector<std::vector<Home>> homes_;
  std::vector<Value> result_values_;
  ArenaLayout arenas_;
  std::vector<InPlace> in_place_;
  std::vector<int> collective_positions_;
  std::vector<int> written_;  // by node: calls after which its values are there
};

}  // namespace

Plan lower(const Graph& graph, const Placement& placement, const PlanOptions& options,
           const std::vector<std::vector<int>>& groups, const std::vector<int>& order) {
  return Lowering(graph, placement, options, groups).run(order);
}

}  // namespace lockstep::compile
