#include "data/node.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMostLogged = 5;

class IgnoreErrorsCursor final : public Cursor {
 public:
  IgnoreErrorsCursor(const Opening& opening, const Node& input, const IgnoreErrorsOptions& options)
      : Cursor(opening.stage), options_(options), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.number("skipped", skipped_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    skipped_ = state.number("skipped");
    state.cursor("input", *input_);
  }

 private:
  bool too_many() const { return options_.most >= 0 && skipped_ > options_.most; }
  bool advance(Item& item) override {
    while (!too_many()) {
      try {
        return input_->next(item);
      } catch (Error& error) {
        ++skipped_;
        if (too_many()) {
          error.note(detail::concat("ignore_errors: more than ", options_.most, " elements failed"));
          throw;
        }
        stage().skipped.fetch_add(1, std::memory_order_relaxed);
        if (options_.log_warning && skipped_ <= kMostLogged)
          log(LogLevel::warning, "ignore_errors: an element is left out: ", error.what(),
              skipped_ == kMostLogged ? "; further ones are only counted" : "");
      }
    }
    return false;
  }

  IgnoreErrorsOptions options_;
  std::unique_ptr<Cursor> input_;
  int64_t skipped_ = 0;
};

class IgnoreErrorsNode final : public FilteringNode<IgnoreErrorsNode> {
 public:
  IgnoreErrorsNode(NodePtr input, const IgnoreErrorsOptions& options, std::source_location where)
      : FilteringNode("ignore_errors", {std::move(input)}, where), options_(options) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<IgnoreErrorsCursor>(opening, input(), options_);
  }
  int64_t cardinality() const override {
    const int64_t inputs = input().cardinality();
    return inputs == 0 ? 0 : kUnknown;
  }
  bool shares_files() const override { return true; }

 private:
  IgnoreErrorsOptions options_;
};

}  // namespace

Dataset Dataset::ignore_errors(const IgnoreErrorsOptions& options, std::source_location where) const {
  return Dataset(std::make_shared<IgnoreErrorsNode>(node_, options, where));
}

}  // namespace lockstep::data
