// Strategies.
#include "lockstep/distribute/strategy.h"

#include "lockstep/keras/layer.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/collective.h"
#include "python.h"
#include "structures.h"

namespace lockstep::python {

using distribute::Distributed;
using distribute::DistributedDataset;
using distribute::DistributedElement;
using distribute::ReduceOp;
using distribute::RunArgument;
using distribute::Strategy;
using distribute::StrategyOptions;

namespace {

// `with strategy.scope():`
class StrategyContext {
 public:
  StrategyContext(const Strategy& strategy, std::source_location where)
      : strategy_(strategy), where_(where) {}
  StrategyContext(const StrategyContext&) = delete;
  void enter() { scopes_.push_back(std::make_unique<Strategy::Scope>(strategy_, where_)); }
  void exit() { scopes_.pop_back(); }

 private:
  Strategy strategy_;
  std::source_location where_;
  std::vector<std::unique_ptr<Strategy::Scope>> scopes_;
};

StrategyOptions strategy_options(Any given) {
  StrategyOptions options;
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "cross_device_ops")
      options.cross_device_ops = static_cast<CrossDeviceOps>(nb::cast<int>(value));
    else if (name == "bucket_bytes")
      options.bucket_bytes = nb::cast<int64_t>(value);
    else if (name == "reproducible")
      options.reproducible = nb::cast<bool>(value);
    else if (name == "virtual_replicas")
      options.virtual_replicas = nb::cast<int>(value);
    else if (name == "weights")
      options.weights = nb::cast<std::vector<double>>(value);
    else if (name == "report")
      options.report = nb::cast<bool>(value);
    else if (name == "implementation")
      options.communication.implementation =
          static_cast<distribute::CommunicationImplementation>(nb::cast<int>(value));
    else if (name == "timeout_seconds")
      options.communication.timeout_seconds = nb::cast<double>(value);
    else if (name == "min_workers")
      options.elastic.min_workers = nb::cast<int>(value);
    else
      throw nb::type_error(("no strategy has an option " + name).c_str());
  }
  return options;
}

ReduceOp reduce_op(const std::string& name) { return name == "MEAN" ? ReduceOp::mean : ReduceOp::sum; }

// The parts of a distributed batch, each as the replicas of this process have it.
nb::object batch(const DistributedElement& element) {
  return to_python(element.structure, [&](size_t leaf) { return nb::cast(element.flat[leaf]); });
}

class DistributedIterator : public Stoppable {
 public:
  explicit DistributedIterator(const DistributedDataset& dataset) : dataset_(dataset) {}
  ~DistributedIterator() override { DistributedIterator::stop(); }
  void stop() override {
    stopped_ = true;
    released([&] { iterator_.reset(); });
  }
  nb::object next() {
    if (stopped_) throw nb::stop_iteration();
    const bool goes_on = released([&] {
      if (!iterator_)
        iterator_.emplace(dataset_.begin());
      else
        ++*iterator_;
      return *iterator_ != std::default_sentinel;
    });
    check_signals();
    return goes_on ? batch(**iterator_) : throw nb::stop_iteration();
  }

 private:
  DistributedDataset dataset_;
  std::optional<DistributedDataset::iterator> iterator_;
  bool stopped_ = false;
};

}  // namespace

void bind_distribute(nb::module_& m) {
  nb::class_<Distributed>(m, "Distributed")
      .def_static("of", [](Any values) { return Distributed::of(tensors(values)); })
      .def_prop_ro("replicas", &Distributed::replicas)
      .def_prop_ro("values", [](const Distributed& d) { return nb::tuple(to_python(d.local_results())); })
      .def("__repr__", &Distributed::to_string);

  nb::class_<StrategyContext>(m, "StrategyContext")
      .def("enter", &StrategyContext::enter)
      .def("exit", &StrategyContext::exit);
  nb::class_<DistributedIterator>(m, "DistributedIterator")
      .def("__iter__", [](Any self) { return self; })
      .def("__next__", &DistributedIterator::next);
  nb::class_<DistributedDataset>(m, "DistributedDataset")
      .def(
          "iterator", [](const DistributedDataset& d) { return new DistributedIterator(d); },
          nb::rv_policy::take_ownership)
      .def("cardinality", &DistributedDataset::cardinality)
      .def("dataset", &DistributedDataset::dataset);

  nb::class_<Strategy>(m, "Strategy")
      .def(nb::init<>())
      .def_static("mirrored",
                  [](const std::vector<std::string>& devices, Any options) -> Strategy {
                    return distribute::MirroredStrategy(devices, strategy_options(options), here());
                  })
      .def_static("one_device",
                  [](const std::string& device, Any options) -> Strategy {
                    return distribute::OneDeviceStrategy(device, strategy_options(options), here());
                  })
      .def_static("central_storage",
                  [](const std::vector<std::string>& devices, Any options) -> Strategy {
                    return distribute::CentralStorageStrategy(devices, strategy_options(options), here());
                  })
      .def_static("multi_worker_mirrored",
                  [](Any options) -> Strategy {
                    const StrategyOptions given = strategy_options(options);
                    const std::source_location where = here();
                    return released([&] { return distribute::MultiWorkerMirroredStrategy(given, where); });
                  })
      .def_static("current", &Strategy::current)
      .def("__eq__", [](const Strategy& a, const Strategy& b) { return a == b; })
      .def_prop_ro("is_default", [](const Strategy& s) { return s.kind() == Strategy::Kind::none; })
      .def_prop_ro("name", [](const Strategy& s) { return s.name(); })
      .def_prop_ro("devices",
                   [](const Strategy& s) {
                     std::vector<std::string> names;
                     for (const Device* device : s.devices()) names.push_back(device->name());
                     return names;
                   })
      .def_prop_ro("num_replicas_in_sync", &Strategy::num_replicas_in_sync)
      .def_prop_ro("num_workers", &Strategy::num_workers)
      .def_prop_ro("worker", &Strategy::worker)
      .def_prop_ro("is_chief", &Strategy::is_chief)
      .def_prop_ro("description", &Strategy::description)
      .def("sums_description", &Strategy::sums_description)
      .def(
          "scope", [](const Strategy& s) { return new StrategyContext(s, here()); },
          nb::rv_policy::take_ownership)
      .def("run",
           [](const Strategy& s, Any f, Any arguments) {
             std::vector<RunArgument> given;
             for (const nb::handle argument : nb::borrow<nb::sequence>(arguments)) {
               if (nb::isinstance<Distributed>(argument))
                 given.emplace_back(nb::cast<const Distributed&>(argument));
               else
                 given.emplace_back(tensor(argument), here());
             }
             const auto body = tensor_function(f);
             const std::source_location where = here();
             const std::vector<Distributed> results =
                 released([&] { return s.run_tensors(body, given, where); });
             nb::list list;
             for (const Distributed& result : results) list.append(nb::cast(result));
             return list;
           })
      .def(
          "reduce",
          [](const Strategy& s, const std::string& op, const Distributed& value, std::optional<int> axis) {
            const std::source_location where = here();
            return released([&] { return s.reduce(reduce_op(op), value, axis, where); });
          },
          "op"_a, "value"_a, "axis"_a.none())
      .def("gather", [](const Strategy& s, const Distributed& value,
                        int axis) { return s.gather(value, axis, here()); })
      .def("distribute_dataset",
           [](const Strategy& s, const data::Dataset& dataset) {
             return s.distribute_dataset(dataset, here());
           })
      .def("distribute_datasets_from_function",
           [](const Strategy& s, Any make) {
             return s.distribute_datasets_from_function(
                 [&](const distribute::InputContext& context) {
                   return nb::cast<data::Dataset>(nb::borrow<nb::callable>(make)(
                       context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync));
                 },
                 here());
           })
      .def("distribute", [](const Strategy& s, Any value) { return s.distribute(tensor(value), here()); })
      .def("adopt_layer", [](const Strategy& s, const keras::Layer& layer) { s.adopt(layer); })
      .def("adopt_variables",
           [](const Strategy& s, const std::vector<Variable>& variables) { s.adopt(variables); })
      .def("report", [](const Strategy& s) {
        return observe::to_text(observe::report_on(s.summary(), s.name() + ".run"));
      });

  m.def("replica_id", [] { return distribute::replica_id(here()); });
  m.def("num_replicas_in_sync", &distribute::num_replicas_in_sync);
  m.def("global_batch_size", [](Any batch) { return lockstep::global_batch_size(tensor(batch), here()); });
  m.def("all_reduce", [](const std::string& op, Any value) {
    return distribute::all_reduce(reduce_op(op), tensor(value), here());
  });
}

}  // namespace lockstep::python
