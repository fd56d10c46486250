#include "observe/fixes.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::observe::fixes {
namespace {

bool by_tool(const RunSummary& run) { return run.setting.kind == RunKind::command_line; }
bool by_fit(const RunSummary& run) {
  return run.setting.kind == RunKind::arrays || run.setting.kind == RunKind::dataset;
}

std::string data_of(const RunSummary& run) {
  return run.setting.kind == RunKind::arrays ? "train" : "dataset";
}

// A size that nobody knows is a name of the program.
std::string number(int64_t batch) { return batch > 0 ? std::to_string(batch) : "batch_size"; }

std::string with_words(const RunSummary& run, const std::string& code, const std::string& words) {
  if (words.empty()) return code;
  return code + (by_tool(run) ? "  # " : "  // ") + words;
}

}  // namespace

std::string batch_size(const RunSummary& run, int64_t batch, const std::string& words) {
  if (by_tool(run))
    return with_words(run, fmt::format("lockstep train {} --batch-size {}", run.trained, batch), words);
  if (run.setting.kind == RunKind::arrays)
    return with_words(run, fmt::format("model.fit(train, {{.batch_size = {}}});", number(batch)), words);
  return with_words(
      run, fmt::format("dataset = dataset.rebatch({});", number(batch)),
      fmt::format("or .batch({}) where it is made{}{}", number(batch), words.empty() ? "" : "; ", words));
}

std::string input_ready_in_time(const RunSummary& run, int64_t batch) {
  if (by_tool(run)) return batch_size(run, 2 * batch, "fewer, larger batches to put together");
  if (run.setting.kind == RunKind::arrays)
    return fmt::format(
        "auto dataset = tf::data::Dataset::from_tensor_slices({{x, y}}).shuffle(10000).batch({})"
        ".prefetch(tf::data::AUTOTUNE);",
        number(batch));
  return "dataset = dataset.prefetch(tf::data::AUTOTUNE);  // and {.num_parallel_calls = tf::data::AUTOTUNE} "
         "in "
         "its map()";
}

std::string fewer_bytes(const RunSummary& summary) {
  const bool rounded = summary.sums.find("sent as bfloat16") != std::string::npos;
  if (!summary.workers.empty() && !rounded && !by_tool(summary))
    return "tf::distribute::MultiWorkerMirroredStrategy strategy({.communication = {.compression = "
           "tf::distribute::Compression::bf16}});";
  return {};
}

std::string work_beside_steps(const RunSummary& run) {
  if (by_tool(run))
    return fmt::format("lockstep train {}  # without --step-log, which is written after every step",
                       run.trained);
  if (by_fit(run))
    return fmt::format(
        "model.fit({}, {{.callbacks = {{}}}});  // on_epoch_end() in place of on_train_batch_end() in "
        "callbacks",
        data_of(run));
  return "dataset = dataset.map(prepare, {.num_parallel_calls = tf::data::AUTOTUNE})"
         ".prefetch(tf::data::AUTOTUNE);  // what makes a batch; the rest every 100 steps";
}

std::string shares(const RunSummary& summary, const std::vector<double>& weights) {
  if (!summary.workers.empty())
    return "lockstep doctor  # on its machine: what it computes with, and what else runs there";
  if (by_tool(summary)) return "lockstep doctor  # what each device computes with, and what else runs there";
  std::string list;
  for (const double weight : weights) list += fmt::format("{}{:.2f}", list.empty() ? "" : ", ", weight);
  return fmt::format("tf::distribute::MirroredStrategy strategy({{}}, {{.weights = {{{}}}}});", list);
}

std::string whole_batches(const RunSummary& run, int64_t batch) {
  if (by_tool(run) || run.setting.kind == RunKind::arrays) return batch_size(run, batch);
  return fmt::format("dataset = dataset.rebatch({}, true);  // drops the batch that is left over",
                     number(batch));
}

std::string one_shape(const RunSummary& run, int64_t batch) {
  if (by_tool(run)) return batch_size(run, batch, "one shape for all batches");
  if (run.setting.kind == RunKind::arrays) return batch_size(run, batch, "one shape for all batches");
  const std::string shapes =
      fmt::format("dataset = dataset.unbatch().padded_batch({}, {{.drop_remainder = true}});", number(batch));
  if (run.setting.kind == RunKind::dataset) return shapes + "  // one shape for all batches";
  return shapes + "  // one shape for all; what changes from call to call is a tensor: tf::constant(rate)";
}

std::string values_on_device(const RunSummary& run) {
  if (by_tool(run))
    return fmt::format("lockstep train {}  # without --step-log, which reads the loss of every step",
                       run.trained);
  if (by_fit(run))
    return "model.compile({.optimizer = \"adam\", .loss = \"mse\", .steps_per_execution = 32});  // "
           "callbacks "
           "hear of 32 batches at a time";
  return "const auto mean = tf::keras::metrics::Mean(); mean.update_state(loss);  // on the device; "
         "mean.result() every 100 steps";
}

std::string data_on_device(const RunSummary& run) {
  if (by_tool(run))
    return fmt::format("lockstep train {} --profile  # which kernels and copies take the time", run.trained);
  if (run.setting.kind == RunKind::arrays)
    return "const auto scope = tf::device(\"/CPU:0\");  // one device around the layers that exchange most";
  return "dataset = dataset.prefetch_to_device(tf::current_device());";
}

std::string threads(const RunSummary& run, size_t replicas) {
  const int each = std::max(1, run.setting.cores / static_cast<int>(std::max<size_t>(1, replicas)));
  if (replicas > static_cast<size_t>(run.setting.cores)) {
    if (by_tool(run))
      return fmt::format("lockstep train {} --devices {} --threads 1", run.trained, run.setting.cores);
    return fmt::format("tf::set_logical_cpus({{.count = {}, .threads = 1}});  // before the first tensor",
                       run.setting.cores);
  }
  if (by_tool(run)) return fmt::format("lockstep train {} --threads {}", run.trained, each);
  return fmt::format(
      "tf::config::threading::set_intra_op_parallelism_threads({});  // before the first tensor", each);
}

std::string no_checks(const RunSummary&) { return "tf::debugging::disable_check_numerics();"; }

std::string trace(const RunSummary& run) {
  if (by_tool(run)) return fmt::format("lockstep train {} --trace steps.json", run.trained);
  const std::string end =
      "tf::observe::write_trace(tf::observe::take_trace(), \"steps.json\");  // open at "
      "https://ui.perfetto.dev";
  if (by_fit(run)) return fmt::format("tf::observe::start_tracing(); model.fit({}); {}", data_of(run), end);
  return "tf::observe::start_tracing(); for (int i = 0; i < 20; ++i) step(x); " + end;
}

std::string free_results(const RunSummary& run) {
  if (by_tool(run))
    return fmt::format("lockstep train {} --epochs 2  # and again with the report on its memory",
                       run.trained);
  if (by_fit(run))
    return fmt::format(
        "model.fit({}, {{.callbacks = {{}}}});  // a callback that keeps tensors keeps their memory: numbers "
        "do not",
        data_of(run));
  return "double total = 0; total += loss.item<float>();  // what a step returns is kept by whoever holds it";
}

std::string less_memory(const RunSummary& run, int64_t batch) {
  return batch_size(run, std::max<int64_t>(1, batch / 2), "half of the activations");
}

std::string share_examples(const RunSummary& summary) {
  if (summary.setting.kind == RunKind::strategy && summary.workers.empty())
    return "for (const auto& batch : strategy.distribute_dataset(dataset)) strategy.run(step, batch[0]);  // "
           "each replica has its slice";
  return "dataset = dataset.with_options({.auto_shard = tf::data::AutoShardPolicy::data});  // or "
         "dataset.shard(workers, worker)";
}

std::string gpu_in_place_of_cpu(const RunSummary& summary) {
  const bool soft = summary.on_cpu.find("soft placement") != std::string::npos;
  if (soft && !by_tool(summary))
    return "tf::config::set_soft_device_placement(false);  // an error in place of the CPU; lockstep doctor "
           "says what keeps the GPU from being used";
  return "lockstep doctor  # what keeps the GPU from being used";
}

}  // namespace lockstep::observe::fixes
