#include <algorithm>
#include <optional>
#include <string_view>

#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

struct EinsumDenseSettings {
  Dims output_shape;
  std::string equation;
  EinsumDenseOptions options;
  void visit(auto& v) {
    v("output_shape", output_shape, at_least(-1));
    v("equation", equation);
    v("activation", options.activation);
    v("bias_axes", options.bias_axes);
    v("kernel_initializer", options.kernel_initializer);
    v("bias_initializer", options.bias_initializer);
    v("kernel_regularizer", options.kernel_regularizer);
    v("bias_regularizer", options.bias_regularizer);
    v("activity_regularizer", options.activity_regularizer);
    v("kernel_constraint", options.kernel_constraint);
    v("bias_constraint", options.bias_constraint);
  }
};

// Initializers that look at the number of inputs and outputs are told which dimensions those are.
Initializer with_fans(const Initializer& initializer, const std::vector<int64_t>& input_axes,
                      const std::vector<int64_t>& output_axes) {
  Json json = initializer.serialize();
  Json& config = json["config"];
  if (!config.contains("input_axes") || !config.at("input_axes").is_null()) return initializer;
  config.set("input_axes", to_json(input_axes));
  config.set("output_axes", to_json(output_axes));
  return Initializer::deserialize(json);
}

// One operand of the equation: letters, with "..." before or behind them.
struct Term {
  bool left = false, right = false;
  std::string letters;
  bool elided() const { return left || right; }
};

// Nothing where the text is no operand.
std::optional<Term> term(std::string_view text) {
  constexpr std::string_view kDots = "...";
  Term made;
  made.left = text.starts_with(kDots);
  if (made.left) text.remove_prefix(kDots.size());
  made.right = text.ends_with(kDots);
  if (made.right) text.remove_suffix(kDots.size());
  made.letters = text;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_letter)) return std::nullopt;
  return made;
}

class EinsumDenseLayer final : public ConfiguredLayer<EinsumDenseSettings> {
 public:
  static constexpr const char* kClassName = "EinsumDense";
  EinsumDenseLayer(const char* class_name, EinsumDenseSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const std::string_view equation = settings_.equation;
    const size_t comma = equation.find(','), arrow = equation.find("->");
    std::optional<Term> input, kernel, output;
    if (comma != equation.npos && arrow != equation.npos && comma < arrow) {
      input = term(equation.substr(0, comma));
      kernel = term(equation.substr(comma + 1, arrow - comma - 1));
      output = term(equation.substr(arrow + 2));
    }
    require(input && kernel && output && !kernel->elided() && input->left == output->left &&
                input->right == output->right && !(input->left && input->right),
            ErrorCode::invalid_argument, std::source_location::current(),
            "EinsumDense: the equation must have the form X,Y->Z, ...X,Y->...Z or X...,Y->Z..., received \"",
            settings_.equation, "\"");
    left_elided_ = input->left;
    input_ = input->letters;
    kernel_letters_ = kernel->letters;
    output_ = output->letters;
    for (const std::string& letters : {input_, kernel_letters_, output_})
      for (const char letter : letters)
        require(std::count(letters.begin(), letters.end(), letter) == 1, ErrorCode::invalid_argument,
                std::source_location::current(), "EinsumDense: '", letter, "' stands twice in \"", letters,
                "\" of \"", settings_.equation, "\"");
    elides_ = input->elided();
  }

  void build(const Shape& input) override {
    const EinsumDenseOptions& o = settings_.options;
    const int elided = input.rank() - static_cast<int>(input_.size());
    require(elides_ ? elided >= 0 : elided == 0, ErrorCode::shape_mismatch, where(), "EinsumDense: \"",
            settings_.equation, "\" does not fit an input of shape ", input);
    // "..." as letters of its own.
    const std::string used = input_ + kernel_letters_ + output_;
    std::string dots;
    for (char letter = 'A'; static_cast<int>(dots.size()) < elided; ++letter)
      if (used.find(letter) == std::string::npos) dots += letter;
    const std::string in = left_elided_ ? dots + input_ : input_ + dots;
    const std::string out = left_elided_ ? dots + output_ : output_ + dots;

    const auto input_size = [&](char letter) {
      const size_t at = in.find(letter);
      return at == std::string::npos ? -1 : input[static_cast<int>(at)];
    };
    // output_shape runs over the letters of the output behind the batch, without the dots'.
    Shape sizes;
    size_t next = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const bool given = i > 0 && dots.find(out[i]) == std::string::npos;
      if (given)
        require(next < static_cast<size_t>(settings_.output_shape.rank()), ErrorCode::shape_mismatch, where(),
                "EinsumDense: output_shape ", settings_.output_shape, " is shorter than the output of \"",
                settings_.equation, "\" without its batch");
      const int64_t wanted = given ? settings_.output_shape[static_cast<int>(next++)] : -1;
      const int64_t found = input_size(out[i]);
      require(wanted < 0 || in.find(out[i]) == std::string::npos || wanted == found,
              ErrorCode::shape_mismatch, where(), "EinsumDense: dimension '", out[i], "' is ", found,
              " in the input ", input, " and ", wanted, " in output_shape ", settings_.output_shape);
      sizes.push_back(wanted >= 0 ? wanted : found);
    }
    require(next == static_cast<size_t>(settings_.output_shape.rank()), ErrorCode::shape_mismatch, where(),
            "EinsumDense: output_shape ", settings_.output_shape, " is longer than the output of \"",
            settings_.equation, "\" without its batch");
    for (const char letter : out)
      require((in + kernel_letters_).find(letter) != std::string::npos, ErrorCode::invalid_argument, where(),
              "EinsumDense: '", letter, "' of the output is in neither the input nor the kernel of \"",
              settings_.equation, "\"");

    Shape kernel;
    std::vector<int64_t> input_axes, output_axes;
    for (const char letter : kernel_letters_) {
      const size_t at = out.find(letter);
      require(at != std::string::npos || in.find(letter) != std::string::npos, ErrorCode::invalid_argument,
              where(), "EinsumDense: '", letter,
              "' of the kernel is in neither the input nor the output of \"", settings_.equation, "\"");
      (at == std::string::npos ? input_axes : output_axes).push_back(kernel.rank());
      kernel.push_back(at == std::string::npos ? input_size(letter) : sizes[static_cast<int>(at)]);
    }
    kernel_ = add_weight("kernel", kernel,
                         {.initializer = with_fans(o.kernel_initializer, input_axes, output_axes),
                          .regularizer = o.kernel_regularizer,
                          .constraint = o.kernel_constraint});
    const std::string made = kernel_letters_.substr(input_axes.size());
    const std::string lead = in.substr(0, in.size() - std::min(in.size(), input_axes.size()));
    if (!lead.empty() && !made.empty() && in == lead + kernel_letters_.substr(0, input_axes.size()) &&
        out == lead + made && (!o.bias_axes || o.bias_axes->empty() || *o.bias_axes == made) &&
        kernel.size() > 0)
      summed_ = static_cast<int>(input_axes.size());
    if (!o.bias_axes || o.bias_axes->empty()) return;

    // From the first letter of the bias on, 1 where it has none.
    size_t first = out.size();
    for (const char letter : *o.bias_axes) {
      require(output_.find(letter) != std::string::npos, ErrorCode::invalid_argument, where(),
              "EinsumDense: bias_axes names '", letter, "', which the output of \"", settings_.equation,
              "\" has not");
      first = std::min(first, out.find(letter));
    }
    Shape bias;
    for (size_t i = first; i < out.size(); ++i)
      bias.push_back(o.bias_axes->find(out[i]) != std::string::npos ? sizes[static_cast<int>(i)] : 1);
    bias_ = add_weight("bias", bias,
                       {.initializer = o.bias_initializer,
                        .regularizer = o.bias_regularizer,
                        .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& given, const CallContext&) override {
    const Tensor x = is_floating(given.dtype()) ? given : cast(given, compute_dtype());
    if (summed_ > 0) return settings_.options.activation(product(x));
    const Tensor y = einsum(settings_.equation, {x, kernel_.value()});
    return settings_.options.activation(bias_.defined() ? y + bias_ : y);
  }

 private:
  // The equation sums over the last `summed_` dimensions of x, which are the kernel's first, and the bias has
  // all of its others: a matrix product, which adds the bias itself.
  Tensor product(const Tensor& x) const {
    const Tensor kernel = kernel_.value();
    const Shape lead = x.shape().drop_last(summed_);
    int64_t inner = 1;
    for (int d = 0; d < summed_; ++d) inner *= kernel.shape()[d];
    Shape rows = lead, result = lead;
    rows.push_back(inner);
    for (int d = summed_; d < kernel.rank(); ++d) result.push_back(kernel.shape()[d]);
    Tensor y = matmul(summed_ > 1 ? reshape(x, rows) : x, reshape(kernel, {inner, kernel.size() / inner}));
    if (bias_.defined()) y = y + reshape(bias_, {bias_.shape().size()});
    return kernel.rank() > summed_ + 1 ? reshape(y, result) : y;
  }

  std::string input_, kernel_letters_, output_;  // as in the equation, without the dots
  bool elides_ = false;
  bool left_elided_ = false;
  int summed_ = 0;  // see product(); 0: the equation is another one
  Variable kernel_;
  Variable bias_;
};
const RegisterLayer<EinsumDenseLayer> registered;

}  // namespace

Layer EinsumDense(const std::string& equation, const Shape& output_shape, const EinsumDenseOptions& options,
                  std::source_location where) {
  const CallSite site(where);
  return make_configured<EinsumDenseLayer>({output_shape, equation, options});
}

}  // namespace lockstep::keras::layers
