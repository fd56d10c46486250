#include "keras/training/non_finite.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "data/host.h"
#include "keras/layer_outputs.h"
#include "keras/training/stream.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"

namespace lockstep::keras {
namespace {

template <class T>
std::optional<BadElement> search(const Tensor& flat, const Shape& shape) {
  int64_t first = -1, count = 0, place = 0;
  double value = 0;
  for (const T element : flat.data<T>()) {
    const double x = static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(element);
    if (!std::isfinite(x) && count++ == 0) first = place, value = x;
    ++place;
  }
  if (count == 0) return std::nullopt;
  BadElement found{Dims::filled(shape.rank(), 0), value, count};
  for (int d = shape.rank() - 1; d >= 0; --d) {
    found.index[d] = first % shape[d];
    first /= shape[d];
  }
  return found;
}

// A NaN has a sign that means nothing.
std::string number_text(double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); }

// "input "x" float32(60000, 28, 28): nan in example 300, element (14, 3); 1 of 47040000 is not finite".
// `whole`: the first dimension counts no examples.
std::string place_text(const std::string& what, const Tensor& tensor, const BadElement& found,
                       bool whole = false) {
  std::string element;
  for (int d = whole ? 0 : 1; d < found.index.rank(); ++d)
    element += fmt::format("{}{}", element.empty() ? "" : ", ", found.index[d]);
  std::string place;
  if (!whole && found.index.rank() > 0) place = fmt::format("example {}", found.index[0]);
  if (!element.empty()) place += fmt::format("{}element ({})", place.empty() ? "" : ", ", element);
  return fmt::format("{} {}: {}{}{}; {} of {} {} not finite", what, detail::concat(tensor.spec()),
                     found.value, place.empty() ? "" : " in ", place, found.count, tensor.size(),
                     found.count == 1 ? "is" : "are");
}

std::string name_of(const char* kind, const std::vector<std::string>& names, size_t i) {
  if (i < names.size()) return fmt::format("{} \"{}\"", kind, names[i]);
  return i == 0 ? kind : fmt::format("{} {}", kind, i);
}

// The first array of a batch that is not finite.
std::optional<std::string> find_in(const Batch& batch, const ModelBase& model) {
  std::vector<std::string> inputs, outputs;
  for (const KerasTensor& input : model.inputs()) inputs.push_back(input.name());
  if (!inputs.empty()) outputs = model.output_names(model.outputs().size());
  const auto look = [&](const TensorList& arrays, const char* kind,
                        const std::vector<std::string>& names) -> std::optional<std::string> {
    for (size_t i = 0; i < arrays.size(); ++i)
      if (const auto found = find_non_finite(arrays[i]))
        return place_text(name_of(kind, names, i), arrays[i], *found);
    return std::nullopt;
  };
  auto found = look(batch.x, "input", inputs);
  if (!found) found = look(batch.y, "labels", outputs);
  if (!found) found = look(batch.sample_weight, "sample weights", outputs);
  return found;
}

class KeptRandomState {
 public:
  KeptRandomState() : state_(random_state()) {}
  ~KeptRandomState() { set_random_state(state_); }
  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;

 private:
  int64_t state_;
};

std::optional<std::string> find_in_data(const NonFiniteLoss& loss) {
  if (const Batch* arrays = loss.data.arrays()) return find_in(*arrays, loss.model);
  if (const auto found = find_in(loss.last, loss.model))
    return fmt::format("{} (batch {})", *found, loss.taken);
  const KeptRandomState kept;
  const auto reader = loss.data.read({.batch_size = loss.batch_size});
  Batch batch;
  for (int64_t i = 1; i <= loss.taken && reader->next(batch); ++i)
    if (const auto found = find_in(batch, loss.model)) return fmt::format("{} (batch {})", *found, i);
  return std::nullopt;
}

std::optional<std::string> find_in_weights(const ModelBase& model) {
  for (const Variable& weight : model.weights())
    if (const auto found = find_non_finite(weight.value()))
      return place_text(fmt::format("weight \"{}\"", weight.name()), weight.value(), *found, true);
  return std::nullopt;
}

std::optional<std::string> find_in_layers(const NonFiniteLoss& loss) {
  if (!loss.can_run || loss.last.x.empty()) return std::nullopt;
  std::optional<std::string> first;
  const LayerOutputScope heard([&](const LayerBase& layer, const TensorList& outputs) {
    for (const Tensor& output : outputs)
      if (!first)
        if (const auto found = find_non_finite(output))
          first = place_text(fmt::format("the output of layer \"{}\"", layer.name()), output, *found) +
                  " (the last batch)";
  });
  loss.model.run(loss.last.x, {.training = false}, std::source_location::current());
  loss.model.forget_losses();
  return first;
}

}  // namespace

std::optional<BadElement> find_non_finite(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype()) || tensor.size() == 0) return std::nullopt;
  const Tensor flat = reshape(tensor.to(data::host_device()), {tensor.size()});
  switch (tensor.dtype()) {
    case DType::float64: return search<double>(flat, tensor.shape());
    case DType::bfloat16: return search<BFloat16>(flat, tensor.shape());
    case DType::float16: return search<Float16>(flat, tensor.shape());
    default: return search<float>(flat, tensor.shape());
  }
}

NonFiniteVerdict explain(const NonFiniteLoss& loss) {
  using Cause = NonFiniteVerdict::Cause;
  const std::string since =
      fmt::format("the loss is {} since step {} of this epoch", number_text(loss.loss), loss.step);
  const std::string then =
      "; callbacks::TerminateOnNaN() ends a run there, debugging::enable_check_numerics() before it names "
      "the "
      "op and the line that make the first such value";
  if (const auto found = find_in_data(loss))
    return {Cause::data, fmt::format("{}: the data is not finite. {}. Mend such examples or leave them out, "
                                     "and train again: the weights are lost{}",
                                     since, *found, then)};
  const std::string diverged =
      fmt::format("Lower the learning rate (now {:.3g}) or clip gradients (clipnorm)", loss.learning_rate);
  if (const auto found = find_in_weights(loss.model))
    return {Cause::weight, fmt::format("{}: the data is finite, training diverged. {}. {}{}", since, *found,
                                       diverged, then)};
  if (const auto found = find_in_layers(loss))
    return {Cause::layer,
            fmt::format("{}: the data and the weights are finite. {}. {}{}", since, *found, diverged, then)};
  return {Cause::loss,
          fmt::format("{}: the data and the weights are finite, so it is the loss itself, as of a "
                      "logarithm of 0 or of a step that overflowed. {}{}",
                      since, diverged, then)};
}

}  // namespace lockstep::keras
