#include "lockstep/data/dataset.h"

#include "data/pipeline.h"

namespace lockstep::data {

bool detail::truth(const Tensor& tensor) {
  require(tensor.dtype() == DType::boolean && tensor.size() == 1, ErrorCode::dtype_mismatch,
          std::source_location::current(), "a predicate must give one bool, it gave ", tensor.spec());
  return tensor.item<bool>();
}

int64_t Dataset::cardinality() const { return node_->cardinality(); }

ElementSpec Dataset::element_spec(std::source_location where) const {
  if (auto known = node_->spec()) return *std::move(known);
  Iterator look(*this, where);
  Element element;
  require(look.next(element), ErrorCode::failed_precondition, where,
          "element_spec: the dataset is empty, so there is no element to look at; say what its stages give "
          "(MapOptions::output)");
  return element.spec();
}

Iterator Dataset::iterator(std::source_location where) const { return Iterator(*this, where); }

struct Iterator::Impl {
  explicit Impl(const NodePtr& node)
      : pipeline(node), root(pipeline.open(*node, nullptr, 0, pipeline.stop_token())) {}
  // Before the cursors go: one of their threads may wait inside another's.
  ~Impl() { pipeline.stop(); }

  Pipeline pipeline;
  std::unique_ptr<Cursor> root;
  bool fresh = true;
};

Iterator::Iterator(const Dataset& dataset, std::source_location where) {
  require(dataset.defined(), ErrorCode::invalid_argument, where, "the dataset is empty: it was never made");
  impl_ = std::make_unique<Impl>(dataset.node());
}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

bool Iterator::next(Element& element) {
  impl_->fresh = false;
  impl_->pipeline.tuner().step();
  Item item;
  try {
    if (!impl_->root->next(item)) return false;
  } catch (const Cancelled&) {
    return false;
  }
  element = std::move(item.element());
  return true;
}

std::optional<Element> Iterator::next() {
  Element element;
  if (!next(element)) return {};
  return element;
}

IteratorState Iterator::save() {
  IteratorState state;
  StateWriter writer(state, impl_->pipeline.known_rows());
  writer.cursor(impl_->pipeline.root_node().name(), *impl_->root);
  return state;
}

void Iterator::restore(const IteratorState& state, std::source_location where) {
  if (!impl_->fresh) *this = Iterator(Dataset(impl_->pipeline.root_ptr()), where);
  const StateReader reader(state, impl_->pipeline.known_rows(), where);
  reader.cursor(impl_->pipeline.root_node().name(), *impl_->root);
}

void Iterator::cancel() { impl_->pipeline.stop(); }
const Pipeline& Iterator::pipeline() const { return impl_->pipeline; }

}  // namespace lockstep::data
