// What checkpoints hold of layers, models and optimizers.
#include <algorithm>
#include <set>

#include "keras/optimizers/core.h"
#include "keras/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layer.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::keras {
namespace {

// What a numbered name was made from: the class name for "dense" and "dense_7" of a Dense, "forward_lstm" for
// "forward_lstm_2", which Bidirectional names after the LSTM it was given. Else the whole name.
std::string chosen_part(const LayerBase& layer) {
  const std::string& name = layer.name();
  for (const char* prefix : {"", "forward_", "backward_"}) {
    const std::string base = prefix + to_snake_case(layer.class_name());
    if (!name.starts_with(base)) continue;
    const std::string_view rest = std::string_view(name).substr(base.size());
    const bool numbered =
        rest.size() > 1 && rest[0] == '_' &&
        std::all_of(rest.begin() + 1, rest.end(), [](char c) { return '0' <= c && c <= '9'; });
    if (rest.empty() || numbered) return base;
  }
  return name;
}

// Names that do not depend on what else the program made: repeated ones are numbered as they come.
class LocalNames {
 public:
  std::string next(const std::string& name) {
    std::string candidate = name;
    for (int i = 1; !used_.insert(candidate).second; ++i) candidate = name + "_" + std::to_string(i);
    return candidate;
  }

 private:
  std::set<std::string> used_;
};

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class TrackedLayer final : public train::TrackedObject {
 public:
  explicit TrackedLayer(Layer layer) : layer_(std::move(layer)) {}

  std::string kind() const override { return layer_.class_name(); }

  train::NamedVariables variables() const override {
    train::NamedVariables named;
    std::set<uint64_t> seen;
    visit([&](const LayerBase& layer, const std::string& prefix) {
      LocalNames names;
      const auto add = [&](const Variable& variable, const std::string& name) {
        const std::string key = prefix + names.next(name);
        if (seen.insert(variable.id()).second) named.emplace_back(key, variable);
      };
      for (const Variable& weight : layer.own_weights()) add(weight, last_part(weight.name()));
      for (const Variable& state : layer.own_state()) {
        const std::string name = last_part(state.name());
        add(state, name == "random_state" ? "seed_generator_state" : name);
      }
    });
    return named;
  }

  bool complete() const override {
    bool all = true;
    visit([&](const LayerBase& layer, const std::string&) { all = all && layer.built(); });
    return all;
  }
  void when_grown(const train::GrownCall& call) const override {
    const auto tell = [call, root = std::weak_ptr(layer_.base())] {
      if (const auto base = root.lock()) (*call)(TrackedLayer(Layer(base)));
    };
    visit([&](LayerBase& layer, const std::string&) {
      if (!layer.built()) layer.when_built(call.get(), tell);
    });
  }
  void require_savable(const std::string& name, std::source_location where) const override {
    require(layer_.built() || !layer_.weights().empty(), ErrorCode::failed_precondition, where, "\"", name,
            "\" (", layer_.class_name(), " \"", layer_.name(),
            "\") has no weights to save yet; call build() or fit() first");
  }

 private:
  // Every layer once, with the path that its variables' names begin with.
  void visit(const std::function<void(LayerBase&, const std::string& prefix)>& f) const {
    std::set<const LayerBase*> seen;
    const auto enter = [&](const auto& self, LayerBase& layer, const std::string& prefix) -> void {
      if (!seen.insert(&layer).second) return;
      f(layer, prefix);
      LocalNames names;
      for (const Layer& inner : layer.layers()) {
        const std::string name = names.next(chosen_part(*inner.base()));
        self(self, *inner.base(), prefix + name + "/");
      }
    };
    enter(enter, *layer_.base(), "");
  }

  Layer layer_;
};

class TrackedOptimizer final : public train::TrackedObject {
 public:
  explicit TrackedOptimizer(std::shared_ptr<optimizers::Optimizer::Core> core) : core_(std::move(core)) {}

  std::string kind() const override { return core_->class_name(); }
  train::NamedVariables variables() const override { return core_->named_variables(); }
  bool complete() const override { return core_->has_slots(); }
  void when_grown(const train::GrownCall& call) const override {
    core_->when_grown(call.get(), [call, weak = std::weak_ptr(core_)] {
      if (const auto core = weak.lock()) (*call)(TrackedOptimizer(core));
    });
  }

 private:
  std::shared_ptr<optimizers::Optimizer::Core> core_;
};

}  // namespace

std::shared_ptr<train::TrackedObject> Layer::tracked(std::source_location where) const {
  checked(where);
  return std::make_shared<TrackedLayer>(*this);
}

std::shared_ptr<train::TrackedObject> optimizers::Optimizer::tracked(std::source_location where) const {
  checked(where);
  return std::make_shared<TrackedOptimizer>(core_);
}

}  // namespace lockstep::keras
