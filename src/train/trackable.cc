// What a checkpoint can hold beside objects that say so of themselves.
#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::train {
namespace {

class TrackedVariables final : public TrackedObject {
 public:
  TrackedVariables(std::string kind, NamedVariables variables)
      : kind_(std::move(kind)), variables_(std::move(variables)) {}
  std::string kind() const override { return kind_; }
  NamedVariables variables() const override { return variables_; }

 private:
  std::string kind_;
  NamedVariables variables_;
};

class TrackedIterator final : public TrackedObject {
 public:
  explicit TrackedIterator(data::Iterator& iterator) : iterator_(iterator) {}
  std::string kind() const override { return "Iterator"; }
  bool has_state() const override { return true; }
  NamedTensors save_state() const override {
    const data::IteratorState state = iterator_.save();
    return {state.begin(), state.end()};
  }
  void restore_state(const NamedTensors& state) override {
    iterator_.restore(data::IteratorState(state.begin(), state.end()));
  }

 private:
  data::Iterator& iterator_;
};

class TrackedCounter final : public TrackedObject {
 public:
  explicit TrackedCounter(int64_t& counter) : counter_(counter) {}
  std::string kind() const override { return "int64"; }
  bool has_state() const override { return true; }
  NamedTensors save_state() const override { return {{"", Tensor::scalar(counter_)}}; }
  void restore_state(const NamedTensors& state) override {
    require(
        state.size() == 1 && state[0].first.empty() && state[0].second.spec() == TensorSpec{DType::int64, {}},
        ErrorCode::invalid_argument, std::source_location::current(),
        "a counter is one int64, the checkpoint has ",
        state.size() == 1 ? detail::concat(state[0].second.spec())
                          : detail::concat(state.size(), " tensors"));
    counter_ = state[0].second.item<int64_t>();
  }

 private:
  int64_t& counter_;
};

NamedVariables numbered(const std::vector<Variable>& variables) {
  NamedVariables named;
  for (size_t i = 0; i < variables.size(); ++i) named.emplace_back(std::to_string(i), variables[i]);
  return named;
}

}  // namespace

Trackable::Trackable(const Variable& variable, std::source_location where)
    : object_((void(variable.id(where)),
               std::make_shared<TrackedVariables>("Variable", NamedVariables{{"", variable}}))) {}
Trackable::Trackable(const std::vector<Variable>& variables)
    : object_(std::make_shared<TrackedVariables>("list", numbered(variables))) {}
Trackable::Trackable(const random::Generator& generator)
    : object_(std::make_shared<TrackedVariables>("Generator", NamedVariables{{"state", generator.state()}})) {
}
Trackable::Trackable(data::Iterator& iterator) : object_(std::make_shared<TrackedIterator>(iterator)) {}
Trackable::Trackable(int64_t& counter) : object_(std::make_shared<TrackedCounter>(counter)) {}

}  // namespace lockstep::train
