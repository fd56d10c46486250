#include "data/function.h"
#include "data/stages/counting.h"

namespace lockstep::data {
namespace {

struct ScanCall {
  Dataset::ScanFunction function;
  FunctionCaller caller;
};

class ScanCursor final : public CountingStage {
 public:
  ScanCursor(const Opening& opening, const Node& input, const ScanCall& call, Element state)
      : CountingStage(opening, input), call_(call), pass_(opening.pass), state_(std::move(state)) {}
  void save(StateWriter& state) override {
    CountingStage::save(state);
    state.element("state", state_);
  }
  void restore(const StateReader& state) override {
    CountingStage::restore(state);
    state_ = state.element("state");
  }

 private:
  bool advance(Item& item) override {
    if (!input_->next(item)) return false;
    call_.caller(stage(), pass_, at_++, [&] {
      auto [state, element] = call_.function(state_, item.element());
      check(state);
      state_ = std::move(state);
      item = Item(std::move(element));
    });
    return true;
  }
  void check(const Element& state) const {
    const auto dtypes = [](const Element& element) {
      std::vector<DType> all;
      for (const Tensor& tensor : element.flat()) all.push_back(tensor.dtype());
      return all;
    };
    require(state.structure() == state_.structure() && dtypes(state) == dtypes(state_),
            ErrorCode::dtype_mismatch, stage().where,
            "scan: the function must give a state like the one it gets, it got ", state_.spec(), " and gave ",
            state.spec());
  }

  ScanCall call_;
  uint64_t pass_;
  Element state_;
};

class ScanNode final : public NodeOf<ScanNode> {
 public:
  ScanNode(NodePtr input, Element state, Dataset::ScanFunction f, std::source_location where)
      : NodeOf("scan", {std::move(input)}, where), state_(std::move(state)), call_{std::move(f), {}} {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ScanCursor>(opening, input(), call_, state_);
  }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return input().cardinality(); }

 private:
  Element state_;
  ScanCall call_;
};

}  // namespace

Dataset Dataset::scan(const Element& initial_state, ScanFunction f, std::source_location where) const {
  require(initial_state.defined() && f, ErrorCode::invalid_argument, where,
          "scan: there is no initial state, or no function");
  return Dataset(std::make_shared<ScanNode>(node_, initial_state, std::move(f), where));
}

}  // namespace lockstep::data
