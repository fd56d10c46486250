#include <algorithm>

#include "comm/workers.h"
#include "distribute/strategy_impl.h"
#include "execute/replicated_runs.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/array.h"
#include "observe/loop.h"

namespace lockstep::distribute {

void Strategy::add(std::vector<Argument>& arguments, const Distributed& value) const {
  const std::source_location here = std::source_location::current();
  if (value.whole().defined()) {
    arguments.push_back({value.whole(), kind() != Kind::none, value.worker_rows()});
    return;
  }
  const TensorList parts = value.local_results();
  require(!parts.empty(), ErrorCode::invalid_argument, here, "run: a distributed argument has no value");
  require(
      parts.size() == static_cast<size_t>(value.replicas()) || parts.size() == 1, ErrorCode::invalid_argument,
      here,
      "run: a distributed argument must have a value for every replica; distribute() cuts a batch as run() "
      "wants it");
  // Values that are not rows of one tensor become the rows of one.
  arguments.push_back({parts.size() == 1 ? parts[0] : concat(parts, 0), kind() != Kind::none, {}});
}

void Strategy::add(std::vector<Argument>& arguments, const RunArgument& argument) const {
  if (const auto* tensor = std::get_if<Tensor>(&argument.value())) {
    add(arguments, *tensor);
  } else if (const auto* value = std::get_if<const Distributed*>(&argument.value())) {
    add(arguments, **value);
  } else if (const auto* element = std::get_if<const DistributedElement*>(&argument.value())) {
    add(arguments, **element);
  } else if (const auto* given = std::get_if<const data::Element*>(&argument.value())) {
    const data::Element& batch = **given;
    require(num_replicas_in_sync() == 1, ErrorCode::invalid_argument, std::source_location::current(),
            "run: a batch of ", batch.spec(),
            " is not distributed, so that no replica has a slice of it; "
            "distribute() it, or go over  strategy.distribute_dataset(dataset)");
    for (const Tensor& tensor : batch.flat()) add(arguments, tensor);
  }
}

std::vector<Distributed> Strategy::run_body(const Body& body, const std::vector<Argument>& arguments) const {
  const std::source_location here = std::source_location::current();
  TensorList inputs;
  std::vector<bool> split;
  std::vector<int64_t> worker_rows;
  for (const Argument& argument : arguments) {
    require(argument.value.defined(), ErrorCode::invalid_argument, here, "run: an argument is none");
    inputs.push_back(argument.value);
    split.push_back(argument.split);
    if (worker_rows.empty()) worker_rows = argument.worker_rows;
  }
  require(
      !impl_->workers || !impl_->workers->newcomer(), ErrorCode::unsupported, here,
      "run: this worker was started while the run is under way; a loop by hand that others may join calls "
      "strategy.admit() before its steps, as fit does by itself");
  std::vector<Distributed> results;
  if (kind() == Kind::none) {
    for (const Tensor& value : body(inputs)) results.push_back(Distributed::same(value, 1));
    return results;
  }
  ++impl_->runs_made;
  // Without a batch every replica does the same: a row for each.
  if (std::none_of(split.begin(), split.end(), [](bool s) { return s; })) {
    impl_->undistributed +=
        std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.rank() > 0; });
    const Distributed all = distribute(range(num_replicas_in_sync(), DType::int64), here);
    inputs.push_back(all.whole());
    split.push_back(true);
    worker_rows = all.worker_rows();
  }
  observe::Loop& loop = impl_->running(*this);
  observe::StepClock& clock = loop.clock();
  observe::TimedStep step(&clock);
  execute::ReplicatedRuns::Result run;
  {
    const observe::TimeScopeOfAll scope(clock, observe::Category::host);
    run = impl_->runs->run(
        name() + "::run", [&](std::span<const Tensor> in) { return body(in.first(arguments.size())); },
        inputs, split, worker_rows, &clock,
        [&](const std::vector<Variable>& variables) {
          require_own(variables, "run", here);
          share_new_values(variables);
        },
        here);
  }
  step.made();
  loop.look();
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : run.slices) sizes.push_back(slice.size);
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const Tensor& output = run.outputs[i];
    switch (run.spreads[i]) {
      case execute::ReplicatedRuns::Spread::same:
        results.push_back(Distributed::same(output, static_cast<int>(sizes.size())));
        break;
      case execute::ReplicatedRuns::Spread::rows:
        results.push_back(Distributed::rows(output, sizes, worker_rows));
        break;
      case execute::ReplicatedRuns::Spread::blocks: {
        TensorList values;
        for (size_t r = 0; r < sizes.size(); ++r) {
          Dims begin = Dims::filled(output.rank(), 0), size = Dims::filled(output.rank(), -1);
          begin[0] = static_cast<int64_t>(r);
          size[0] = 1;
          values.push_back(sizes[r] > 0 ? squeeze(slice(output, begin, size), {0}) : Tensor());
        }
        results.push_back(Distributed::of(std::move(values)));
        break;
      }
    }
  }
  return results;
}

void Strategy::note_same_examples(int workers) const { impl_->workers_alike = workers; }

std::vector<Distributed> Strategy::run_tensors(const Body& f, std::span<const RunArgument> arguments,
                                               std::source_location where) const {
  const CallSite site(where);
  std::vector<Argument> tensors;
  for (const RunArgument& argument : arguments) add(tensors, argument);
  return run_body(f, tensors);
}

observe::RunSummary Strategy::summary() const {
  return impl_->loop ? impl_->loop->summary() : observe::RunSummary();
}

}  // namespace lockstep::distribute
