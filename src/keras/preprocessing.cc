#include "lockstep/keras/preprocessing.h"

#include <algorithm>
#include <cmath>

#include "keras/permutation.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras::utils {
namespace {

std::vector<int64_t> integers(const Tensor& labels, std::source_location where) {
  return dispatch(labels.dtype(), [&]<class T>() -> std::vector<int64_t> {
    std::vector<int64_t> result;
    for (const T value : labels.to_vector<T>(where)) {
      if constexpr (std::is_integral_v<T>) {
        result.push_back(static_cast<int64_t>(value));
      } else {
        const auto number = static_cast<double>(static_cast<float>(value));
        require(number == std::floor(number) && std::abs(number) < 1e15, ErrorCode::invalid_argument, where,
                "to_categorical: labels are integers, received ", number);
        result.push_back(static_cast<int64_t>(number));
      }
    }
    return result;
  });
}

bool is_post(const char* option, const std::string& side, std::source_location where) {
  require(side == "pre" || side == "post", ErrorCode::invalid_argument, where, "pad_sequences: ", option,
          " is \"pre\" or \"post\", received \"", side, "\"");
  return side == "post";
}

// Rows of `table` (of its first dimension), in this order, as a tensor of `shape`.
Tensor gather_rows(const Tensor& table, const std::vector<int64_t>& rows, const Shape& shape,
                   std::source_location where) {
  return dispatch(table.dtype(), [&]<class T>() {
    // Booleans too are bytes.
    using Element = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const auto elements = table.to_vector<T>(where);
    const std::vector<Element> from(elements.begin(), elements.end());
    const size_t width = from.size() / static_cast<size_t>(std::max<int64_t>(table.shape()[0], 1));
    std::vector<Element> to;
    to.reserve(rows.size() * width);
    for (const int64_t row : rows) {
      const auto first = from.begin() + row * static_cast<int64_t>(width);
      to.insert(to.end(), first, first + static_cast<int64_t>(width));
    }
    if constexpr (std::is_same_v<T, bool>)
      return Tensor::from(std::vector<bool>(to.begin(), to.end()), shape, where);
    else
      return Tensor::from(to, shape, where);
  });
}

}  // namespace

void set_random_seed(uint64_t seed) { random::set_seed(seed); }

Tensor to_categorical(const Tensor& labels, int64_t num_classes, std::source_location where) {
  const std::vector<int64_t> values = integers(labels, where);
  Shape shape = labels.shape();
  if (shape.rank() > 1 && shape[-1] == 1) shape = shape.drop_last(1);
  if (num_classes == 0)
    num_classes = values.empty() ? 0 : *std::max_element(values.begin(), values.end()) + 1;
  shape.push_back(num_classes);
  std::vector<float> rows(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    require(values[i] >= 0 && values[i] < num_classes, ErrorCode::invalid_argument, where,
            "to_categorical: label ", values[i], " at position ", i, " is not one of ", num_classes,
            " classes");
    rows[i * static_cast<size_t>(num_classes) + static_cast<size_t>(values[i])] = 1;
  }
  return Tensor::from(rows, shape, where);
}

Tensor normalize(const Tensor& x, int axis, int order, std::source_location where) {
  require(is_floating(x.dtype()), ErrorCode::dtype_mismatch, where,
          "normalize: x must be floating, received ", x.spec(), "; cast() it first");
  require(order >= 1, ErrorCode::invalid_argument, where, "normalize: order is at least 1, received ", order);
  const int along = normalize_axis(axis, x.rank(), "normalize", where);
  int64_t inner = 1;
  for (int i = along + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  const int64_t length = x.shape()[along];
  const int64_t outer = x.size() == 0 ? 0 : x.size() / (inner * length);
  return dispatch(x.dtype(), [&]<class T>() -> Tensor {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      std::vector<T> values = x.to_vector<T>(where);
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < inner; ++i) {
          T* first = &values[static_cast<size_t>(o * length * inner + i)];
          double sum = 0;
          for (int64_t k = 0; k < length; ++k)
            sum += std::pow(std::abs(static_cast<double>(static_cast<Wide>(first[k * inner]))), order);
          const double norm = sum == 0 ? 1 : std::pow(sum, 1.0 / order);
          for (int64_t k = 0; k < length; ++k)
            first[k * inner] = T(static_cast<Wide>(static_cast<Wide>(first[k * inner]) / norm));
        }
      }
      return Tensor::from(values, x.shape(), where);
    }
  });
}

Tensor pad_sequences(const std::vector<std::vector<int32_t>>& sequences, const PadOptions& options,
                     std::source_location where) {
  const bool pad_post = is_post("padding", options.padding, where);
  const bool cut_post = is_post("truncating", options.truncating, where);
  require(options.maxlen >= 0, ErrorCode::invalid_argument, where,
          "pad_sequences: maxlen must not be negative, received ", options.maxlen);
  int64_t length = options.maxlen;
  if (length == 0)
    for (const auto& sequence : sequences) length = std::max(length, std::ssize(sequence));
  std::vector<int32_t> padded(sequences.size() * static_cast<size_t>(length), options.value);
  auto row = padded.begin();
  for (const auto& sequence : sequences) {
    const int64_t kept = std::min(length, std::ssize(sequence));
    const auto first = cut_post ? sequence.begin() : sequence.end() - kept;
    std::copy_n(first, kept, pad_post ? row : row + (length - kept));
    row += length;
  }
  return Tensor::from(padded, {std::ssize(sequences), length}, where);
}

datasets::Examples timeseries_dataset_from_array(const Tensor& data, const Tensor& targets,
                                                 int64_t sequence_length, const TimeseriesOptions& options,
                                                 std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "timeseries_dataset_from_array: ", rule...);
  };
  check(data.rank() >= 1 && (!targets.defined() || targets.rank() >= 1),
        "data and targets need a first dimension");
  check(sequence_length >= 1 && options.sequence_stride >= 1 && options.sampling_rate >= 1,
        "sequence_length, sequence_stride and sampling_rate are at least 1, received ", sequence_length, ", ",
        options.sequence_stride, " and ", options.sampling_rate);
  const int64_t steps = data.shape()[0];
  const int64_t end = options.end_index == 0 ? steps : options.end_index;
  check(options.start_index >= 0 && options.start_index <= end && end <= steps, "start_index ",
        options.start_index, " and end_index ", end, " do not fit data of ", steps, " steps");
  // A window may not be longer than the data, and the product may not overflow on the way to knowing that.
  int64_t windows = sequence_length - 1 > steps / options.sampling_rate
                        ? 0
                        : end - options.start_index - (sequence_length - 1) * options.sampling_rate;
  if (targets.defined()) windows = std::min(windows, targets.shape()[0] - options.start_index);
  std::vector<int64_t> starts;
  for (int64_t start = 0; start < windows; start += options.sequence_stride)
    starts.push_back(options.start_index + start);
  if (options.shuffle) shuffle(starts, options.seed);

  std::vector<int64_t> rows;
  rows.reserve(starts.size() * static_cast<size_t>(sequence_length));
  for (const int64_t start : starts)
    for (int64_t i = 0; i < sequence_length; ++i) rows.push_back(start + i * options.sampling_rate);
  Shape shape = data.shape();
  shape[0] = sequence_length;
  shape.insert(0, std::ssize(starts));
  datasets::Examples examples{gather_rows(data, rows, shape, where), {}};
  if (targets.defined()) {
    Shape target_shape = targets.shape();
    target_shape[0] = std::ssize(starts);
    examples.y = gather_rows(targets, starts, target_shape, where);
  }
  return examples;
}

}  // namespace lockstep::keras::utils
