#include "lockstep/keras/verify_invariance.h"

#include <algorithm>

#include "data/host.h"
#include "keras/training/trainer.h"
#include "keras/training/unchanged.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::distribute {
namespace {

using Fingerprint = std::vector<uint32_t>;  // of every weight

Fingerprint fingerprint(const std::vector<Variable>& weights) {
  Fingerprint prints;
  for (const Variable& weight : weights) {
    const Tensor value = weight.value().to(data::host_device());
    prints.push_back(crc32c({static_cast<const char*>(value.impl()->data()), value.spec().bytes()}));
  }
  return prints;
}

// The model belongs to another strategy while it lives.
class Lent {
 public:
  explicit Lent(const keras::Model& model) : model_(model), owner_(model.base()->owner()) {}
  ~Lent() { model_.base()->set_owner(owner_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  const keras::Model& model_;
  std::shared_ptr<const VariableOwner> owner_;
};

}  // namespace

std::string to_text(const Invariance& invariance) {
  std::string counts;
  for (const int count : invariance.replicas) counts += (counts.empty() ? "" : ", ") + std::to_string(count);
  const std::string all = std::to_string(invariance.steps) + " steps on " + counts + " replicas";
  if (invariance.holds) return all + ": all weights have the same bits\n";
  return all + ": on " + std::to_string(invariance.differing_replicas) + " replicas weight \"" +
         invariance.weight + "\" differs first, after step " + std::to_string(invariance.step) +
         "\n  look for what depends on the slice in its layer: a mean over the slice instead of "
         "global_mean(), "
         "statistics without all_reduce(), random numbers without per_example, state outside of variables\n";
}

Invariance verify_invariance(const keras::Model& model, const keras::Data& data,
                             const InvarianceOptions& options, std::source_location where) {
  keras::Trainer& trainer = model.model_base().trainer();
  trainer.require_compiled("verify_invariance", where);
  require(options.steps > 0 && options.batch_size > 0, ErrorCode::invalid_argument, where,
          "verify_invariance: steps and batch_size must be positive, received ", options.steps, " and ",
          options.batch_size);
  std::vector<std::string> devices;
  for (const Device* device : logical_devices(where))
    if (device->kind() == DeviceKind::cpu) devices.push_back(device->name());
  Invariance invariance;
  for (const int count : options.replicas)
    if (count > 0 && count <= static_cast<int>(devices.size())) invariance.replicas.push_back(count);
  require(invariance.replicas.size() > 1, ErrorCode::failed_precondition, where,
          "verify_invariance: nothing to compare on ", devices.size(),
          " logical device; make more first: set_logical_cpus({.count = 4, .threads = 1})");

  const Lent lent(model);
  const keras::Data ordered = trainer.in_model_order(data, where);
  // What the first step would make exists before the state is kept.
  {
    keras::Batch batch;
    require(ordered.source()->read({.batch_size = options.batch_size})->next(batch),
            ErrorCode::invalid_argument, where, "verify_invariance: the data has no batch");
    model.predict_on_batch(batch.x);
    trainer.build_optimizer();
  }
  const keras::Unchanged unchanged(model);
  const std::vector<Variable> weights = model.weights();
  std::vector<Fingerprint> expected;
  for (const int count : invariance.replicas) {
    unchanged.restore();
    const MirroredStrategy strategy(
        {devices.begin(), devices.begin() + count},
        {.reproducible = true, .virtual_replicas = std::max(8, invariance.replicas.back())}, where);
    strategy.adopt(model);
    keras::StepFunctions functions = trainer.make_step_functions();
    const auto reader = ordered.source()->read({.batch_size = options.batch_size});
    keras::Batch batch;
    Tensor loss;
    for (int64_t step = 0; step < options.steps && reader->next(batch); ++step) {
      functions.run(keras::StepKind::train, batch, false, loss, where);
      Fingerprint prints = fingerprint(weights);
      if (count == invariance.replicas[0]) {
        expected.push_back(std::move(prints));
        invariance.steps = step + 1;
        continue;
      }
      const auto& wanted = expected[static_cast<size_t>(step)];
      const auto differs = std::mismatch(prints.begin(), prints.end(), wanted.begin()).first;
      if (differs == prints.end()) continue;
      invariance.holds = false;
      invariance.differing_replicas = count;
      invariance.step = step;
      invariance.weight = weights[static_cast<size_t>(differs - prints.begin())].name();
      return invariance;
    }
  }
  return invariance;
}

}  // namespace lockstep::distribute
