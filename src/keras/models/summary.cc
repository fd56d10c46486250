// A model's layers as the table that Keras prints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "keras/functional_graph.h"
#include "keras/models/functional_model.h"
#include "keras/models/sequential_model.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"

namespace lockstep::keras {
namespace {

enum class Align { left, right, center };

struct Column {
  const char* title;
  double end;  // where it ends, as a part of the line
  Align align = Align::left;
};

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string readable_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

// (None, 28, 28)
std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (int d = 0; d < shape.rank(); ++d)
    text += (d > 0 ? ", " : "") + (shape[d] < 0 ? std::string("None") : std::to_string(shape[d]));
  return text + (shape.rank() == 1 ? ",)" : ")");
}

std::string results_text(const LayerCall& call) {
  if (call.results.size() == 1) return shape_text(call.results[0].shape);
  std::string text;
  for (const TensorSpec& result : call.results)
    text += (text.empty() ? "[" : ", ") + shape_text(result.shape);
  return text + "]";
}

// Characters, not bytes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The first `width` characters.
std::string front_of(const std::string& text, size_t width) {
  size_t bytes = 0;
  for (size_t characters = 0; bytes < text.size(); ++bytes)
    if ((text[bytes] & 0xC0) != 0x80 && characters++ == width) break;
  return text.substr(0, bytes);
}

// Lines of at most `width` characters, broken at spaces; a word that is longer ends in an ellipsis.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    // Spaces at the front are an indent.
    const bool indents = end == begin;
    std::string word = text.substr(begin, end - begin);
    const size_t joined = width_of(lines.back()) + 1 + width_of(word);
    if (indents) {
      lines.back() += ' ';
    } else if (lines.back().empty() || lines.back().ends_with(' ')) {
      lines.back() += word;
    } else if (joined <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(std::move(word));
    }
    begin = end + 1;
  }
  for (std::string& line : lines)
    if (width_of(line) > width) line = front_of(line, width - 1) + "…";
  return lines;
}

class Table {
 public:
  // The columns get their parts of the line, then give up equally what margins and borders take.
  Table(std::vector<Column> columns, int line_length) : columns_(std::move(columns)) {
    int before = 0;
    for (const Column& column : columns_) {
      const int end = static_cast<int>(column.end * line_length);
      widths_.push_back(static_cast<size_t>(end - before));
      before = end;
    }
    auto left = static_cast<double>(3 * columns_.size() + 1);
    for (size_t c = 0; c < widths_.size(); ++c) {
      const double share = std::nearbyint(left / static_cast<double>(widths_.size() - c));
      widths_[c] = static_cast<size_t>(std::max(1.0, static_cast<double>(widths_[c]) - share));
      left -= share;
    }
  }
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const {
    std::string out = rule("┏", "━", "┳", "┓");
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.emplace_back(column.title);
    out += row(titles, "┃");
    out += rule("┡", "━", "╇", "┩");
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (i > 0) out += rule("├", "─", "┼", "┤");
      out += row(rows_[i], "│");
    }
    return out + rule("└", "─", "┴", "┘");
  }

 private:
  std::string rule(const char* left, const char* line, const char* middle, const char* right) const {
    std::string out = left;
    for (size_t c = 0; c < widths_.size(); ++c) {
      if (c > 0) out += middle;
      for (size_t i = 0; i < widths_[c] + 2; ++i) out += line;
    }
    return out + right + "\n";
  }

  std::string row(const std::vector<std::string>& cells, const char* border) const {
    std::vector<std::vector<std::string>> lines;
    size_t height = 1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      lines.push_back(wrapped(cells[c], widths_[c]));
      height = std::max(height, lines.back().size());
    }
    std::string out;
    for (size_t i = 0; i < height; ++i) {
      for (size_t c = 0; c < columns_.size(); ++c) {
        const std::string cell = i < lines[c].size() ? lines[c][i] : "";
        const size_t space = widths_[c] - std::min(widths_[c], width_of(cell));
        const size_t before = columns_[c].align == Align::right    ? space
                              : columns_[c].align == Align::center ? space / 2
                                                                   : 0;
        out += std::string(border) + " " + std::string(before, ' ') + cell +
               std::string(space - before, ' ') + " ";
      }
      out += std::string(border) + "\n";
    }
    return out;
  }

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

int64_t count(const std::vector<Variable>& variables) {
  int64_t total = 0;
  for (const Variable& variable : variables) total += variable.shape().size();
  return total;
}
int64_t bytes(const std::vector<Variable>& variables) {
  int64_t total = 0;
  for (const Variable& variable : variables) total += static_cast<int64_t>(variable.spec().bytes());
  return total;
}

std::string params_line(const char* what, const std::vector<Variable>& variables) {
  return fmt::format(" {}: {} ({})\n", what, with_commas(count(variables)), readable_bytes(bytes(variables)));
}

// What is shown of one layer of a model.
struct Row {
  Layer layer;
  std::string output;
  std::string connections;
};

// The values a call is given, masks and states included.
KerasTensorList operands_of(const LayerCall& call) {
  KerasTensorList operands = call.inputs;
  const KerasTensorList others = values_of(call.options);
  operands.insert(operands.end(), others.begin(), others.end());
  return operands;
}

std::vector<Row> rows_of(const ModelBase& model) {
  std::vector<Row> rows;
  if (const auto* functional = dynamic_cast<const FunctionalModel*>(&model)) {
    std::map<const LayerCall*, int> index;
    std::map<const LayerBase*, int> calls;
    for (const auto& call : functional->graph().calls) index[call.get()] = calls[call->layer.base().get()]++;
    for (const Layer& layer : functional->graph().layers) {
      Row row{layer, "?", ""};
      for (const auto& call : functional->graph().calls) {
        if (!(call->layer == layer)) continue;
        row.output = results_text(*call);
        for (const KerasTensor& input : operands_of(*call))
          row.connections += fmt::format("{}{}[{}][{}]", row.connections.empty() ? "" : ", ", input.name(),
                                         index[input.impl()->call.get()], input.impl()->output);
      }
      if (row.connections.empty()) row.connections = "-";
      rows.push_back(std::move(row));
    }
    return rows;
  }
  const auto* sequential = dynamic_cast<const SequentialModel*>(&model);
  for (size_t i = 0; i < model.layers().size(); ++i) {
    Row row{model.layers()[i], "?", ""};
    if (sequential && i < sequential->values().size())
      row.output = shape_text(sequential->values()[i].shape());
    rows.push_back(std::move(row));
  }
  return rows;
}

// Whether some value goes elsewhere than to the next layer: then the table says from where.
bool is_chain(const FunctionalModel& model) {
  std::map<const LayerBase*, int> calls;
  std::map<const LayerCall*, int> readers;
  for (const auto& call : model.graph().calls) {
    if (++calls[call->layer.base().get()] > 1 || operands_of(*call).size() > 1) return false;
    for (const KerasTensor& input : call->inputs)
      if (++readers[input.impl()->call.get()] > 1) return false;
  }
  return model.inputs().size() == 1 && model.outputs().size() == 1;
}

// Keras shows the name of the Python class, which for this one is not the name that files know it by.
std::string shown_class(const Layer& layer) {
  return layer.class_name() == "GroupQueryAttention" ? "GroupedQueryAttention" : layer.class_name();
}

void add_rows(Table& table, const ModelBase& model, const SummaryOptions& options, bool connections,
              int depth) {
  for (const Row& row : rows_of(model)) {
    const std::string indent = depth > 0 ? std::string(static_cast<size_t>(3 * depth), ' ') + "└ " : "";
    const bool unbuilt = !row.layer.built() && row.layer.weights().empty();
    std::vector<std::string> cells = {indent + row.layer.name() + " (" + shown_class(row.layer) + ")",
                                      row.output,
                                      unbuilt ? "0 (unbuilt)" : with_commas(count(row.layer.weights()))};
    if (connections) cells.push_back(depth > 0 ? "" : row.connections);
    if (options.show_trainable)
      cells.emplace_back(row.layer.weights().empty() ? "-" : row.layer.trainable() ? "Y" : "N");
    table.add(std::move(cells));
    if (const auto* inner = dynamic_cast<const ModelBase*>(row.layer.base().get());
        inner && options.expand_nested)
      add_rows(table, *inner, options, connections, depth + 1);
  }
}

}  // namespace

void Model::summary(const SummaryOptions& options, std::source_location where) const {
  ModelBase& model = model_base(where);
  const auto* functional = dynamic_cast<const FunctionalModel*>(&model);
  const bool connections = functional && !is_chain(*functional);
  std::vector<Column> columns = {
      {"Layer (type)", 0.45}, {"Output Shape", 0.8}, {"Param #", 1.0, Align::right}};
  if (connections)
    columns = {{"Layer (type)", 0.3},
               {"Output Shape", 0.56},
               {"Param #", 0.74, Align::right},
               {"Connected to", 1.0}};
  int line_length = connections ? 108 : 88;
  if (options.show_trainable) {
    line_length += 12;
    for (Column& column : columns) column.end *= 0.9;
    columns.push_back({"Trainable", 1.0, Align::center});
  }
  line_length = options.line_length > 0 ? options.line_length
                                        : std::min(line_length, terminal::columns().value_or(80) - 4);
  require(line_length >= 40, ErrorCode::invalid_argument, where,
          "summary: line_length must be at least 40, received ", line_length);
  Table table(columns, line_length);
  add_rows(table, model, options, connections, 0);

  std::string out = fmt::format("Model: \"{}\"\n{}", name(), table.text());
  const std::vector<Variable> trainable = trainable_weights(), frozen = non_trainable_weights();
  std::vector<Variable> all = weights(), slots;
  if (model.trainer().compiled()) {
    slots = model.trainer().options().optimizer.variables();
    // Before the first step there are only the counters, which Keras leaves out.
    if (slots.size() <= 2) slots.clear();
  }
  all.insert(all.end(), slots.begin(), slots.end());
  out += params_line("Total params", all) + params_line("Trainable params", trainable) +
         params_line("Non-trainable params", frozen);
  if (!slots.empty()) out += params_line("Optimizer params", slots);
  if (options.print_fn)
    options.print_fn(out);
  else
    std::cout << out << std::flush;
}

}  // namespace lockstep::keras
