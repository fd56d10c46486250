// Datasets.
#include "lockstep/data/dataset.h"
#include "lockstep/data/explain.h"
#include "lockstep/data/files.h"
#include "lockstep/keras/datasets.h"
#include "python.h"
#include "structures.h"

namespace lockstep::python {

using data::Dataset;
using data::Element;
using data::Structure;

Element element(nb::handle value) {
  if (nb::isinstance<nb::tuple>(value)) {
    std::vector<Element> parts;
    for (const nb::handle part : nb::borrow<nb::tuple>(value)) parts.push_back(element(part));
    return Element::tuple(parts);
  }
  if (nb::isinstance<nb::dict>(value)) {
    std::vector<std::pair<std::string, Element>> parts;
    for (const auto& [name, part] : nb::borrow<nb::dict>(value))
      parts.emplace_back(nb::cast<std::string>(name), element(part));
    return Element::dict(parts);
  }
  return {tensor(value)};
}

nb::object to_python(const Element& element) {
  return to_python(element.structure(), [&](size_t leaf) { return to_python(element.flat()[leaf]); });
}

namespace {

Element call(const Kept& f, const Element& given) {
  return in_python([&] { return element(nb::borrow<nb::callable>(f.get())(to_python(given))); });
}

// (structure, [(dtype, shape)]) of Python as a spec.
std::optional<data::ElementSpec> element_spec(Any spec) {
  if (spec.is_none()) return {};
  data::ElementSpec made{Structure::parse(nb::cast<std::string>(spec[0]), here()), {}};
  for (const nb::handle tensor : nb::borrow<nb::sequence>(spec[1]))
    made.tensors.push_back({dtype(tensor[0]), shape(tensor[1])});
  return made;
}

std::optional<bool> decided(Any value) {
  return value.is_none() ? std::nullopt : std::optional(nb::cast<bool>(value));
}
std::optional<uint64_t> seed_of(Any value) {
  return value.is_none() ? std::nullopt : std::optional(nb::cast<uint64_t>(value));
}

// An iterator's threads may be in functions of Python: it is made, asked and dropped without the GIL.
class PythonIterator : public Stoppable {
 public:
  PythonIterator(const Dataset& dataset, std::source_location where)
      : iterator_(std::in_place, dataset, where) {}
  void stop() override { iterator_.reset(); }
  nb::object next() {
    if (!iterator_) throw nb::stop_iteration();
    Element element;
    const bool goes_on = released([&] { return iterator_->next(element); });
    check_signals();
    return goes_on ? to_python(element) : throw nb::stop_iteration();
  }

  data::Iterator& iterator() {
    require(bool(iterator_), ErrorCode::failed_precondition, here(),
            "the program ends: the iterator was stopped");
    return *iterator_;
  }

 private:
  Apart<data::Iterator> iterator_;
};

}  // namespace

data::Iterator* iterator_of(nb::handle value) {
  return nb::isinstance<PythonIterator>(value) ? &nb::cast<PythonIterator&>(value).iterator() : nullptr;
}

void bind_data(nb::module_& m) {
  m.def("stop_all", stop_all);
  nb::class_<PythonIterator>(m, "Iterator")
      .def("__iter__", [](Any self) { return self; })
      .def("__next__", &PythonIterator::next);

  nb::class_<Dataset> d(m, "Dataset");
  d.def_static("from_tensor_slices",
               [](Any arrays) { return Dataset::from_tensor_slices(element(arrays), here()); })
      .def_static("from_tensors", [](Any value) { return Dataset::from_tensors(element(value), here()); })
      .def_static("range", [](int64_t start, int64_t stop,
                              int64_t step) { return Dataset::range(start, stop, step, here()); })
      .def_static("from_generator",
                  [](Any make, Any spec) {
                    // make() gives an iterator of elements.
                    const auto generator = [kept = Kept(make)]() -> Dataset::Generator {
                      const Kept iterator =
                          in_python([&] { return Kept(nb::borrow<nb::callable>(kept.get())()); });
                      return [iterator] {
                        return in_python([&]() -> std::optional<Element> {
                          const nb::object item = nb::steal(PyIter_Next(iterator.get().ptr()));
                          if (item.is_valid()) return element(item);
                          if (PyErr_Occurred()) throw nb::python_error();
                          return {};
                        });
                      };
                    };
                    return Dataset::from_generator(generator, element_spec(spec), here());
                  })
      .def_static("list_files",
                  [](const std::vector<std::string>& patterns, bool shuffle, Any seed) {
                    return Dataset::list_files(patterns, {.shuffle = shuffle, .seed = seed_of(seed)}, here());
                  })
      .def_static("zip", [](const std::vector<Dataset>& datasets) { return Dataset::zip(datasets, here()); })
      .def_static(
          "sample_from_datasets",
          [](const std::vector<Dataset>& datasets, const std::vector<double>& weights, Any seed, bool stop) {
            return Dataset::sample_from_datasets(
                datasets, {.weights = weights, .seed = seed_of(seed), .stop_on_empty_dataset = stop}, here());
          })
      .def_static("choose_from_datasets",
                  [](const std::vector<Dataset>& datasets, const Dataset& choice, bool stop) {
                    return Dataset::choose_from_datasets(datasets, choice, stop, here());
                  })
      .def("map",
           [](const Dataset& d, Any f, int64_t calls, Any deterministic) {
             return d.map([kept = Kept(f)](const Element& e) { return call(kept, e); },
                          {.num_parallel_calls = calls, .deterministic = decided(deterministic)}, here());
           })
      .def("filter",
           [](const Dataset& d, Any f) {
             return d.filter(
                 [kept = Kept(f)](const Element& e) {
                   return in_python(
                       [&] { return nb::cast<bool>(nb::borrow<nb::callable>(kept.get())(to_python(e))); });
                 },
                 here());
           })
      .def("take_while",
           [](const Dataset& d, Any f) {
             return d.take_while(
                 [kept = Kept(f)](const Element& e) {
                   return in_python(
                       [&] { return nb::cast<bool>(nb::borrow<nb::callable>(kept.get())(to_python(e))); });
                 },
                 here());
           })
      .def("scan",
           [](const Dataset& d, Any initial, Any f) {
             return d.scan(
                 element(initial),
                 [kept = Kept(f)](const Element& state, const Element& e) {
                   return in_python([&] {
                     const nb::object pair =
                         nb::borrow<nb::callable>(kept.get())(to_python(state), to_python(e));
                     return std::pair(element(pair[0]), element(pair[1]));
                   });
                 },
                 here());
           })
      .def("flat_map",
           [](const Dataset& d, Any f) {
             return d.flat_map(
                 [kept = Kept(f)](const Element& e) {
                   return in_python(
                       [&] { return nb::cast<Dataset>(nb::borrow<nb::callable>(kept.get())(to_python(e))); });
                 },
                 here());
           })
      .def("interleave",
           [](const Dataset& d, Any f, int64_t cycle, int64_t block, int64_t calls, Any deterministic) {
             return d.interleave(
                 [kept = Kept(f)](const Element& e) {
                   return in_python(
                       [&] { return nb::cast<Dataset>(nb::borrow<nb::callable>(kept.get())(to_python(e))); });
                 },
                 {cycle, block, calls, decided(deterministic)}, here());
           })
      .def("window",
           [](const Dataset& d, int64_t size, Any f, int64_t shift, int64_t stride, bool drop) {
             return d.window(
                 size,
                 [kept = Kept(f)](const Dataset& w) {
                   return in_python(
                       [&] { return nb::cast<Dataset>(nb::borrow<nb::callable>(kept.get())(w)); });
                 },
                 {shift, stride, drop}, here());
           })
      .def("batch",
           [](const Dataset& d, int64_t size, bool drop, int64_t calls) {
             return d.batch(size, {drop, calls}, here());
           })
      .def("padded_batch",
           [](const Dataset& d, int64_t size, Any shapes, const std::vector<double>& values, bool drop) {
             std::vector<Shape> padded;
             for (const nb::handle item : nb::borrow<nb::sequence>(shapes)) padded.push_back(shape(item));
             return d.padded_batch(size, {padded, values, drop}, here());
           })
      .def("unbatch", [](const Dataset& d) { return d.unbatch(here()); })
      .def("rebatch", [](const Dataset& d, int64_t size, bool drop) { return d.rebatch(size, drop, here()); })
      .def("shuffle",
           [](const Dataset& d, int64_t size, Any seed, bool again) {
             return d.shuffle(size, {.seed = seed_of(seed), .reshuffle_each_iteration = again}, here());
           })
      .def("repeat", [](const Dataset& d, int64_t count) { return d.repeat(count, here()); })
      .def("take", [](const Dataset& d, int64_t count) { return d.take(count, here()); })
      .def("skip", [](const Dataset& d, int64_t count) { return d.skip(count, here()); })
      .def("shard",
           [](const Dataset& d, int64_t count, int64_t index) { return d.shard(count, index, here()); })
      .def("concatenate", [](const Dataset& d, const Dataset& other) { return d.concatenate(other, here()); })
      .def("enumerate", [](const Dataset& d, int64_t start) { return d.enumerate(start, here()); })
      .def("cache", [](const Dataset& d, const std::string& file) { return d.cache(file, here()); })
      .def("snapshot",
           [](const Dataset& d, const std::string& folder) { return d.snapshot(folder, {}, here()); })
      .def("prefetch", [](const Dataset& d, int64_t size) { return d.prefetch(size, here()); })
      .def("ignore_errors",
           [](const Dataset& d, bool log) { return d.ignore_errors({.log_warning = log}, here()); })
      .def("with_options",
           [](const Dataset& d, int threads, Any deterministic, int shard, bool autotune) {
             return d.with_options({.threads = threads,
                                    .deterministic = decided(deterministic),
                                    .auto_shard = static_cast<data::AutoShardPolicy>(shard),
                                    .autotune = autotune},
                                   here());
           })
      .def("cardinality", [](const Dataset& d) { return d.cardinality(here()); })
      .def("element_spec",
           [](const Dataset& d) {
             const std::source_location where = here();
             const data::ElementSpec spec = released([&] { return d.element_spec(where); });
             return to_python(spec.structure, [&](size_t leaf) -> nb::object {
               return nb::make_tuple(to_python(spec.tensors[leaf].dtype),
                                     to_python(spec.tensors[leaf].shape));
             });
           })
      .def(
          "iterator", [](const Dataset& d) { return new PythonIterator(d, here()); },
          nb::rv_policy::take_ownership);
  m.def("explain", [](const Dataset& d, double seconds) {
    const std::source_location where = here();
    return released([&] { return data::to_text(data::explain(d, {.seconds = seconds}, where)); });
  });

  // --- data sets ---
  nb::module_ sets = m.def_submodule("datasets");
  using keras::datasets::TrainTest;
  const auto tensors_of = [](const TrainTest& both) {
    return nb::make_tuple(nb::make_tuple(both.train.x, both.train.y),
                          nb::make_tuple(both.test.x, both.test.y));
  };
  sets.def("digits", [tensors_of](uint64_t seed, int64_t train_size, int64_t test_size) {
    return tensors_of(keras::datasets::digits({seed, train_size, test_size}, here()));
  });
  sets.def("mnist", [tensors_of](const std::string& folder) {
    return tensors_of(keras::datasets::mnist::load_data({.folder = folder}, here()));
  });
  sets.def("fashion_mnist", [tensors_of](const std::string& folder) {
    return tensors_of(keras::datasets::fashion_mnist::load_data({.folder = folder}, here()));
  });
  sets.def("cifar10", [tensors_of](const std::string& folder) {
    return tensors_of(keras::datasets::cifar10::load_data({.folder = folder}, here()));
  });
  sets.def("cifar100", [tensors_of](const std::string& mode, const std::string& folder) {
    return tensors_of(keras::datasets::cifar100::load_data(mode, {.folder = folder}, here()));
  });
}

}  // namespace lockstep::python
