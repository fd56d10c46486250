#include "keras/training/run_state.h"

#include "comm/connection.h"
#include "comm/workers.h"
#include "graph/tensor_bytes.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

using comm::MessageReader;
using comm::MessageWriter;

void put(MessageWriter& message, const Tensor& tensor) {
  message.put(static_cast<int32_t>(tensor.dtype())).put(int32_t{tensor.rank()});
  for (int i = 0; i < tensor.rank(); ++i) message.put(tensor.shape()[i]);
  message.put_text(bytes_of(tensor));
}

Tensor take_tensor(MessageReader& message) {
  const auto dtype = static_cast<DType>(message.get<int32_t>());
  Shape shape;
  for (auto rank = message.get<int32_t>(); rank > 0; --rank) shape.push_back(message.get<int64_t>());
  return tensor_of({dtype, shape}, message.get_text());
}

void put(MessageWriter& message, const train::NamedTensors& tensors) {
  message.put(static_cast<int32_t>(tensors.size()));
  for (const auto& [name, tensor] : tensors) {
    message.put_text(name);
    put(message, tensor);
  }
}

train::NamedTensors take_tensors(MessageReader& message) {
  train::NamedTensors tensors;
  for (auto count = message.get<int32_t>(); count > 0; --count) {
    std::string name = message.get_text();
    tensors.emplace_back(std::move(name), take_tensor(message));
  }
  return tensors;
}

void put(MessageWriter& message, const Standing& at) {
  message.put(at.begun).put(int32_t{at.epoch}).put(at.stage).put(at.batch);
}
Standing take_standing(MessageReader& message) {
  Standing at;
  at.begun = message.get<bool>();
  at.epoch = message.get<int32_t>();
  at.stage = message.get<Standing::Stage>();
  at.batch = message.get<int64_t>();
  return at;
}

}  // namespace

std::vector<Place> gather_places(comm::Workers& workers, const Place& own) {
  MessageWriter part;
  part.put(own.has_state).put(own.done).put(own.stop).put(int32_t{own.signal}).put(int32_t{own.fit});
  put(part, own.standing);
  std::vector<Place> places;
  for (const std::string& one : workers.gather("where the run stands", part.take())) {
    MessageReader reader(one);
    Place& place = places.emplace_back();
    place.has_state = reader.get<bool>();
    place.done = reader.get<bool>();
    place.stop = reader.get<bool>();
    place.signal = reader.get<int32_t>();
    place.fit = reader.get<int32_t>();
    place.standing = take_standing(reader);
  }
  return places;
}

void PastFits::add(int fit, const History& history) {
  train::NamedTensors values;
  for (const auto& [name, each] : history.history)
    values.emplace_back(name, Tensor::from(each, {static_cast<int64_t>(each.size())}));
  MessageWriter message;
  message.put(history.interrupted).put(int32_t{history.signal});
  put(message, Tensor::from(history.epoch, {static_cast<int64_t>(history.epoch.size())}));
  put(message, values);
  bytes_ += MessageWriter().put(int32_t{fit}).put_text(message.take()).take();
}

std::optional<History> PastFits::find(int fit) const {
  for (MessageReader all(bytes_); !all.ended();) {
    const auto number = all.get<int32_t>();
    const std::string one = all.get_text();
    if (number != fit) continue;
    MessageReader message(one);
    History history;
    history.interrupted = message.get<bool>();
    history.signal = message.get<int32_t>();
    history.epoch = take_tensor(message).to_vector<int>();
    for (const auto& [name, values] : take_tensors(message))
      history.history.emplace_back(name, values.to_vector<double>());
    return history;
  }
  return std::nullopt;
}

std::string pack(const train::NamedTensors& tensors) {
  MessageWriter message;
  put(message, tensors);
  return message.take();
}

train::NamedTensors unpack_tensors(const std::string& bytes) {
  MessageReader message(bytes);
  return take_tensors(message);
}

std::string pack(const RunState& state, const Trainer& trainer) {
  MessageWriter message;
  const Standing& at = state.standing;
  put(message, at);
  message.put(static_cast<int32_t>(at.logs.entries().size()));
  for (const auto& [name, value] : at.logs) message.put_text(name).put(value);
  const Trainer::Progress& progress = state.progress;
  message.put(int32_t{progress.epoch}).put(progress.batch).put(progress.random);
  message.put(progress.stream.random).put(progress.stream.taken);
  put(message, {progress.stream.iterator.begin(), progress.stream.iterator.end()});
  train::NamedTensors metrics;
  for (const Tensor& value : progress.metrics) metrics.emplace_back("", value);
  put(message, metrics);
  put(message, state.callbacks);
  train::NamedTensors values;
  for (const Variable& variable : trainer.variables()) values.emplace_back(variable.name(), variable.value());
  put(message, values);
  return message.take();
}

RunState unpack(const std::string& bytes, Trainer& trainer) {
  MessageReader message(bytes);
  RunState state;
  Standing& at = state.standing;
  at = take_standing(message);
  for (auto count = message.get<int32_t>(); count > 0; --count) {
    const std::string name = message.get_text();
    at.logs.set(name, message.get<double>());
  }
  Trainer::Progress& progress = state.progress;
  progress.epoch = message.get<int32_t>();
  progress.batch = message.get<int64_t>();
  progress.random = message.get<int64_t>();
  progress.stream.random = message.get<int64_t>();
  progress.stream.taken = message.get<int64_t>();
  for (auto& [name, value] : take_tensors(message)) progress.stream.iterator.emplace(name, value);
  for (auto& [name, value] : take_tensors(message)) progress.metrics.push_back(value);
  state.callbacks = take_tensors(message);
  const train::NamedTensors values = take_tensors(message);
  const std::vector<Variable> variables = trainer.variables();
  require(values.size() == variables.size(), ErrorCode::failed_precondition, std::source_location::current(),
          "the run that this worker joins has ", values.size(), " variables (weights and the optimizer's), ",
          variables.size(), " are here: its program is another");
  for (size_t i = 0; i < values.size(); ++i)
    require(values[i].second.spec() == TensorSpec{variables[i].dtype(), variables[i].shape()},
            ErrorCode::failed_precondition, std::source_location::current(),
            "the run that this worker joins has ", values[i].first, " ", values[i].second.spec(),
            " where this one has ", variables[i].name(), " ",
            TensorSpec{variables[i].dtype(), variables[i].shape()}, ": its program is another");
  for (size_t i = 0; i < values.size(); ++i)
    variables[i].assign(values[i].second.to(variables[i].value().device()));
  return state;
}

}  // namespace lockstep::keras
