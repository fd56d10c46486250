#include "keras/training/outputs.h"

#include <algorithm>
#include <map>

#include "graph/emit.h"
#include "keras/training/logits.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

template <class T>
const T* find_named(const std::map<std::string, T>& named, const std::string& name) {
  const auto found = named.find(name);
  return found == named.end() ? nullptr : &found->second;
}

template <class T>
void check_names(const std::map<std::string, T>& named, const std::vector<std::string>& outputs,
                 const char* argument) {
  for (const auto& [name, value] : named) {
    if (std::find(outputs.begin(), outputs.end(), name) != outputs.end()) continue;
    std::string known;
    for (const std::string& output : outputs) known += (known.empty() ? "\"" : ", \"") + output + "\"";
    fail(ErrorCode::invalid_argument, std::source_location::current(), "compile: ", argument,
         " names output \"", name, "\"; the model's outputs are ", known);
  }
}

// "[2]" of a vector, "[0][2]" of a matrix: where the i-th of a metric's values stands. Empty where there is
// but one.
std::string place_text(size_t i, const Shape& shape) {
  if (shape.size() == 1) return {};
  std::string text;
  auto rest = static_cast<int64_t>(i);
  for (int d = shape.rank() - 1; d >= 0; rest /= shape[d--])
    text.insert(0, "[" + std::to_string(rest % shape[d]) + "]");
  return text;
}

}  // namespace

size_t Outputs::losses() const {
  return static_cast<size_t>(std::count_if(outputs_.begin(), outputs_.end(),
                                           [](const Output& output) { return output.loss.defined(); }));
}

void Outputs::spread(const MetricsArg& metrics, std::vector<Metric> Output::*into,
                     const std::vector<std::string>& names, const char* what) {
  const std::source_location here = std::source_location::current();
  const auto& lists = metrics.lists();
  const size_t count = outputs_.size();
  check_names(metrics.named(), names, what);
  if (metrics.by_position()) {
    require(lists.size() == count, ErrorCode::invalid_argument, here, "compile: ", lists.size(), " lists of ",
            what, " for a model of ", count, " outputs");
    for (size_t i = 0; i < count; ++i) outputs_[i].*into = lists[i];
  } else if (!lists.empty()) {
    require(count == 1 || lists[0].empty() || lists[0].size() == count, ErrorCode::invalid_argument, here,
            "compile: a model of ", count, " outputs takes ", what,
            " as a map from output names, or one for each output");
    // As in Keras: one list for several outputs gives each output its own.
    for (size_t i = 0; i < lists[0].size(); ++i) (outputs_[count == 1 ? 0 : i].*into).push_back(lists[0][i]);
  }
  for (Output& output : outputs_)
    if (const auto* named = find_named(metrics.named(), output.name)) output.*into = *named;
}

void Outputs::resolve(size_t count, size_t labels) {
  const std::source_location here = std::source_location::current();
  if (!resolved_) {
    const std::vector<std::string> names = model_.output_names(count);
    const auto& loss = options_.loss;
    const auto& weights = options_.loss_weights;
    check_names(loss.named(), names, "loss");
    check_names(weights.named(), names, "loss_weights");
    require(loss.single() || loss.list().empty() || loss.list().size() == count, ErrorCode::invalid_argument,
            here, "compile: ", loss.list().size(), " losses for a model of ", count, " outputs");
    require(weights.list().empty() || weights.list().size() == count, ErrorCode::invalid_argument, here,
            "compile: ", weights.list().size(), " loss_weights for a model of ", count, " outputs");
    outputs_.clear();
    outputs_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      Output& output = outputs_[i];
      output.name = names[i];
      if (!loss.list().empty()) output.loss = loss.list()[loss.single() ? 0 : i];
      if (const Loss* named = find_named(loss.named(), output.name)) output.loss = *named;
      if (!weights.list().empty()) output.weight = weights.list()[i];
      if (const double* named = find_named(weights.named(), output.name)) output.weight = *named;
      if (output.loss.defined()) warn_of_mistaken_logits(model_, i, output.loss);
    }
    if (losses() > 1) {
      const TracePause outside;
      for (Output& output : outputs_)
        if (output.loss.defined()) output.loss_mean.emplace();
    }
    spread(options_.metrics, &Output::metrics, names, "metrics");
    spread(options_.weighted_metrics, &Output::weighted_metrics, names, "weighted_metrics");
    resolved_ = true;
  }
  require(labels == 0 || labels == count || labels == losses(), ErrorCode::invalid_argument, here,
          "the data has ", labels, " labels, model \"", model_.name(), "\" has ", count, " outputs");
}

const Tensor& Outputs::label(const TensorList& y, size_t i, size_t with_loss, size_t outputs) {
  static const Tensor none;
  const size_t at = y.size() == outputs ? i : with_loss;
  return at < y.size() ? y[at] : none;
}

Tensor Outputs::total_loss(const TensorList& y, const TensorList& predictions, const TensorList& weights) {
  const std::source_location here = std::source_location::current();
  Tensor total;
  const auto add = [&](const Tensor& part) { total = total.defined() ? total + part : part; };
  size_t with_loss = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (!output.loss.defined()) continue;
    const Tensor& target = label(y, i, with_loss++, outputs_.size());
    if (y.empty()) continue;
    require(target.defined(), ErrorCode::invalid_argument, here, "output \"", output.name, "\" of model \"",
            model_.name(), "\" has a loss, but the data has no label for it");
    const Tensor loss = output.loss(target, predictions[i], i < weights.size() ? weights[i] : Tensor());
    if (output.loss_mean) {
      output.loss_mean->make(value_dtype(loss.dtype()));
      fill_restored();
      output.loss_mean->add(all_reduce_sum(loss), global_batch_size(predictions[i]));
    }
    add(output.weight == 1 ? loss : loss * output.weight);
  }
  for (const Tensor& loss : model_.losses()) add(cast(loss, total.defined() ? total.dtype() : loss.dtype()));
  require(total.defined(), ErrorCode::failed_precondition, here, "model \"", model_.name(),
          "\": there is nothing to minimise: ",
          losses() > 0 ? "the data has no labels (y)" : "compile() got no loss and no layer added one");
  return total;
}

void Outputs::update_metrics(const Tensor& loss, const TensorList& y, const TensorList& predictions,
                             const TensorList& weights) {
  loss_mean_.add(loss, global_batch_size(predictions[0]));
  finite_steps_.assign_add(cast(is_finite(loss_mean_.total()), DType::float32));
  size_t with_loss = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const Tensor& target = label(y, i, with_loss, outputs_.size());
    if (output.loss.defined()) ++with_loss;
    if (!target.defined()) continue;
    const Tensor weight = i < weights.size() ? weights[i] : Tensor();
    const auto update = [&](const Metric& metric, const Tensor& by) {
      if (!restored_.empty() && !metric.base()->takes_values()) {
        metric.base()->ensure_built(target, predictions[i]);
        fill_restored();
      }
      metric.update_state(target, predictions[i], by);
    };
    for (const Metric& metric : output.metrics) update(metric, {});
    for (const Metric& metric : output.weighted_metrics) update(metric, weight);
  }
  if (restored_.empty()) return;
  require(filled_ == restored_.size() && variables().size() == filled_, ErrorCode::invalid_argument,
          std::source_location::current(), "the backup has ", restored_.size(),
          " variables of metrics, this run ", variables().size());
  restored_.clear();
}

TensorList Outputs::values() const {
  if (!restored_.empty()) return restored_;
  TensorList all;
  for (const Variable& variable : variables()) all.push_back(variable.value());
  return all;
}

void Outputs::restore(const TensorList& values) {
  restored_ = values;
  filled_ = 0;
  if (!values.empty()) loss_mean_.make(values[0].dtype());
  fill_restored();
  if (filled_ == restored_.size() && variables().size() == filled_) restored_.clear();
}

// Variables are made in the order in which they are listed. A step that is being traced finds what is
// assigned here when it runs; one that runs op by op finds it at once.
void Outputs::fill_restored() {
  if (restored_.empty()) return;
  const TracePause outside;
  const std::vector<Variable> made = variables();
  for (; filled_ < std::min(made.size(), restored_.size()); ++filled_)
    made[filled_].assign(restored_[filled_]);
}

std::vector<Metric> Outputs::metrics() const {
  std::vector<Metric> all;
  for (const Output& output : outputs_) {
    all.insert(all.end(), output.metrics.begin(), output.metrics.end());
    all.insert(all.end(), output.weighted_metrics.begin(), output.weighted_metrics.end());
  }
  return all;
}

std::vector<Variable> Outputs::variables() const {
  std::vector<Variable> all = loss_mean_.variables();
  all.push_back(finite_steps_);
  const auto add = [&](const std::vector<Variable>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const Output& output : outputs_)
    if (output.loss_mean) add(output.loss_mean->variables());
  for (const Metric& metric : metrics()) add(metric.variables());
  return all;
}

Logs Outputs::results() const {
  last_read_ = loss_mean_.result();
  std::vector<Logs::Entry> entries = {{"loss", last_read_}};
  std::map<std::string, int> uses;
  const auto add = [&](const std::string& name, const Metric& metric) {
    const int earlier = uses[name]++;
    if (metric.variables().empty()) return;
    const Tensor result = metric.result();
    const std::string key = earlier == 0 ? name : name + "_" + std::to_string(earlier);
    const std::vector<double> values = cast(result, DType::float64).to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      entries.emplace_back(key + place_text(i, result.shape()), values[i]);
  };
  const auto prefix = [&](const Output& output) { return outputs_.size() > 1 ? output.name + "_" : ""; };
  for (const Output& output : outputs_) {
    if (output.loss_mean) entries.emplace_back(output.name + "_loss", output.loss_mean->result());
    for (const Metric& metric : output.metrics) add(prefix(output) + metric.name(), metric);
  }
  // A weighted metric only says so where its plain twin is there too.
  for (const Output& output : outputs_)
    for (const Metric& metric : output.weighted_metrics) {
      const bool twin = uses.contains(prefix(output) + metric.name());
      add(prefix(output) + (twin ? "weighted_" : "") + metric.name(), metric);
    }
  // The values of one metric stay in their order: "[10]" stands behind "[9]".
  std::stable_sort(entries.begin(), entries.end(), [](const Logs::Entry& a, const Logs::Entry& b) {
    return a.first.substr(0, a.first.find('[')) < b.first.substr(0, b.first.find('['));
  });
  Logs logs;
  for (const auto& [name, value] : entries) logs.set(name, value);
  return logs;
}

int64_t Outputs::finite_steps() const { return static_cast<int64_t>(finite_steps_.value().item<float>()); }

void Outputs::reset() {
  restored_.clear();
  loss_mean_.reset();
  finite_steps_.assign(Tensor::scalar(0.0F));
  last_read_ = 0;
  for (const Output& output : outputs_)
    if (output.loss_mean) output.loss_mean->reset();
  for (const Metric& metric : metrics()) metric.reset_state();
}

}  // namespace lockstep::keras
