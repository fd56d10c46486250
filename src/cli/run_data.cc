#include "cli/run_data.h"

#include <cmath>
#include <limits>

#include "lockstep/base/files.h"
#include "lockstep/keras/directories.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {
namespace {

using keras::datasets::Examples;
using keras::datasets::TrainTest;

Tensor rows(const Tensor& x, int64_t begin, int64_t count) {
  Dims from = Dims::filled(x.rank(), 0);
  Dims size = Dims::filled(x.rank(), -1);
  from[0] = begin;
  size[0] = count;
  return slice(x, from, size);
}

Examples rows(const Examples& all, int64_t begin, int64_t count) {
  return {rows(all.x, begin, count), rows(all.y, begin, count)};
}

Examples first(const Examples& all, int64_t count) {
  return count < 0 || count >= all.x.shape()[0] ? all : rows(all, 0, count);
}

// What the model takes and gives; -1 and rank 0 where that is not known before its first call.
struct Ends {
  Shape input;
  DType dtype = DType::float32;
  Shape output;
};

Ends ends_of(const keras::Model& model) {
  const keras::KerasTensorList inputs = model.model_base().inputs();
  const keras::KerasTensorList outputs = model.model_base().outputs();
  require(inputs.size() <= 1 && outputs.size() <= 1, ErrorCode::unsupported, std::source_location::current(),
          "model: it has ", inputs.size(), " inputs and ", outputs.size(),
          " outputs; a run file trains models of one input and one output");
  Ends ends;
  if (!inputs.empty()) ends.input = inputs[0].shape(), ends.dtype = inputs[0].dtype();
  if (!outputs.empty()) ends.output = outputs[0].shape();
  return ends;
}

// --- reading -----------------------------------------------------------------------------------------------------

class Loader {
 public:
  Loader(const RunFile& run, const Ends& ends) : run_(run), ends_(ends) {}

  TrainTest operator()(const BuiltinSource& source) const {
    namespace datasets = keras::datasets;
    if (source.name == "digits")
      return datasets::digits({.seed = static_cast<uint64_t>(source.seed),
                               .train_size = source.train_size < 0 ? 60000 : source.train_size,
                               .test_size = source.test_size < 0 ? 10000 : source.test_size});
    const datasets::LoadOptions options{.folder = source.folder.empty() ? "" : run_.resolve(source.folder)};
    TrainTest all;
    if (source.name == "mnist") all = datasets::mnist::load_data(options);
    if (source.name == "fashion_mnist") all = datasets::fashion_mnist::load_data(options);
    if (source.name == "cifar10") all = datasets::cifar10::load_data(options);
    if (source.name == "cifar100") all = datasets::cifar100::load_data("fine", options);
    return {first(all.train, source.train_size), first(all.test, source.test_size)};
  }
  TrainTest operator()(const IdxSource& source) const {
    return {{keras::datasets::read_idx(run_.resolve(source.idx.images)),
             keras::datasets::read_idx(run_.resolve(source.idx.labels))},
            {}};
  }
  TrainTest operator()(const CsvSource& source) const {
    require(source.separator.size() == 1, ErrorCode::invalid_argument, std::source_location::current(),
            "separator must be one character, received \"", source.separator, "\"");
    return {keras::datasets::read_csv(run_.resolve(source.path), {.label_column = source.label_column,
                                                                  .header = source.header,
                                                                  .separator = source.separator[0]}),
            {}};
  }
  TrainTest operator()(const SafetensorsSource& source) const {
    const train::SafetensorsFile file(run_.resolve(source.path));
    return {{file.read(source.x), file.read(source.y)}, {}};
  }
  TrainTest operator()(const ImageFolderSource& source) const {
    const Shape& wanted = ends_.input;
    const int64_t channels = wanted.rank() == 4 ? wanted[3] : 3;
    require(channels == 1 || channels == 3 || channels == 4, ErrorCode::invalid_argument,
            std::source_location::current(), "images have 1, 3 or 4 channels, the model takes ", channels);
    std::vector<int64_t> size = source.image_size;
    if (size.empty() && wanted.rank() == 4 && wanted[1] > 0 && wanted[2] > 0) size = {wanted[1], wanted[2]};
    require(size.size() == 2, ErrorCode::invalid_argument, std::source_location::current(),
            "image_size must be [height, width], since the model takes images of any size");
    return {keras::utils::image_dataset_from_directory(
                run_.resolve(source.path),
                {.image_size = size,
                 .color_mode = channels == 1   ? "grayscale"
                               : channels == 3 ? "rgb"
                                               : "rgba",
                 .interpolation = source.interpolation,
                 .crop_to_aspect_ratio = source.crop_to_aspect_ratio,
                 .files = {.shuffle = true, .seed = static_cast<uint64_t>(run_.seed)}}),
            {}};
  }
  TrainTest operator()(const TextSource& source) const {
    const std::string path = run_.resolve(source.path);
    const std::string text = read_file(path);
    const int64_t blocks = (static_cast<int64_t>(text.size()) - 1) / source.context;
    require(blocks > 0, ErrorCode::invalid_argument, std::source_location::current(), "\"", path, "\" has ",
            text.size(), " bytes; an example of ", source.context, " and its labels need ",
            source.context + 1);
    const auto tokens = [&](int64_t shift) {
      std::vector<int32_t> values;
      for (int64_t i = 0; i < blocks * source.context; ++i)
        values.push_back(static_cast<unsigned char>(text[static_cast<size_t>(i + shift)]));
      return Tensor::from(values, {blocks, source.context});
    };
    return {{tokens(0), tokens(1)}, {}};
  }

 private:
  const RunFile& run_;
  const Ends& ends_;
};

TrainTest load(const RunFile& run, const Source& source, const Ends& ends, const std::string& path) {
  return at_key(path, [&] {
    TrainTest data = std::visit(Loader(run, ends), source);
    const Examples& train = data.train;
    require(train.x.rank() > 0 && train.y.rank() > 0 && train.x.shape()[0] == train.y.shape()[0],
            ErrorCode::shape_mismatch, std::source_location::current(), "there are examples of shape ",
            train.x.shape(), " and labels of shape ", train.y.shape(),
            ": their first dimensions, which run over the examples, must agree");
    return data;
  });
}

// --- fitting to the model ------------------------------------------------------------------------------------------

Shape without_batch(const Shape& shape) {
  Dims dims;
  for (int i = 1; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

bool accepts(const Shape& wanted, const Shape& given) {
  if (wanted.rank() != given.rank()) return false;
  for (int i = 0; i < wanted.rank(); ++i)
    if (wanted[i] >= 0 && wanted[i] != given[i]) return false;
  return true;
}

// Calls f with every number, exactly as it was read, and its row.
template <class F>
void each_number(const Tensor& values, F&& f) {
  if (values.size() == 0) return;
  const int64_t width = values.size() / values.shape()[0];
  const auto each = [&](const auto& numbers) {
    for (int64_t i = 0; i < values.size(); ++i) f(numbers[static_cast<size_t>(i)], i / width);
  };
  if (is_floating(values.dtype()))
    each(cast(values, DType::float64).to_vector<double>());
  else
    each(cast(values, DType::int64).to_vector<int64_t>());
}

// Whole numbers that must fit, whatever they were read as; `what` they are.
Tensor as_int32(const Tensor& values, const char* what) {
  const bool fits = !is_floating(values.dtype()) && values.dtype() != DType::int64;
  if (fits) return cast(values, DType::int32);
  each_number(values, [&](auto value, int64_t row) {
    constexpr auto kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
    bool whole = value >= kLeast && value <= kMost;
    if constexpr (std::is_same_v<decltype(value), double>) whole = whole && value == std::floor(value);
    require(whole, ErrorCode::invalid_argument, std::source_location::current(), "data: ", what, " of row ",
            row, " (counted from 0) is ", value, "; it must be a whole number from -2^31 to 2^31 - 1");
  });
  return cast(values, DType::int32);
}

Tensor fitting_x(Tensor x, bool images, const DataOptions& options, const Ends& ends) {
  const bool bytes = images || x.dtype() == DType::uint8;
  if (is_floating(ends.dtype)) {
    x = cast(x, DType::float32);
    const double scale = options.scale.value_or(bytes ? 1.0 / 255 : 1.0);
    if (scale != 1) x = x * scale;
  } else {
    require(!options.scale, ErrorCode::invalid_argument, std::source_location::current(),
            "data.scale: the model takes integers, which are left as they are");
    x = as_int32(x, "the input");
  }
  const int64_t count = x.shape()[0];
  if (options.flatten) x = reshape(x, {count, count == 0 ? 0 : x.size() / count});
  if (ends.input.rank() == 0) return x;
  const Shape wanted = without_batch(ends.input);
  const Shape given = without_batch(x.shape());
  if (accepts(wanted, given)) return x;
  int64_t size = 1;
  for (const int64_t dim : wanted) size *= dim;
  bool known = true;
  for (const int64_t dim : wanted) known = known && dim >= 0;
  require(known && size == given.size(), ErrorCode::shape_mismatch, std::source_location::current(),
          "data: an example has shape ", given, ", the model takes ", wanted);
  Dims dims{count};
  for (const int64_t dim : wanted) dims.push_back(dim);
  return reshape(x, dims);
}

// Class numbers as int32, whatever they were read as.
Tensor class_numbers(const Tensor& y, int64_t classes) {
  constexpr auto kMost = static_cast<int64_t>(std::numeric_limits<int32_t>::max());
  const int64_t last = classes > 0 ? classes - 1 : kMost;
  each_number(y, [&](auto label, int64_t row) {
    const auto refuse = [&](const char* is) {
      fail(ErrorCode::invalid_argument, std::source_location::current(), "data: the label of row ", row,
           " (counted from 0) is ", label, is, "; the model tells ", classes > 0 ? classes : kMost,
           " classes apart, whose numbers are 0 to ", last);
    };
    if constexpr (std::is_same_v<decltype(label), double>) {
      if (!(label == std::floor(label))) refuse(", which is no whole number");
      if (label < 0 || label > static_cast<double>(last)) refuse("");
    } else if (label < 0 || label > last) {
      refuse("");
    }
  });
  return cast(y, DType::int32);
}

// Whether the loss that the run names takes class numbers.
bool takes_class_numbers(const RunFile& run) {
  if (!run.compile) return !run.model.from_json();
  const Json& loss = run.compile->loss;
  const Json* name = loss.is_string() ? &loss : loss.find("class_name");
  return name && name->is_string() &&
         (name->as_string().starts_with("sparse") || name->as_string().starts_with("Sparse"));
}

Tensor fitting_y(Tensor y, const RunFile& run, const Ends& ends) {
  const bool one_hot = run.data.options.one_hot;
  const int64_t classes = ends.output.rank() > 1 ? ends.output[-1] : -1;
  const bool column = y.rank() > 1 && y.shape()[-1] == 1;
  const bool numbers = !is_floating(y.dtype()) && y.dtype() != DType::boolean;
  require(!one_hot || classes > 1, ErrorCode::invalid_argument, std::source_location::current(),
          "data.one_hot: the model must end in a known number of classes");
  // Of a text every token has a label.
  const bool of_classes = classes > 1 && (one_hot || takes_class_numbers(run) || (numbers && y.rank() == 1));
  if (of_classes) {
    const Tensor classes_of = class_numbers(y, classes);
    // Losses take floating-point class numbers as they are.
    if (numbers || one_hot) y = classes_of;
  } else if (numbers) {
    y = as_int32(y, "the label");
  }
  if (!one_hot) return y;
  if (column) y = squeeze(y, {-1});
  return lockstep::one_hot(y, classes);
}

}  // namespace

RunData load_data(const RunFile& run, const keras::Model& model) {
  const Ends ends = ends_of(model);
  const DataOptions& options = run.data.options;
  const TrainTest read = load(run, run.data.source, ends, "data");
  RunData data{read.train, read.test};
  if (options.validation)
    data.validation = load(run, options.validation->source, ends, "data.validation").train;
  if (options.validation_split > 0) {
    const int64_t count = data.train.x.shape()[0];
    // Keras' rule.
    const auto kept =
        static_cast<int64_t>(std::floor(static_cast<double>(count) * (1 - options.validation_split)));
    require(kept > 0, ErrorCode::invalid_argument, std::source_location::current(),
            "data.validation_split: ", options.validation_split, " of ", count,
            " examples leaves none to learn from");
    if (options.validation_random) {
      const random::Generator generator(static_cast<uint64_t>(run.seed));
      const Tensor order = random::permutation(count, {.generator = &generator});
      data.train = {gather(data.train.x, order), gather(data.train.y, order)};
    }
    data.validation = rows(data.train, kept, count - kept);
    data.train = rows(data.train, 0, kept);
  }
  for (Examples* examples : {&data.train, &data.validation}) {
    if (!examples->x.defined()) continue;
    const bool images = std::holds_alternative<ImageFolderSource>(run.data.source);
    examples->x = fitting_x(examples->x, images, options, ends);
    examples->y = fitting_y(examples->y, run, ends);
  }
  if (data.validation.x.defined() && data.validation.x.shape()[0] == 0) data.validation = {};
  return data;
}

}  // namespace lockstep::cli
