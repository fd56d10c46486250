// Text of tensors, in the format of TensorFlow's eager tensors, which is NumPy's for the elements.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <sstream>
#include <type_traits>

#include "lockstep/tensor/tensor.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

// NumPy's print options.
constexpr int kPrecision = 8;
constexpr int64_t kThreshold = 1000;
constexpr int64_t kEdgeItems = 3;
constexpr size_t kLineWidth = 75;

// --- numbers -----------------------------------------------------------------------------------------------

double to_double(BFloat16 x) { return static_cast<float>(x); }
double to_double(Float16 x) { return static_cast<float>(x); }
double to_double(float x) { return x; }
double to_double(double x) { return x; }

std::string formatted(const char* format, int precision, double x) {
  char buffer[400];
  return {buffer, static_cast<size_t>(std::snprintf(buffer, sizeof buffer, format, precision, x))};
}

// The fewest digits that name this value and no other of its type, as "d.ddde+XX" without a sign.
template <class T>
std::string shortest_scientific(T x) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    char buffer[64];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, std::abs(x), std::chars_format::scientific);
    return {buffer, end.ptr};
  } else {
    const double value = std::abs(to_double(x));
    for (int precision = 0;; ++precision) {
      const std::string text = formatted("%.*e", precision, value);
      if (static_cast<double>(static_cast<float>(T(std::stof(text)))) == value) return text;
    }
  }
}

// A finite number: 0.d1d2d3... * 10^point, the digits without zeros at either end.
struct Decimal {
  bool negative = false;
  std::string digits;
  int point = 0;
};

Decimal parse_scientific(const std::string& text, bool negative) {
  Decimal d;
  d.negative = negative;
  const size_t e = text.find('e');
  for (const char c : text.substr(0, e))
    if (c != '.') d.digits += c;
  d.point = std::stoi(text.substr(e + 1)) + 1;
  d.digits.erase(d.digits.find_last_not_of('0') + 1);
  if (d.digits.empty()) d.point = 1;
  return d;
}

// Shortest digits, but all of those before the point, and at most kPrecision behind it.
template <class T>
Decimal positional_digits(T x) {
  const double value = to_double(x);
  Decimal d = parse_scientific(shortest_scientific(x), std::signbit(value));
  const int behind = static_cast<int>(d.digits.size()) - d.point;
  if (behind >= 0 && behind <= kPrecision) return d;
  const std::string text = formatted("%.*f", behind < 0 ? 0 : kPrecision, std::abs(value));
  d.digits.clear();
  for (const char c : text)
    if (c != '.') d.digits += c;
  d.point = static_cast<int>(std::min(text.find('.'), text.size()));
  const size_t zeros = std::min(d.digits.find_first_not_of('0'), d.digits.size());
  d.digits.erase(0, zeros);
  d.point -= static_cast<int>(zeros);
  d.digits.erase(d.digits.find_last_not_of('0') + 1);
  if (d.digits.empty()) d.point = 1;
  return d;
}

template <class T>
Decimal scientific_digits(T x) {
  const double value = to_double(x);
  const Decimal d = parse_scientific(shortest_scientific(x), std::signbit(value));
  if (static_cast<int>(d.digits.size()) <= kPrecision + 1) return d;
  return parse_scientific(formatted("%.*e", kPrecision, std::abs(value)), d.negative);
}

std::string integer_part(const Decimal& d) {
  std::string text = d.negative ? "-" : "";
  if (d.point <= 0 || d.digits.empty()) return text + "0";
  for (int i = 0; i < d.point; ++i)
    text += i < static_cast<int>(d.digits.size()) ? d.digits[static_cast<size_t>(i)] : '0';
  return text;
}

std::string fraction_part(const Decimal& d) {
  if (d.digits.empty()) return "";
  if (d.point <= 0) return std::string(static_cast<size_t>(-d.point), '0') + d.digits;
  return d.point < static_cast<int>(d.digits.size()) ? d.digits.substr(static_cast<size_t>(d.point)) : "";
}

std::string exponent_part(const Decimal& d, size_t width) {
  const int exponent = d.digits.empty() ? 0 : d.point - 1;
  std::string number = std::to_string(std::abs(exponent));
  if (number.size() < width) number.insert(0, width - number.size(), '0');
  return std::string(exponent < 0 ? "e-" : "e+").append(number);
}

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string not_finite(double x) { return std::isnan(x) ? "nan" : x < 0 ? "-inf" : "inf"; }

// All elements get one width, and the same number of digits where exponents are used.
template <class T>
std::vector<std::string> floating_words(const std::vector<T>& elements) {
  std::vector<T> finite;
  bool special = false, negative_infinity = false;
  // Compared and divided in the elements' own precision, as NumPy does.
  using Compared = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Compared largest = 0, smallest = 0;
  for (const T x : elements) {
    const double value = to_double(x);
    if (!std::isfinite(value)) {
      special = true;
      negative_infinity |= value < 0;
      continue;
    }
    finite.push_back(x);
    const auto size = static_cast<Compared>(std::abs(value));
    if (size == 0) continue;
    largest = std::max(largest, size);
    smallest = smallest == 0 ? size : std::min(smallest, size);
  }
  const bool exponents =
      largest >= Compared(1e8) ||
      (smallest > 0 && (smallest < Compared(0.0001) || largest / smallest > Compared(1000)));
  size_t left = 0, right = 0, exponent_width = 2;
  for (const T x : finite) {
    const Decimal d = exponents ? scientific_digits(x) : positional_digits(x);
    if (exponents) {
      left = std::max<size_t>(left, d.negative ? 2 : 1);
      right = std::max(right, d.digits.empty() ? 0 : d.digits.size() - 1);
      exponent_width = std::max(exponent_width, exponent_part(d, 2).size() - 2);
    } else {
      left = std::max(left, integer_part(d).size());
      right = std::max(right, fraction_part(d).size());
    }
  }
  const size_t tail = exponents ? right + 2 + exponent_width : right;
  if (special) {
    const size_t offset = tail + 1;  // the point
    const auto needs = [&](size_t length) { return length > offset ? length - offset : 0; };
    left = std::max({left, needs(3), needs(negative_infinity ? 4 : 3)});
  }
  std::vector<std::string> words;
  for (const T x : elements) {
    const double value = to_double(x);
    if (!std::isfinite(value)) {
      words.push_back(padded(not_finite(value), left + tail + 1));
      continue;
    }
    if (exponents) {
      // Where another element needs more digits, the exact ones are shown.
      const std::string text = formatted("%.*e", static_cast<int>(right), std::abs(value));
      const Decimal d = parse_scientific(text, std::signbit(value));
      const std::string fraction = right > 0 ? text.substr(2, right) : "";
      const std::string first = d.negative ? std::string("-").append(text, 0, 1) : text.substr(0, 1);
      words.push_back(padded(first, left) + '.' + fraction + exponent_part(d, exponent_width));
    } else {
      const Decimal d = positional_digits(x);
      std::string fraction = fraction_part(d);
      fraction.resize(right, ' ');
      words.push_back(padded(integer_part(d), left) + '.' + fraction);
    }
  }
  return words;
}

// A number on its own: all of its digits, with exponents only where it is very large or small.
template <class T>
std::string floating_scalar(T x) {
  const double value = to_double(x);
  if (!std::isfinite(value)) return not_finite(value);
  const Decimal d = parse_scientific(shortest_scientific(x), std::signbit(value));
  const double size = std::abs(value);
  if (size == 0 || (size >= 1e-4 && size < 1e16)) {
    const std::string fraction = fraction_part(d);
    return integer_part(d) + '.' + (fraction.empty() ? "0" : fraction);
  }
  const std::string fraction = d.digits.substr(1);
  std::string text = d.negative ? "-" : "";
  text.append(d.digits, 0, 1);
  if (!fraction.empty()) text.append(".").append(fraction);
  return text.append(exponent_part(d, 2));
}

template <class T>
std::vector<std::string> words_of(const std::vector<T>& elements) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, BFloat16> ||
                std::is_same_v<T, Float16>) {
    return floating_words(elements);
  } else {
    std::vector<std::string> words;
    size_t width = 0;
    for (const T x : elements) {
      words.push_back(std::is_same_v<T, uint8_t> ? std::to_string(static_cast<int>(x)) : std::to_string(x));
      width = std::max(width, words.back().size());
    }
    for (std::string& word : words) word = padded(word, width);
    return words;
  }
}

template <class T>
std::string scalar_text(T x) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, BFloat16> ||
                std::is_same_v<T, Float16>)
    return floating_scalar(x);
  else
    return std::is_same_v<T, uint8_t> ? std::to_string(static_cast<int>(x)) : std::to_string(x);
}

// --- brackets ----------------------------------------------------------------------------------------------

// Which positions of a dimension are shown: all of them, or its two ends.
// `edges`: how many of an end; -1: all.
std::vector<int64_t> shown_positions(int64_t size, int64_t edges) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < size; ++i) {
    if (edges >= 0 && size > 2 * edges && i == edges) i = size - edges;
    if (i == size) break;
    positions.push_back(i);
  }
  return positions;
}

// Words in row-major order become nested brackets; lines break before they pass the width.
class Layout {
 public:
  Layout(const Shape& shape, int64_t edges, const std::vector<std::string>& words)
      : shape_(shape), edges_(edges), words_(words) {}

  std::string text() { return nested(0, " ", kLineWidth); }

 private:
  std::string nested(int axis, const std::string& indent, size_t width) {
    const std::vector<int64_t> positions = shown_positions(shape_[axis], edges_);
    const bool cut = static_cast<int64_t>(positions.size()) < shape_[axis];
    std::string text;
    if (axis == shape_.rank() - 1) {
      std::string line = indent;
      const auto extend = [&](const std::string& word) {
        // A line that holds nothing yet cannot be made shorter.
        if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
          line.erase(line.find_last_not_of(' ') + 1);
          text += line + '\n';
          line = indent;
        }
        line += word;
      };
      for (size_t i = 0; i < positions.size(); ++i) {
        if (cut && static_cast<int64_t>(i) == edges_) {
          extend("...");
          line += ' ';
        }
        extend(words_[next_++]);
        if (i + 1 < positions.size()) line += ' ';
      }
      text += line;
    } else {
      const std::string line_end(static_cast<size_t>(shape_.rank() - 1 - axis), '\n');
      for (size_t i = 0; i < positions.size(); ++i) {
        if (cut && static_cast<int64_t>(i) == edges_) text += indent + "..." + line_end;
        text += indent + nested(axis + 1, indent + ' ', width - 1);
        if (i + 1 < positions.size()) text += line_end;
      }
    }
    return '[' + text.substr(indent.size()) + ']';
  }

  const Shape& shape_;
  int64_t edges_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
};

// --- elements ----------------------------------------------------------------------------------------------

// Where elements are, and which are shown.
struct Source {
  const Shape& shape;
  const Strides& strides;
  const void* data;
  Device* device;  // null: host memory
  int64_t edges;
};

// The shown elements in row-major order. One by one: of a large tensor few are shown.
template <class T>
void read_shown(const Source& source, int axis, int64_t offset, std::vector<T>& elements) {
  if (axis == source.shape.rank()) {
    T value;
    const T* from = static_cast<const T*>(source.data) + offset;
    if (source.device)
      backend_of(*source.device).copy_to_host(&value, from, sizeof value);
    else
      value = *from;
    elements.push_back(value);
    return;
  }
  for (const int64_t i : shown_positions(source.shape[axis], source.edges))
    read_shown(source, axis + 1, offset + i * source.strides[axis], elements);
}

template <class T>
std::string text_of(const Source& source) {
  const Shape& shape = source.shape;
  if (shape.size() == 0) return "[]";
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes;  // not vector<bool>: its elements have no addresses
    read_shown(source, 0, 0, bytes);
    if (shape.rank() == 0) return bytes[0] ? "True" : "False";
    std::vector<std::string> words;
    for (const uint8_t b : bytes) words.emplace_back(b ? " True" : "False");
    return Layout(shape, source.edges, words).text();
  } else {
    std::vector<T> elements;
    read_shown(source, 0, 0, elements);
    if (shape.rank() == 0) return scalar_text(elements[0]);
    return Layout(shape, source.edges, words_of(elements)).text();
  }
}

}  // namespace

std::string elements_text(const TensorSpec& spec, const Strides& strides, const void* data, int64_t edges) {
  const Source source{spec.shape, strides, data, nullptr, edges};
  return dispatch(spec.dtype, [&]<class T>() { return text_of<T>(source); });
}

std::string Tensor::to_string() const {
  if (!defined()) return "Tensor(none)";
  std::ostringstream out;
  if (symbolic()) {
    out << "Tensor(symbolic, ";
  } else {
    const Source source{shape(), impl_->strides, impl_->data(), &device(),
                        size() > kThreshold ? kEdgeItems : -1};
    const std::string text = dispatch(dtype(), [&]<class T>() { return text_of<T>(source); });
    out << "tf.Tensor(" << (text.find('\n') == std::string::npos ? "" : "\n") << text << ", ";
  }
  out << "shape=" << shape() << ", dtype=" << dtype() << ')';
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.to_string(); }

}  // namespace lockstep
