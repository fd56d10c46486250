// Gradient tapes, compiled functions, control flow, checkpoints, reports.
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/autodiff/recompute_grad.h"
#include "lockstep/base/log.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/tensorflow_checkpoint.h"
#include "structures.h"

namespace lockstep::python {
namespace {

std::vector<GradientSource> gradient_sources(Any sequence) {
  std::vector<GradientSource> sources;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) {
    if (nb::isinstance<Variable>(item))
      sources.emplace_back(nb::cast<const Variable&>(item));
    else
      sources.emplace_back(tensor(item));
  }
  return sources;
}

void bind_tape(nb::module_& m) {
  nb::class_<GradientTape>(m, "GradientTape")
      .def("__init__",
           [](GradientTape* self, bool persistent, bool watch_accessed_variables) {
             new (self) GradientTape({persistent, watch_accessed_variables});
           })
      .def("watch",
           [](GradientTape& tape, Any watched) {
             if (nb::isinstance<Variable>(watched))
               tape.watch(nb::cast<const Variable&>(watched), here());
             else
               tape.watch(tensor(watched), here());
           })
      .def("gradient",
           [](GradientTape& tape, Any targets, Any sources, Any output_gradients) {
             const TensorList of = tensors(targets), arriving = tensors(output_gradients);
             const std::vector<GradientSource> by = gradient_sources(sources);
             const std::source_location where = here();
             return to_python(released([&] { return tape.gradient(of, by, arriving, where); }));
           })
      .def("jacobian",
           [](GradientTape& tape, Any target, Any source) {
             return to_python(
                 tape.jacobian(tensor(target), gradient_sources(nb::make_tuple(source))[0], here()));
           })
      .def("batch_jacobian",
           [](GradientTape& tape, Any target, Any source) {
             return to_python(
                 tape.batch_jacobian(tensor(target), gradient_sources(nb::make_tuple(source))[0], here()));
           })
      .def("watched_variables", &GradientTape::watched_variables)
      .def("pause", &GradientTape::pause)
      .def("resume", &GradientTape::resume)
      .def("stop_recording", &GradientTape::stop_recording)
      .def("reset", &GradientTape::reset);

  // f(inputs) gives (outputs, grad); grad(output gradients) gives those of the inputs.
  m.def("custom_gradient", [](Any f, Any inputs) {
    const auto run = [&](std::span<const Tensor> in) -> CustomGradient {
      const nb::object pair = nb::borrow<nb::callable>(f)(to_python(in));
      return {tensors(pair[0]), tensor_function(pair[1])};
    };
    return to_python(custom_gradient(run, tensors(inputs), here()));
  });
  m.def("recompute_grad", [](Any f) {
    return to_python(recompute_grad([&] { return tensors(nb::borrow<nb::callable>(f)()); }, here())());
  });
}

void bind_functions(nb::module_& m) {
  nb::class_<FunctionCore>(m, "Function")
      .def("__init__",
           [](FunctionCore* self, Any body, std::string name) {
             new (self) FunctionCore(tensor_function(body), {.name = std::move(name)}, here());
           })
      .def("__call__",
           [](FunctionCore& function, Any inputs) {
             const TensorList given = tensors(inputs);
             const std::source_location where = when_asked();
             return to_python(released([&] { return function.call(given, where); }));
           })
      .def_prop_ro("traces", &FunctionCore::traces)
      .def("report", [](const FunctionCore& function) { return observe::to_text(function.report()); })
      .def("explain",
           [](FunctionCore& function, Any inputs) { return function.explain(tensors(inputs), here()); })
      .def("flops", [](FunctionCore& function, Any inputs) {
        return function.statistics(tensors(inputs), here()).flops;
      });

  const auto branch = [](Any f) -> Branch { return [f = tensor_function(f)] { return f({}); }; };
  m.def("cond", [branch](Any pred, Any then_fn, Any else_fn) {
    return to_python(cond(arg(pred), branch(then_fn), branch(else_fn)));
  });
  m.def("while_loop", [](Any condition, Any body, Any initial, int64_t maximum_iterations) {
    const auto goes_on = [f = tensor_function(condition)](std::span<const Tensor> values) {
      return f(values).at(0);
    };
    return to_python(while_loop(goes_on, tensor_function(body), tensors(initial),
                                {.maximum_iterations = maximum_iterations}, here()));
  });
  m.def("map_fn",
        [](Any f, Any elems) { return to_python(map_fn(tensor_function(f), tensors(elems), here())); });
  // f(carry, x) gives (carry, ys), all of them lists.
  m.def("scan", [](Any f, Any initial, Any elems, bool reverse) {
    const auto step = [kept = Kept(f)](std::span<const Tensor> carry,
                                       std::span<const Tensor> x) -> ScanResult {
      const nb::gil_scoped_acquire acquire;
      const nb::object pair = nb::borrow<nb::callable>(kept.get())(to_python(carry), to_python(x));
      return {tensors(pair[0]), tensors(pair[1])};
    };
    const ScanResult result = scan(step, tensors(initial), tensors(elems), {.reverse = reverse}, here());
    return nb::make_tuple(to_python(result.carry), to_python(result.ys));
  });

  m.def("report", [] {
    const observe::RunReport report = observe::report();
    return std::pair(observe::steps(report.summary), observe::to_text(report));
  });
}

// --- checkpoints ---------------------------------------------------------------------------------------------------------

train::Trackable trackable(Any object);

// An object of Python: its parts are what the package finds in it when it is asked.
class PythonObject final : public train::TrackedObject {
 public:
  explicit PythonObject(Any parts) : parts_(parts) {}
  std::string kind() const override { return "an object of Python"; }
  train::NamedTrackables children() const override {
    const nb::gil_scoped_acquire acquire;
    train::NamedTrackables named;
    const nb::object parts = nb::borrow<nb::callable>(parts_.get())();
    for (const nb::handle part : nb::borrow<nb::sequence>(parts))
      named.emplace_back(nb::cast<std::string>(part[0]), trackable(part[1]));
    return named;
  }

 private:
  Kept parts_;
};

train::Trackable trackable(Any object) {
  const std::source_location where = here();
  if (nb::isinstance<Variable>(object)) return {nb::cast<const Variable&>(object), where};
  if (nb::isinstance<keras::Layer>(object)) return {nb::cast<const keras::Layer&>(object), where};
  if (nb::isinstance<keras::optimizers::Optimizer>(object))
    return {nb::cast<const keras::optimizers::Optimizer&>(object), where};
  if (nb::isinstance<random::Generator>(object)) return {nb::cast<const random::Generator&>(object)};
  if (data::Iterator* iterator = iterator_of(object)) return {*iterator};
  return {std::static_pointer_cast<train::TrackedObject>(std::make_shared<PythonObject>(object))};
}

void bind_checkpoints(nb::module_& m) {
  using train::Checkpoint;
  using train::CheckpointManager;
  using train::RestoreStatus;
  nb::class_<RestoreStatus>(m, "RestoreStatus")
      .def_prop_ro("restored", &RestoreStatus::restored)
      .def_prop_ro("path", &RestoreStatus::path)
      .def("missing", &RestoreStatus::missing)
      .def("extra", &RestoreStatus::extra)
      .def("deferred", &RestoreStatus::deferred)
      .def("assert_consumed", [](const RestoreStatus& status) { return status.assert_consumed(here()); })
      .def("assert_existing_objects_matched",
           [](const RestoreStatus& status) { return status.assert_existing_objects_matched(here()); })
      .def("expect_partial", [](const RestoreStatus& status) { return status.expect_partial(); });
  nb::class_<Checkpoint>(m, "Checkpoint")
      .def("__init__",
           [](Checkpoint* self, Any objects) {
             train::NamedTrackables named;
             for (const nb::handle object : nb::borrow<nb::sequence>(objects))
               named.emplace_back(nb::cast<std::string>(object[0]), trackable(object[1]));
             new (self) Checkpoint(named, here());
           })
      .def("save", [](const Checkpoint& c, const std::string& prefix) { return c.save(prefix, {}, here()); })
      .def("write", [](const Checkpoint& c,
                       const std::string& path) { return c.write(path, {.asynchronous = false}, here()); })
      .def("wait", [](const Checkpoint& c) { released([&] { c.wait(); }); })
      .def("restore", [](const Checkpoint& c,
                         const std::optional<std::string>& path) { return c.restore(path, here()); })
      .def_prop_ro("save_counter", &Checkpoint::save_counter);
  nb::class_<CheckpointManager>(m, "CheckpointManager")
      .def("__init__",
           [](CheckpointManager* self, const Checkpoint& checkpoint, const std::string& directory,
              int max_to_keep, double keep_every_n_hours, std::string name, int64_t interval,
              Any step_counter, Any init_fn) {
             train::CheckpointManagerOptions options{.max_to_keep = max_to_keep,
                                                     .keep_checkpoint_every_n_hours = keep_every_n_hours,
                                                     .checkpoint_name = std::move(name),
                                                     .checkpoint_interval = interval};
             if (!step_counter.is_none())
               options.step_counter = [kept = Kept(step_counter)] {
                 const nb::gil_scoped_acquire acquire;
                 return nb::cast<int64_t>(nb::borrow<nb::callable>(kept.get())());
               };
             if (!init_fn.is_none())
               options.init_fn = [kept = Kept(init_fn)] {
                 const nb::gil_scoped_acquire acquire;
                 nb::borrow<nb::callable>(kept.get())();
               };
             new (self) CheckpointManager(checkpoint, directory, options, here());
           })
      .def("save", [](const CheckpointManager& c) { return c.save({}, here()); })
      .def("wait", [](const CheckpointManager& c) { released([&] { c.wait(); }); })
      .def("restore_or_initialize",
           [](const CheckpointManager& c) { return c.restore_or_initialize(here()); })
      .def_prop_ro("checkpoints", &CheckpointManager::checkpoints)
      .def_prop_ro("latest_checkpoint", &CheckpointManager::latest_checkpoint)
      .def_prop_ro("directory", [](const CheckpointManager& c) { return c.directory(); });
  m.def("latest_checkpoint", &train::latest_checkpoint);

  using train::TensorflowCheckpoint;
  nb::class_<TensorflowCheckpoint>(m, "TensorflowCheckpoint")
      .def_prop_ro("prefix", [](const TensorflowCheckpoint& c) { return c.prefix(); })
      // (name, shape, dtype) of every tensor.
      .def("entries",
           [](const TensorflowCheckpoint& c) {
             nb::list all;
             for (const TensorflowCheckpoint::Entry& entry : c.entries())
               all.append(
                   nb::make_tuple(entry.name, to_python(entry.spec.shape), to_python(entry.spec.dtype)));
             return all;
           })
      .def("read",
           [](const TensorflowCheckpoint& c, const std::string& name) { return c.read(name, here()); });
  m.def("load_checkpoint", [](const std::string& path) { return train::load_checkpoint(path, here()); });
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_tape(m);
  bind_functions(m);
  bind_checkpoints(m);
}

}  // namespace lockstep::python
