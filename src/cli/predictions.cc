#include "cli/predictions.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json.h"
#include "lockstep/ops/math.h"

namespace lockstep::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

// The elements of a tensor as text, each in its shortest form that reads back as the same number.
class Numbers {
 public:
  explicit Numbers(const Tensor& tensor) {
    if (tensor.dtype() == DType::float64)
      take(tensor.to_vector<double>());
    else if (is_floating(tensor.dtype()))
      take(cast(tensor, DType::float32).to_vector<float>());
    else
      take(cast(tensor, DType::int64).to_vector<int64_t>());
  }
  const std::string& operator[](int64_t i) const { return texts_[static_cast<size_t>(i)]; }

 private:
  template <class T>
  void take(const std::vector<T>& values) {
    for (const T value : values) texts_.push_back(fmt::format("{}", value));
  }
  std::vector<std::string> texts_;
};

// JSON has no word for what is not finite.
std::string in_json(const std::string& number) {
  return number.find_first_of("ni") == std::string::npos ? number : "null";
}

int64_t width_of(const Tensor& prediction) {
  const int64_t rows = prediction.shape()[0];
  return rows == 0 ? 0 : prediction.size() / rows;
}

// The elements from `begin` on, as nested lists of the dimensions from `axis` on.
void append_list(const Numbers& numbers, const Shape& shape, int axis, int64_t& begin, std::string& text) {
  if (axis == shape.rank()) {
    text += in_json(numbers[begin++]);
    return;
  }
  text += '[';
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) text += ", ";
    append_list(numbers, shape, axis + 1, begin, text);
  }
  text += ']';
}

std::string csv_lines(const train::NamedTensors& predictions) {
  std::string text;
  std::vector<Numbers> columns;
  for (const auto& [name, prediction] : predictions) {
    columns.emplace_back(prediction);
    const int64_t width = width_of(prediction);
    for (int64_t i = 0; i < width; ++i)
      text += (text.empty() ? "" : ",") + name + (width == 1 ? "" : "_" + std::to_string(i));
  }
  text += '\n';
  for (int64_t row = 0; row < predictions[0].second.shape()[0]; ++row) {
    bool first = true;
    for (size_t k = 0; k < predictions.size(); ++k) {
      const int64_t width = width_of(predictions[k].second);
      for (int64_t i = 0; i < width; ++i) {
        if (!std::exchange(first, false)) text += ',';
        text += columns[k][row * width + i];
      }
    }
    text += '\n';
  }
  return text;
}

template <class T>
void write_npy(AtomicFile& file, const Tensor& tensor, const char* type) {
  std::string shape;
  for (const int64_t size : tensor.shape()) shape += std::to_string(size) + ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  // Magic, version and length take 10 bytes; all of it a multiple of 64, so that the numbers can be mapped.
  header.append(63 - (header.size() + 10) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  file.write(std::string_view("\x93NUMPY\x01\x00", 8));
  file.write(&length, sizeof length);
  file.write(header);
  const std::vector<T> values = tensor.to_vector<T>();
  file.write(values.data(), values.size() * sizeof(T));
}

void write_npy(AtomicFile& file, const Tensor& prediction) {
  if (prediction.dtype() == DType::float64)
    write_npy<double>(file, prediction, "<f8");
  else if (is_floating(prediction.dtype()))
    write_npy<float>(file, cast(prediction, DType::float32), "<f4");
  else
    write_npy<int64_t>(file, cast(prediction, DType::int64), "<i8");
}

}  // namespace

PredictionFormat prediction_format(const std::string& path) {
  if (path.ends_with(".npy")) return PredictionFormat::npy;
  if (path.ends_with(".csv")) return PredictionFormat::csv;
  if (path.ends_with(".jsonl")) return PredictionFormat::jsonl;
  if (path.ends_with(".safetensors")) return PredictionFormat::safetensors;
  fail(ErrorCode::invalid_argument, std::source_location::current(), "--output ", path,
       ": expected a name that ends in .npy, .csv, .jsonl or .safetensors");
}

void write_predictions(const train::NamedTensors& predictions, const std::string& path) {
  const PredictionFormat format = prediction_format(path);
  if (format == PredictionFormat::safetensors) return train::save_safetensors(path, predictions);
  require(format != PredictionFormat::npy || predictions.size() == 1, ErrorCode::invalid_argument,
          std::source_location::current(), "--output ", path, ": the model has ", predictions.size(),
          " outputs, and an .npy file holds one array; use .safetensors, .csv or .jsonl");
  AtomicFile file(path);
  if (format == PredictionFormat::npy)
    write_npy(file, predictions[0].second);
  else
    file.write(format == PredictionFormat::csv ? csv_lines(predictions) : prediction_lines(predictions));
  file.commit();
}

std::string prediction_lines(const train::NamedTensors& predictions) {
  struct Output {
    std::string name;
    Numbers numbers;
    Shape shape;
    int64_t next = 0;
  };
  std::vector<Output> outputs;
  for (const auto& [name, prediction] : predictions)
    outputs.push_back({Json(name).dump(), Numbers(prediction), prediction.shape()});
  std::string text;
  for (int64_t row = 0; row < outputs[0].shape[0]; ++row) {
    if (outputs.size() > 1) text += '{';
    for (Output& output : outputs) {
      if (outputs.size() > 1) text += (&output == outputs.data() ? "" : ", ") + output.name + ": ";
      append_list(output.numbers, output.shape, 1, output.next, text);
    }
    text += outputs.size() > 1 ? "}\n" : "\n";
  }
  return text;
}

}  // namespace lockstep::cli
