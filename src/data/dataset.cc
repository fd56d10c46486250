#include "lockstep/data/dataset.h"

#include "base/as_error.h"
#include "data/pipeline.h"
#include "lockstep/base/call_site.h"
#include "observe/thread_times.h"

namespace lockstep::data {

bool detail::truth(const Tensor& tensor) {
  require(tensor.dtype() == DType::boolean && tensor.size() == 1, ErrorCode::dtype_mismatch,
          std::source_location::current(), "a predicate must give one bool, it gave ", tensor.spec());
  return tensor.item<bool>();
}

namespace {
void require_made(const Dataset& dataset, std::source_location where) {
  require(dataset.defined(), ErrorCode::invalid_argument, where, "the dataset is empty: it was never made");
}
}  // namespace

int64_t Dataset::cardinality(std::source_location where) const {
  require_made(*this, where);
  return node_->cardinality();
}

ElementSpec Dataset::element_spec(std::source_location where) const {
  require_made(*this, where);
  const CallSite site(where);
  if (auto known = node_->spec()) return *std::move(known);
  return as_error("element_spec", where, [&] {
    Pipeline pipeline(node_, Pipeline::kLook);
    const std::unique_ptr<Cursor> look = pipeline.open_root();
    Item item;
    require(look->next(item), ErrorCode::failed_precondition, where,
            "element_spec: the dataset is empty, so there is no element to look at; say what its stages give "
            "(MapOptions::output)");
    return item.element().spec();
  });
}

Iterator Dataset::iterator(std::source_location where) const { return Iterator(*this, where); }

namespace {
constexpr const char* kIteration = "iteration";
constexpr const char* kUser = "dataset";  // in messages
}  // namespace

struct Iterator::Impl {
  Impl(const NodePtr& node, std::source_location where, std::optional<int64_t> iteration = {})
      : where(where), pipeline(node, iteration), root(pipeline.open_root()) {}
  // Before the cursors go: one of their threads may wait inside another's.
  ~Impl() { pipeline.stop(); }

  bool next(Element& element) {
    if (pipeline.stopped()) return false;
    const observe::ThreadTimeScope waits(observe::Category::input_wait);
    pipeline.tuner().step();
    // Stages without threads of their own make elements where those with threads do.
    const DeviceScope host(pipeline.device());
    Item item;
    try {
      if (!root->next(item)) return false;
    } catch (const Cancelled&) {
      return false;
    }
    element = std::move(item.element());
    return true;
  }

  std::source_location where;  // of the loop over it
  Pipeline pipeline;
  std::unique_ptr<Cursor> root;
};

Iterator::Iterator(const Dataset& dataset, std::source_location where) {
  require_made(dataset, where);
  as_error(kUser, where, [&] { impl_ = std::make_unique<Impl>(dataset.node(), where); });
}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

bool Iterator::next(Element& element) {
  return as_error(kUser, impl_->where, [&] { return impl_->next(element); });
}

std::optional<Element> Iterator::next() {
  Element element;
  if (!next(element)) return {};
  return element;
}

IteratorState Iterator::save() {
  return as_error(kUser, impl_->where, [&] {
    IteratorState state;
    StateWriter writer(state, impl_->pipeline.known_rows());
    writer.number(kIteration, impl_->pipeline.iteration());
    writer.cursor(impl_->pipeline.root_node().name(), *impl_->root);
    return state;
  });
}

void Iterator::restore(const IteratorState& state, std::source_location where) {
  as_error(kUser, where, [&] {
    // The cursors are made anew, for the iteration that it was.
    const RowsList known = impl_->pipeline.known_rows();
    const StateReader reader(state, known, where);
    impl_ = std::make_unique<Impl>(impl_->pipeline.root_ptr(), where, reader.number(kIteration));
    reader.cursor(impl_->pipeline.root_node().name(), *impl_->root);
  });
}

void Iterator::cancel() { impl_->pipeline.stop(); }
const Pipeline& Iterator::pipeline() const { return impl_->pipeline; }

}  // namespace lockstep::data
