#include "backends/cpu/dnnl_sequence.h"

#include <algorithm>
#include <optional>

#include "base/parallel.h"

namespace lockstep::cpu {
namespace {

dnnl_stream_t thread_stream() {
  thread_local dnnl::stream stream(dnnl_engine());
  return stream.get();
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

const dnnl::engine& dnnl_engine() {
  static const auto* engine = [] {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

dnnl::memory::data_type dnnl_type(DType dtype, std::source_location where) {
  switch (dtype) {
    case DType::float32: return dnnl::memory::data_type::f32;
    case DType::bfloat16: return dnnl::memory::data_type::bf16;
    case DType::int32: return dnnl::memory::data_type::s32;
    case DType::uint8: return dnnl::memory::data_type::u8;
    default: fail(ErrorCode::internal, where, "oneDNN holds no elements of ", dtype);
  }
}

dnnl::memory::desc dnnl_desc(const OperandLayout& layout, std::source_location where) {
  const Shape& shape = layout.spec.shape;
  return {dnnl::memory::dims(shape.begin(), shape.end()), dnnl_type(layout.spec.dtype, where),
          dnnl::memory::dims(layout.strides.begin(), layout.strides.end())};
}

dnnl::primitive_attr dnnl_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

DnnlSequence::Slot DnnlSequence::temporary(const dnnl::memory::desc& desc) {
  const Slot slot{Slot::Kind::workspace, 0, temporaries_};
  temporaries_ += aligned(desc.get_size());
  return slot;
}

void DnnlSequence::add(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                       const std::vector<Argument>& arguments) {
  PrimitiveCall call{primitive, arguments_.size(), 0};
  const auto bind = [&](const Argument& argument, bool is_scratchpad) {
    bindings_.push_back(
        {dnnl::memory(argument.desc, dnnl_engine(), DNNL_MEMORY_NONE), argument.slot, is_scratchpad});
    arguments_.push_back({argument.name, bindings_.back().memory.get()});
  };
  for (const Argument& argument : arguments) bind(argument, false);
  if (scratchpad.get_size() > 0) {
    bind({DNNL_ARG_SCRATCHPAD, scratchpad, {Slot::Kind::workspace, 0, 0}}, true);
    scratchpad_ = std::max(scratchpad_, aligned(scratchpad.get_size()));
  }
  call.argument_count = arguments_.size() - call.first_argument;
  calls_.push_back(std::move(call));
}

void DnnlSequence::add_reorder(const dnnl::memory::desc& from, Slot source, const dnnl::memory::desc& to,
                               Slot target) {
  const dnnl::reorder::primitive_desc reorder(dnnl_engine(), from, dnnl_engine(), to, dnnl_attributes());
  add(dnnl::reorder(reorder), reorder.scratchpad_desc(),
      {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}});
}

void DnnlSequence::launch(const LaunchArgs& args) const try {
  auto* workspace = static_cast<char*>(args.workspace);
  for (const Binding& binding : bindings_) {
    void* data = nullptr;
    switch (binding.slot.kind) {
      case Slot::Kind::input: data = args.inputs[binding.slot.index]; break;
      case Slot::Kind::output: data = args.outputs[binding.slot.index]; break;
      case Slot::Kind::workspace:
        data = workspace + (binding.scratchpad ? temporaries_ : binding.slot.offset);
        break;
    }
    binding.memory.set_data_handle(data);
  }
  std::optional<TeamScope> team;
  if (threads_ < team_size()) team.emplace(threads_);
  for (const PrimitiveCall& call : calls_) {
    const dnnl_status_t status =
        dnnl_primitive_execute(call.primitive.get(), thread_stream(), static_cast<int>(call.argument_count),
                               arguments_.data() + call.first_argument);
    require(status == dnnl_success,
            status == dnnl_out_of_memory ? ErrorCode::out_of_memory : ErrorCode::internal,
            std::source_location::current(), "oneDNN could not execute a primitive (status ",
            static_cast<int>(status), ")");
  }
} catch (const dnnl::error& error) {
  fail(error.status == dnnl_out_of_memory ? ErrorCode::out_of_memory : ErrorCode::internal,
       std::source_location::current(), "oneDNN: ", error.what());
}

}  // namespace lockstep::cpu
