// A dataset is a tree of nodes, an iterator over it a tree of cursors.
//
// Nodes are immutable and shared: what to do. Cursors do it and have a position. A node's file holds its
// cursor and the Dataset method that makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "data/item.h"
#include "data/iteration.h"
#include "data/stage.h"
#include "data/state.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

class Pipeline;

// Thrown out of the wait of a stage that is being stopped. Never reaches a user.
struct Cancelled {};

// One pass over a node's elements. Used by one thread at a time.
class Cursor {
 public:
  explicit Cursor(Stage& stage) : stage_(stage) {}
  virtual ~Cursor() = default;
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  // False at the end, and from then on. An Error concerns one element: the next call goes on behind it.
  bool next(Item& item) {
    const StageTimer timer(stage_);
    try {
      if (!advance(item)) return false;
    } catch (Error& error) {
      error.locate(stage_.where);
      throw;
    }
    stage_.elements.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  // The position between two calls of next(). Where threads work ahead they are made to wait meanwhile.
  virtual void save(StateWriter& state) = 0;
  // Only on a cursor that has given nothing yet.
  virtual void restore(const StateReader& state) = 0;

 protected:
  virtual bool advance(Item& item) = 0;
  Stage& stage() const { return stage_; }

 private:
  Stage& stage_;
};

class Node;

// What a cursor is opened with.
struct Opening {
  Pipeline& pipeline;
  Stage& stage;          // the node's own
  std::stop_token stop;  // asked to stop: waits end by throwing Cancelled
  // Which pass over the node this is: what its random choices are keyed by, besides their seed. Follows from
  // the iteration and from where the node stands in the dataset, never from what else runs.
  uint64_t pass = 0;

  // For the number-th of several passes over an input, or of several datasets that a function made.
  Opening of(int64_t number) const;
  // The cursor of one of the node's inputs, or of a dataset that a function made. `slot` tells inputs of one
  // stage apart. A stage with threads passes the token that stops them.
  std::unique_ptr<Cursor> open(const Node& node, size_t slot = 0) const { return open(node, slot, stop); }
  std::unique_ptr<Cursor> open(const Node& node, size_t slot, std::stop_token stop) const;
};

class Node {
 public:
  Node(std::string name, std::vector<NodePtr> inputs, std::source_location where)
      : name_(std::move(name)), inputs_(std::move(inputs)), where_(CallSite::of(where)) {
    for (const NodePtr& input : inputs_)
      require(input != nullptr, ErrorCode::invalid_argument, where, name_,
              ": the dataset was default-constructed: it has no elements to work on");
  }
  virtual ~Node() = default;

  const std::string& name() const { return name_; }
  const std::vector<NodePtr>& inputs() const { return inputs_; }
  std::source_location where() const { return where_; }

  // Says nothing of files that are not there and the like: that is for the first next() to throw.
  virtual std::unique_ptr<Cursor> open(const Opening& opening) const = 0;
  // Nullopt where it takes a look at an element to know.
  virtual std::optional<ElementSpec> spec() const = 0;
  // kInfinite, kUnknown or a number.
  virtual int64_t cardinality() const = 0;
  // What is shown of its arguments: "128", "num_parallel_calls=2".
  virtual std::string arguments() const { return {}; }
  // The arrays whose rows it gives.
  virtual std::shared_ptr<const Rows> rows() const { return nullptr; }
  // How many files it reads; 0: it is no source of files.
  virtual int64_t files() const { return 0; }
  // The same source with every count-th of its files. Null where it is no such source, or where there are
  // fewer than `count`.
  virtual NodePtr shard_files(int64_t /*count*/, int64_t /*index*/) const { return nullptr; }
  // Whether workers that each read a part of the files still get together what one alone would.
  virtual bool shares_files() const { return false; }
  // Whether it gives its input's elements as they are, each of them, in their order.
  virtual bool hands_on() const { return false; }
  // Why the order of its elements may be another in another process that makes the same dataset: "has no
  // seed". Empty: it is not.
  virtual std::string order_hazard(const Options& /*options*/) const { return {}; }
  // What the order of its elements is drawn from, where it is drawn.
  virtual std::optional<uint64_t> order_seed() const { return {}; }
  // The same node on other inputs.
  virtual NodePtr with_inputs(std::vector<NodePtr> inputs) const = 0;
  const Iterations& iterations() const { return iterations_; }

 protected:
  Node(const Node&) = default;
  const Node& input() const { return *inputs_[0]; }

  std::string name_;
  std::vector<NodePtr> inputs_;
  std::source_location where_;
  Iterations iterations_;
};

// class BatchNode final : public NodeOf<BatchNode>
template <class Self>
class NodeOf : public Node {
 public:
  using Node::Node;
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    auto copy = std::make_shared<Self>(static_cast<const Self&>(*this));
    copy->inputs_ = std::move(inputs);
    return copy;
  }
};

// A node that hands on its input's elements as they are, all or some.
template <class Self>
class FilteringNode : public NodeOf<Self> {
 public:
  using NodeOf<Self>::NodeOf;
  std::optional<ElementSpec> spec() const override { return this->input().spec(); }
};

inline constexpr int64_t kInfinite = INFINITE_CARDINALITY;
inline constexpr int64_t kUnknown = UNKNOWN_CARDINALITY;

// Adds "in element 12 of map [main.cc:20]" to what is thrown while it lives, and makes an Error of any
// exception.
template <class F>
decltype(auto) in_element(const Stage& stage, int64_t index, F&& f) {
  const auto note = [&] {
    return detail::concat("in element ", index, " of ", stage.name, " [", stage.where.file_name(), ":",
                          stage.where.line(), "]");
  };
  try {
    return f();
  } catch (Error& error) {
    error.note(note());
    throw;
  } catch (const std::exception& error) {
    lockstep::detail::throw_error(ErrorCode::invalid_argument, error.what(), stage.where, {note()});
  }
}

}  // namespace lockstep::data
