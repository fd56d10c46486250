// tf::data::Dataset: a description of where elements come from and what happens to them on the way.
//
//   auto data = tf::data::Dataset::from_tensor_slices({images, labels})
//                   .shuffle(10000)
//                   .map([](const Tensor& x,
//                           const Tensor& y) { return Element(cast(x, DType::float32) / 255.0, y); },
//                        {.num_parallel_calls = tf::data::AUTOTUNE})
//                   .batch(128)
//                   .prefetch();
//   for (const Element& batch : data) step(batch[0].tensor(), batch[1].tensor());
//   model.fit(data, {.epochs = 5});
//
// Datasets are handles to immutable descriptions: cheap to copy, usable from any thread. Nothing is read
// before an iterator asks for an element. An iterator belongs to one thread at a time; the threads that work
// ahead for it are its own and end with it.
//
// The order of elements and every random choice depend on seeds alone, never on the number of threads, unless
// a stage is told that order does not matter. A function given to map() that draws random numbers draws the
// same ones for the same element.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/element.h"
#include "lockstep/device/device.h"

namespace lockstep::data {

// For threads and buffers: chosen, and changed as it runs, by the measured time of each stage.
inline constexpr int64_t AUTOTUNE = -1;
inline constexpr int64_t INFINITE_CARDINALITY = -1;
inline constexpr int64_t UNKNOWN_CARDINALITY = -2;

class Dataset;
class Iterator;
class Node;
class Pipeline;
class Cursor;
using NodePtr = std::shared_ptr<const Node>;

// Where an iterator stands, as named tensors: goes into a safetensors file or a checkpoint as it is.
using IteratorState = std::map<std::string, Tensor>;

// How the workers of a run share a dataset, as TensorFlow's AutoShardPolicy says. What people do not expect
// of a policy is logged once: one file for four workers, seven files for four.
enum class AutoShardPolicy : uint8_t {
  // By files where the sources are files, one at least for each worker, and no stage counts elements
  // (take(100) would be 100 of each worker's own); else by elements.
  automatic,
  // By files: worker i of n reads every n-th, from number i on. An Error where that cannot be, with the stage
  // that is in the way. Uneven files leave workers without work.
  file,
  // By elements: every worker goes through all of the data and keeps every n-th element that comes out, whole
  // batches where the dataset gives batches. All must see them in the same order: an unseeded shuffle is an
  // Error.
  data,
  // Each worker sees everything.
  off,
};

struct Options {
  int threads = 0;                      // of all stages together; 0: one per core
  std::optional<bool> deterministic{};  // false: parallel stages may give elements as they become ready
  AutoShardPolicy auto_shard = AutoShardPolicy::automatic;
  int64_t memory_budget =
      0;                 // bytes that buffers sized by AUTOTUNE may hold; 0: a quarter of the free memory
  bool autotune = true;  // false: AUTOTUNE means what it starts with
};

// One argument is the whole element, several are its tensors, nesting aside.
using MapFunction = std::function<Element(const Element&)>;
using Predicate = std::function<bool(const Element&)>;

namespace detail {

using lockstep::detail::concat;

template <class T>
Element as_element(const T& value) {
  return Element(value);
}
template <class A, class B>
Element as_element(const std::pair<A, B>& value) {
  return Element::tuple({as_element(value.first), as_element(value.second)});
}
template <class... T>
Element as_element(const std::tuple<T...>& value) {
  return std::apply([](const T&... part) { return Element::tuple({as_element(part)...}); }, value);
}

inline const TensorList& tensors_for(size_t expected, const Element& element) {
  require(element.flat().size() == expected, ErrorCode::invalid_argument, std::source_location::current(),
          "the function takes ", expected, " tensors, the element is ", element.structure().to_string(),
          "; a function of one const Element& takes any");
  return element.flat();
}

// f applied to an element, whatever f takes.
template <class F>
decltype(auto) apply_to(const F& f, const Element& element) {
  using T = const Tensor&;
  if constexpr (std::is_invocable_v<const F&, const Element&>) {
    return f(element);
  } else if constexpr (std::is_invocable_v<const F&, T>) {
    return f(tensors_for(1, element)[0]);
  } else if constexpr (std::is_invocable_v<const F&, T, T>) {
    const TensorList& t = tensors_for(2, element);
    return f(t[0], t[1]);
  } else if constexpr (std::is_invocable_v<const F&, T, T, T>) {
    const TensorList& t = tensors_for(3, element);
    return f(t[0], t[1], t[2]);
  } else {
    static_assert(std::is_invocable_v<const F&, T, T, T, T>,
                  "the function must take const Element&, or one to four const Tensor&");
    const TensorList& t = tensors_for(4, element);
    return f(t[0], t[1], t[2], t[3]);
  }
}

bool truth(const Tensor& tensor);
inline bool truth(bool value) { return value; }

template <class F>
MapFunction map_function(F f) {
  return [f = std::move(f)](const Element& element) { return as_element(apply_to(f, element)); };
}
template <class F>
Predicate predicate(F f) {
  return [f = std::move(f)](const Element& element) { return truth(apply_to(f, element)); };
}

}  // namespace detail

struct MapOptions {
  int64_t num_parallel_calls = 1;       // or AUTOTUNE. 1: on the thread that asks for the element
  std::optional<bool> deterministic{};  // false: elements as they become ready. Nullopt: what Options say
  // What the function gives, where element_spec() should not have to call it.
  std::optional<ElementSpec> output{};
};

struct ShuffleOptions {
  std::optional<uint64_t> seed{};  // nullopt: drawn from the default generator
  bool reshuffle_each_iteration = true;
};

struct BatchOptions {
  bool drop_remainder = false;
  int64_t num_parallel_calls = 1;  // batches put together at once, or AUTOTUNE
};

struct PaddedBatchOptions {
  // One per tensor, -1 for the longest of the batch; empty: all -1.
  std::vector<Shape> padded_shapes = {};
  std::vector<double> padding_values = {};  // one per tensor, or one for all; empty: 0
  bool drop_remainder = false;
};

struct WindowOptions {
  int64_t shift = 0;  // from one window to the next; 0: the size
  int64_t stride = 1;
  bool drop_remainder = false;
};

struct InterleaveOptions {
  int64_t cycle_length = AUTOTUNE;  // datasets open at once; AUTOTUNE: 8, for the order follows from it
  int64_t block_length = 1;         // consecutive elements from each
  int64_t num_parallel_calls = 1;   // or AUTOTUNE
  std::optional<bool> deterministic{};
};

struct SampleOptions {
  std::vector<double> weights = {};  // empty: all the same
  std::optional<uint64_t> seed{};
  bool stop_on_empty_dataset = false;
};

struct BucketOptions {
  std::vector<Shape> padded_shapes = {};
  std::vector<double> padding_values = {};
  bool pad_to_bucket_boundary = false;
  bool drop_remainder = false;
};

struct SnapshotOptions {
  int64_t shards = 1;  // files written
  bool compressed = false;
};

struct IgnoreErrorsOptions {
  int64_t most =
      -1;  // errors that are ignored; the next one is thrown and ends the iteration; -1: any number
  bool log_warning = true;  // of the first few
};

struct ListFilesOptions {
  bool shuffle = true;
  std::optional<uint64_t> seed{};
};

class Dataset {
 public:
  using Where = std::source_location;

  Dataset() = default;
  explicit Dataset(NodePtr node) : node_(std::move(node)) {}
  bool defined() const { return node_ != nullptr; }
  const NodePtr& node() const { return node_; }

  // --- sources (files: lockstep/data/files.h) ---

  // One element per row of the arrays, which must agree in their first dimension. The arrays are not copied.
  static Dataset from_tensor_slices(const Element& arrays, Where where = Where::current());
  // This one element.
  static Dataset from_tensors(const Element& element, Where where = Where::current());
  static Dataset range(int64_t stop, Where where = Where::current());
  static Dataset range(int64_t start, int64_t stop, int64_t step = 1, Where where = Where::current());
  // `make` is called for every pass; what it returns gives the elements, and nothing at the end. After a
  // restore it is called until it stands where it stood.
  using Generator = std::function<std::optional<Element>()>;
  static Dataset from_generator(std::function<Generator()> make, std::optional<ElementSpec> spec = {},
                                Where where = Where::current());
  // The names of the files that match one of the patterns ("data/*.tfrecord").
  static Dataset list_files(const std::vector<std::string>& patterns, const ListFilesOptions& options = {},
                            Where where = Where::current());
  // Tuples of one element of each; ends with the shortest.
  static Dataset zip(const std::vector<Dataset>& datasets, Where where = Where::current());
  // Elements of the dataset that each element of `choice`, a number, names.
  static Dataset choose_from_datasets(const std::vector<Dataset>& datasets, const Dataset& choice,
                                      bool stop_on_empty_dataset = true, Where where = Where::current());
  static Dataset sample_from_datasets(const std::vector<Dataset>& datasets, const SampleOptions& options = {},
                                      Where where = Where::current());

  // --- what is done to each element ---

  template <class F>
  Dataset map(F f, const MapOptions& options = {}, Where where = Where::current()) const {
    return map_elements(detail::map_function(std::move(f)), options, where);
  }
  template <class F>
  Dataset filter(F f, Where where = Where::current()) const {
    return filter_elements(detail::predicate(std::move(f)), where);
  }
  // Ends before the first element for which it does not hold.
  template <class F>
  Dataset take_while(F f, Where where = Where::current()) const {
    return take_while_elements(detail::predicate(std::move(f)), where);
  }
  // f(state, element) gives the next state and an element.
  using ScanFunction =
      std::function<std::pair<Element, Element>(const Element& state, const Element& element)>;
  Dataset scan(const Element& initial_state, ScanFunction f, Where where = Where::current()) const;
  // (index, element)
  Dataset enumerate(int64_t start = 0, Where where = Where::current()) const;

  // --- datasets of datasets ---

  // The elements of f(element), a Dataset, one dataset after another.
  template <class F>
  Dataset flat_map(F f, Where where = Where::current()) const {
    return flat_map_elements(dataset_function(std::move(f)), where);
  }
  // The same, but from several of them in turn.
  template <class F>
  Dataset interleave(F f, const InterleaveOptions& options = {}, Where where = Where::current()) const {
    return interleave_elements(dataset_function(std::move(f)), options, where);
  }
  // Datasets of `size` consecutive elements each, for f to make elements of; flat_map's f may batch them.
  template <class F>
  Dataset window(int64_t size, F f, const WindowOptions& options = {}, Where where = Where::current()) const {
    return window_elements(size, DatasetReducer(std::move(f)), options, where);
  }
  // Elements of one key are collected; f(key, dataset of up to window_size of them) gives what comes out.
  using KeyFunction = std::function<int64_t(const Element&)>;
  using WindowFunction = std::function<Dataset(int64_t key, const Dataset& window)>;
  Dataset group_by_window(KeyFunction key, WindowFunction reduce, int64_t window_size,
                          Where where = Where::current()) const;
  // Padded batches of elements of about the same length: boundaries {10, 20} make three buckets.
  Dataset bucket_by_sequence_length(KeyFunction length, const std::vector<int64_t>& boundaries,
                                    const std::vector<int64_t>& batch_sizes,
                                    const BucketOptions& options = {}, Where where = Where::current()) const;

  // --- batches ---

  Dataset batch(int64_t batch_size, const BatchOptions& options = {}, Where where = Where::current()) const;
  Dataset padded_batch(int64_t batch_size, const PaddedBatchOptions& options = {},
                       Where where = Where::current()) const;
  Dataset unbatch(Where where = Where::current()) const;
  // Batches of another size from batches, without going through single elements.
  Dataset rebatch(int64_t batch_size, bool drop_remainder = false, Where where = Where::current()) const;

  // --- order and number ---

  Dataset shuffle(int64_t buffer_size, const ShuffleOptions& options = {},
                  Where where = Where::current()) const;
  Dataset repeat(int64_t count = -1, Where where = Where::current()) const;  // -1: for ever
  Dataset take(int64_t count, Where where = Where::current()) const;         // -1: all
  Dataset skip(int64_t count, Where where = Where::current()) const;         // -1: all
  // Every count-th element, from number `index` on.
  Dataset shard(int64_t count, int64_t index, Where where = Where::current()) const;
  Dataset concatenate(const Dataset& other, Where where = Where::current()) const;

  // --- speed ---

  // Elements of the first whole pass are kept: in memory, or in files that begin with this name.
  Dataset cache(const std::string& file = {}, Where where = Where::current()) const;
  // The first whole pass is written to this folder, later ones (also of other processes) are read from there.
  Dataset snapshot(const std::string& folder, const SnapshotOptions& options = {},
                   Where where = Where::current()) const;
  // A thread of its own has up to `buffer_size` elements ready.
  Dataset prefetch(int64_t buffer_size = AUTOTUNE, Where where = Where::current()) const;
  // The same, and they are on the device already.
  Dataset prefetch_to_device(Device& device, int64_t buffer_size = 2, Where where = Where::current()) const;

  // --- the rest ---

  // Elements that cannot be made are left out and counted.
  Dataset ignore_errors(const IgnoreErrorsOptions& options = {}, Where where = Where::current()) const;
  Dataset with_options(const Options& options, Where where = Where::current()) const;
  template <class F>
  Dataset apply(F f) const {
    return f(*this);
  }
  // The share of one worker of `count`, as the dataset's auto_shard policy says.
  Dataset auto_shard(int64_t count, int64_t index, Where where = Where::current()) const;

  // A number, INFINITE_CARDINALITY, or UNKNOWN_CARDINALITY.
  int64_t cardinality(Where where = Where::current()) const;
  // Where a stage cannot know what it gives (a map without MapOptions::output) the first element is looked
  // at.
  ElementSpec element_spec(Where where = Where::current()) const;

  template <class State, class F>
  State reduce(State state, F f) const;

  Iterator iterator(Where where = Where::current()) const;

  class const_iterator;
  const_iterator begin(Where where = Where::current()) const;
  std::default_sentinel_t end() const { return {}; }

 private:
  using DatasetFunction = std::function<Dataset(const Element&)>;
  using DatasetReducer = std::function<Dataset(const Dataset&)>;

  template <class F>
  static DatasetFunction dataset_function(F f) {
    return [f = std::move(f)](const Element& element) { return Dataset(detail::apply_to(f, element)); };
  }
  Dataset map_elements(MapFunction f, const MapOptions& options, Where where) const;
  Dataset filter_elements(Predicate f, Where where) const;
  Dataset take_while_elements(Predicate f, Where where) const;
  Dataset flat_map_elements(DatasetFunction f, Where where) const;
  Dataset interleave_elements(DatasetFunction f, const InterleaveOptions& options, Where where) const;
  Dataset window_elements(int64_t size, DatasetReducer f, const WindowOptions& options, Where where) const;

  NodePtr node_;
};

// One pass over a dataset. Movable. Destroyed, it stops all of its threads first.
class Iterator {
 public:
  explicit Iterator(const Dataset& dataset, std::source_location where = std::source_location::current());
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  // False at the end. What a stage threw for this element is thrown here, in its place in the order; the next
  // call goes on behind it.
  bool next(Element& element);
  std::optional<Element> next();

  // The exact position, with everything that is on its way: an iterator of an equal dataset restored from it
  // gives the elements that this one gives next, bit for bit. Elements in flight are saved in full unless
  // they are rows of arrays in memory.
  IteratorState save();
  void restore(const IteratorState& state, std::source_location where = std::source_location::current());

  // Ends a next() that waits on another thread, and this iteration. From any thread.
  void cancel();

  const Pipeline& pipeline() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Dataset::const_iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Element;
  using difference_type = std::ptrdiff_t;

  const_iterator(const Dataset& dataset, std::source_location where)
      : iterator_(std::make_shared<Iterator>(dataset, where)), goes_on_(iterator_->next(element_)) {}
  const Element& operator*() const { return element_; }
  const Element* operator->() const { return &element_; }
  const_iterator& operator++() {
    goes_on_ = iterator_->next(element_);
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !goes_on_; }

 private:
  std::shared_ptr<Iterator> iterator_;
  Element element_;
  bool goes_on_;
};

inline Dataset::const_iterator Dataset::begin(Where where) const { return {*this, where}; }

template <class State, class F>
State Dataset::reduce(State state, F f) const {
  for (const Element& element : *this) state = f(std::move(state), element);
  return state;
}

}  // namespace lockstep::data
