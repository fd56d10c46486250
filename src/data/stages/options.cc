#include "data/stages/options.h"

namespace lockstep::data {
namespace {

class OptionsNode final : public FilteringNode<OptionsNode> {
 public:
  OptionsNode(NodePtr input, const Options& options, std::source_location where)
      : FilteringNode("options", {std::move(input)}, where), options_(options) {}

  const Options& options() const { return options_; }
  // No stage of its own: its input's cursor.
  std::unique_ptr<Cursor> open(const Opening& opening) const override { return opening.open(input()); }
  bool shares_files() const override { return true; }
  bool hands_on() const override { return true; }
  int64_t cardinality() const override { return input().cardinality(); }

 private:
  Options options_;
};

}  // namespace

Options options_of(const Node& node) {
  if (const auto* found = dynamic_cast<const OptionsNode*>(&node)) return found->options();
  return node.inputs().size() == 1 ? options_of(*node.inputs()[0]) : Options();
}

Dataset Dataset::with_options(const Options& options, std::source_location where) const {
  require(options.threads >= 0 && options.memory_budget >= 0, ErrorCode::invalid_argument, where,
          "with_options: threads and memory_budget must not be negative, received ", options.threads, " and ",
          options.memory_budget);
  return Dataset(std::make_shared<OptionsNode>(node_, options, where));
}

}  // namespace lockstep::data
