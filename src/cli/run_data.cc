#include "cli/run_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "lockstep/base/files.h"
#include "lockstep/keras/directories.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {
namespace {

using keras::Batch;
using keras::datasets::Examples;
using keras::datasets::TrainTest;

template <class F>
Batch each(const Batch& examples, F&& f) {
  const auto list = [&](const TensorList& tensors) {
    TensorList changed;
    for (const Tensor& tensor : tensors) changed.push_back(tensor.defined() ? f(tensor) : Tensor());
    return changed;
  };
  return {list(examples.x), list(examples.y), list(examples.sample_weight)};
}

Batch batch_of(const Examples& examples) {
  Batch batch;
  if (examples.x.defined()) batch.x = {examples.x};
  if (examples.y.defined()) batch.y = {examples.y};
  return batch;
}

Batch first(const Examples& all, int64_t count) {
  const Batch batch = batch_of(all);
  return count < 0 || count >= all.x.shape()[0] ? batch : rows(batch, 0, count);
}

// An input or output of a model; rank 0 where its shape is not known before the first call.
struct End {
  std::string name;
  Shape shape = {};
  DType dtype = DType::float32;
};

struct Ends {
  std::vector<End> inputs, outputs;

  static std::vector<std::string> names(const std::vector<End>& ends) {
    std::vector<std::string> all;
    for (const End& end : ends) all.push_back(end.name);
    return all;
  }
};

Ends ends_of(const keras::Model& model) {
  const keras::KerasTensorList inputs = model.model_base().inputs(), outputs = model.model_base().outputs();
  Ends ends;
  for (const keras::KerasTensor& input : inputs)
    ends.inputs.push_back({input.name(), input.shape(), input.dtype()});
  const std::vector<std::string> names = model.model_base().output_names(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    ends.outputs.push_back({names[i], outputs[i].shape(), outputs[i].dtype()});
  if (ends.inputs.empty()) ends.inputs.push_back({"input"});
  if (ends.outputs.empty()) ends.outputs.push_back({"output"});
  return ends;
}

Shape without_batch(const Shape& shape) {
  Dims dims;
  for (int i = 1; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

// --- reading -----------------------------------------------------------------------------------------------

struct TrainAndTest {
  Batch train, test;
  std::optional<Source> named = {};  // with the names of the columns or classes that were found
};

class Loader {
 public:
  Loader(const RunFile& run, const Ends& ends, const LoadOptions& options)
      : run_(run), ends_(ends), options_(options) {}

  TrainAndTest operator()(const BuiltinSource& source) const {
    namespace datasets = keras::datasets;
    check_one_input(source);
    if (source.name == "digits") {
      const TrainTest made =
          datasets::digits({.seed = static_cast<uint64_t>(source.seed),
                            .train_size = source.train_size < 0 ? 60000 : source.train_size,
                            .test_size = source.test_size < 0 ? 10000 : source.test_size});
      return {batch_of(made.train), batch_of(made.test)};
    }
    const datasets::LoadOptions options{.folder = source.folder.empty() ? "" : run_.resolve(source.folder)};
    TrainTest all;
    if (source.name == "mnist") all = datasets::mnist::load_data(options);
    if (source.name == "fashion_mnist") all = datasets::fashion_mnist::load_data(options);
    if (source.name == "cifar10") all = datasets::cifar10::load_data(options);
    if (source.name == "cifar100") all = datasets::cifar100::load_data("fine", options);
    return {first(all.train, source.train_size), first(all.test, source.test_size)};
  }
  TrainAndTest operator()(const IdxSource& source) const {
    check_one_input(source);
    Examples examples;
    examples.x = keras::datasets::read_idx(run_.resolve(source.idx.images));
    if (options_.labels) examples.y = keras::datasets::read_idx(run_.resolve(source.idx.labels));
    return {batch_of(examples), {}};
  }
  TrainAndTest operator()(const CsvSource& source) const {
    require(source.separator.size() == 1, ErrorCode::invalid_argument, std::source_location::current(),
            "separator must be one character, received \"", source.separator, "\"");
    const keras::datasets::Table table = keras::datasets::read_table(
        run_.resolve(source.path), {.header = source.header, .separator = source.separator[0]});
    std::vector<bool> taken(table.columns.size());
    const auto pick = [&](const Fields& fields, bool keep_width) {
      TensorList list;
      for (const std::vector<std::string>& columns : fields) {
        std::vector<int64_t> positions;
        for (const std::string& column : columns) {
          positions.push_back(static_cast<int64_t>(table.position(column)));
          taken[table.position(column)] = true;
        }
        list.push_back(positions.empty() ? Tensor() : columns_of(table, positions));
        if (positions.size() == 1 && !keep_width) list.back() = squeeze(list.back(), {1});
      }
      return list;
    };
    Batch batch;
    if (options_.labels) {
      batch.y = pick(outputs_of(source.label_column, "label_column"), false);
      batch.sample_weight = pick(weights_of(source.sample_weight_column, "sample_weight_column"), false);
    }
    if (!source.x.empty()) {
      batch.x = pick(inputs_of(source.x, "x"), true);
      return {batch, {}, named_columns(source, table)};
    }
    if (!options_.labels)
      for (const FieldNames* names : {&source.label_column, &source.sample_weight_column})
        leave_out(table, source.header, *names, taken);
    require(ends_.inputs.size() == 1, ErrorCode::invalid_argument, std::source_location::current(),
            "x: the model has the inputs ", join(Ends::names(ends_.inputs)),
            "; name the columns of each: {\"", ends_.inputs[0].name, "\": [\"column\", ...], ...}");
    std::vector<int64_t> others;
    for (size_t i = 0; i < taken.size(); ++i)
      if (!taken[i]) others.push_back(static_cast<int64_t>(i));
    batch.x = {columns_of(table, others)};
    CsvSource complete = source;
    for (const int64_t column : others)
      complete.x.listed.push_back(table.columns[static_cast<size_t>(column)]);
    return {batch, {}, named_columns(complete, table)};
  }
  TrainAndTest operator()(const SafetensorsSource& source) const {
    const train::SafetensorsFile file(run_.resolve(source.path));
    const auto read = [&](const Fields& fields) {
      TensorList list;
      for (const std::vector<std::string>& names : fields) {
        TensorList parts;
        for (const std::string& name : names) parts.push_back(file.read(name));
        list.push_back(parts.empty() ? Tensor() : parts.size() == 1 ? parts[0] : concat(parts, -1));
      }
      return list;
    };
    Batch batch;
    batch.x = read(inputs_of(source.x, "x"));
    if (options_.labels) {
      batch.y = read(outputs_of(source.y, "y"));
      batch.sample_weight = read(weights_of(source.sample_weight, "sample_weight"));
    }
    return {batch, {}};
  }
  TrainAndTest operator()(const ImageFolderSource& source) const {
    check_one_input(source);
    const Shape& wanted = ends_.inputs[0].shape;
    const int64_t channels = wanted.rank() == 4 ? wanted[3] : 3;
    require(channels == 1 || channels == 3 || channels == 4, ErrorCode::invalid_argument,
            std::source_location::current(), "images have 1, 3 or 4 channels, the model takes ", channels);
    std::vector<int64_t> size = source.image_size;
    if (size.empty() && wanted.rank() == 4 && wanted[1] > 0 && wanted[2] > 0) size = {wanted[1], wanted[2]};
    require(size.size() == 2, ErrorCode::invalid_argument, std::source_location::current(),
            "image_size must be [height, width], since the model takes images of any size");
    keras::utils::ImageExamples examples = keras::utils::image_dataset_from_directory(
        run_.resolve(source.path), {.image_size = size,
                                    .color_mode = channels == 1   ? "grayscale"
                                                  : channels == 3 ? "rgb"
                                                                  : "rgba",
                                    .interpolation = source.interpolation,
                                    .crop_to_aspect_ratio = source.crop_to_aspect_ratio,
                                    .files = {.label_mode = options_.labels ? "int" : "none",
                                              .shuffle = options_.shuffle,
                                              .seed = static_cast<uint64_t>(run_.seed)}});
    ImageFolderSource named = source;
    if (source.class_names.empty())
      named.class_names = examples.class_names;
    else if (options_.labels)
      examples.y = gather(class_numbers_of(examples.class_names, source.class_names), examples.y);
    return {batch_of(examples), {}, named};
  }
  TrainAndTest operator()(const TextSource& source) const {
    check_one_input(source);
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
    return {{{tokens(0)}, {tokens(1)}, {}}, {}};
  }

 private:
  using Fields = std::vector<std::vector<std::string>>;  // of each input, or output, what the file calls it

  template <class Source>
  void check_one_input(const Source&) const {
    require(ends_.inputs.size() == 1 && ends_.outputs.size() == 1, ErrorCode::invalid_argument,
            std::source_location::current(), "the model has ", ends_.inputs.size(), " inputs (",
            join(Ends::names(ends_.inputs)), ") and ", ends_.outputs.size(), " outputs (",
            join(Ends::names(ends_.outputs)), "), \"", Source::kKey,
            "\" has examples of one; \"safetensors\" and \"csv\" files hold several");
  }
  Fields inputs_of(const FieldNames& names, const char* key) const {
    const std::vector<std::string> inputs = Ends::names(ends_.inputs);
    const Fields fields = names.of(inputs, key);
    for (size_t i = 0; i < fields.size(); ++i)
      require(!fields[i].empty(), ErrorCode::invalid_argument, std::source_location::current(), key,
              ": nothing is named for the model's input \"", inputs[i], "\"");
    return fields;
  }
  Fields outputs_of(const FieldNames& names, const char* key) const {
    return names.of(Ends::names(ends_.outputs), key);
  }
  // One for all outputs, as in Keras.
  Fields weights_of(const FieldNames& names, const char* key) const {
    if (names.empty()) return {};
    if (names.listed.size() == 1) return Fields(ends_.outputs.size(), names.listed);
    return outputs_of(names, key);
  }
  // The source with the names of its columns, whatever it called them; as it is where they have none.
  std::optional<Source> named_columns(CsvSource source, const keras::datasets::Table& table) const {
    const std::set<std::string> different(table.columns.begin(), table.columns.end());
    if (!source.header || !options_.labels || different.size() < table.columns.size()) return {};
    const auto name = [&](std::vector<std::string>& columns) {
      for (std::string& column : columns) column = table.columns[table.position(column)];
    };
    for (FieldNames* fields : {&source.x, &source.label_column, &source.sample_weight_column}) {
      name(fields->listed);
      for (auto& [end, columns] : fields->named) name(columns);
    }
    return source;
  }
  // The numbers of the folders' classes among those that the model tells apart.
  static Tensor class_numbers_of(const std::vector<std::string>& folders,
                                 const std::vector<std::string>& classes) {
    std::vector<int32_t> numbers;
    for (const std::string& folder : folders) {
      const auto found = std::find(classes.begin(), classes.end(), folder);
      require(found != classes.end(), ErrorCode::invalid_argument, std::source_location::current(),
              "there is a folder \"", folder, "\", but class_names has ", join(classes),
              "; leave the folder out, or name its class");
      numbers.push_back(static_cast<int32_t>(found - classes.begin()));
    }
    return Tensor::from(numbers, {std::ssize(numbers)});
  }
  static Tensor columns_of(const keras::datasets::Table& table, const std::vector<int64_t>& positions) {
    return gather(table.values, Tensor::from(positions, {std::ssize(positions)}), 1);
  }
  // Columns that hold labels, of a table that may have none: the model's input says so where they go by
  // number.
  void leave_out(const keras::datasets::Table& table, bool header, const FieldNames& names,
                 std::vector<bool>& taken) const {
    const Shape& input = ends_.inputs[0].shape;
    const bool only_inputs =
        ends_.inputs.size() == 1 && input.rank() > 1 && without_batch(input).size() == std::ssize(taken);
    const auto leave = [&](const std::vector<std::string>& columns) {
      for (const std::string& column : columns) {
        const auto named = std::find(table.columns.begin(), table.columns.end(), column);
        if (header && named != table.columns.end())
          taken[static_cast<size_t>(named - table.columns.begin())] = true;
        else if (!only_inputs)
          taken[table.position(column)] = true;
      }
    };
    leave(names.listed);
    for (const auto& [output, columns] : names.named) leave(columns);
  }

  const RunFile& run_;
  const Ends& ends_;
  const LoadOptions& options_;
};

TrainAndTest load(const RunFile& run, const Source& source, const Ends& ends, const LoadOptions& options,
                  const std::string& path) {
  return at_key(path, [&] {
    TrainAndTest data = std::visit(Loader(run, ends, options), source);
    if (!data.named) data.named = source;
    if (!options.labels) data.train.y.clear(), data.test.y.clear();
    const Batch& train = data.train;
    for (const Tensor& x : train.x)
      require(x.rank() > 0, ErrorCode::shape_mismatch, std::source_location::current(),
              "an input is a single number; its first dimension must run over the examples");
    const auto check = [&](const TensorList& list, const char* what) {
      for (const Tensor& tensor : list)
        if (tensor.defined() && (tensor.rank() == 0 || tensor.shape()[0] != examples_in(train)))
          fail(ErrorCode::shape_mismatch, std::source_location::current(), "there are examples of shape ",
               train.x[0].shape(), " and ", what, " of shape ", tensor.shape(),
               ": their first dimensions, which run over the examples, must agree");
    };
    check(train.x, "another input");
    check(train.y, "labels");
    check(train.sample_weight, "weights");
    return data;
  });
}

// --- fitting to the model ----------------------------------------------------------------------------------

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

DType number_dtype(const End& end) { return end.dtype == DType::float64 ? DType::float64 : DType::float32; }

Tensor fitting_x(Tensor x, bool images, const DataOptions& options, const End& end) {
  const bool bytes = images || x.dtype() == DType::uint8;
  if (is_floating(end.dtype)) {
    x = cast(x, number_dtype(end));
    const double scale = options.scale.value_or(bytes ? 1.0 / 255 : 1.0);
    if (scale != 1) x = x * scale;
  } else {
    require(!options.scale, ErrorCode::invalid_argument, std::source_location::current(),
            "data.scale: the model's input \"", end.name, "\" takes integers, which are left as they are");
    x = as_int32(x, "the input");
  }
  const int64_t count = x.shape()[0];
  if (options.flatten) x = reshape(x, {count, count == 0 ? 0 : x.size() / count});
  if (end.shape.rank() == 0) return x;
  const Shape wanted = without_batch(end.shape);
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

// The losses that the model was compiled with, or will be.
Json losses_of(const RunFile& run, const keras::Model& model) {
  if (run.compile) return run.compile->loss;
  const Json compiled = model.model_base().compile_config();
  if (const Json* loss = compiled.is_object() ? compiled.find("loss") : nullptr) return *loss;
  return run.model.from_json() ? Json() : Json("sparse_categorical_crossentropy");
}

// That of an output.
const Json* loss_of(const Json& loss, const Ends& ends, size_t output) {
  if (loss.is_object() && !loss.contains("class_name")) return loss.find(ends.outputs[output].name);
  if (loss.is_list()) return output < loss.items().size() ? &loss.items()[output] : nullptr;
  return &loss;
}

// Whether it takes class numbers.
bool takes_class_numbers(const Json& losses, const Ends& ends, size_t output) {
  const Json* loss = loss_of(losses, ends, output);
  if (!loss) return false;
  const Json* name = loss->is_object() ? loss->find("class_name") : loss;
  return name && name->is_string() &&
         (name->as_string().starts_with("sparse") || name->as_string().starts_with("Sparse"));
}

Tensor fitting_y(Tensor y, const RunFile& run, const Json& losses, const Ends& ends, size_t output) {
  const End& end = ends.outputs[output];
  const bool one_hot = run.data.options.one_hot;
  const int64_t classes = end.shape.rank() > 1 ? end.shape[-1] : -1;
  const bool column = y.rank() > 1 && y.shape()[-1] == 1;
  const bool numbers = !is_floating(y.dtype()) && y.dtype() != DType::boolean;
  require(!one_hot || classes > 1, ErrorCode::invalid_argument, std::source_location::current(),
          "data.one_hot: the model must end in a known number of classes");
  // In a text every token has a label.
  const bool of_classes = takes_class_numbers(losses, ends, output)
                              ? classes > 0
                              : classes > 1 && (one_hot || (numbers && y.rank() == 1));
  if (of_classes) {
    const Tensor classes_of = class_numbers(y, classes);
    // Losses take floating-point class numbers as they are.
    if (numbers || one_hot) y = classes_of;
  } else if (numbers) {
    y = as_int32(y, "the label");
  }
  if (!numbers && y.dtype() != DType::boolean && !one_hot) y = cast(y, number_dtype(end));
  if (!one_hot) return y;
  if (column) y = squeeze(y, {-1});
  return lockstep::one_hot(y, classes, number_dtype(end));
}

void fit_to(Batch& examples, const RunFile& run, const Json& losses, const Ends& ends,
            const LoadOptions& options) {
  const DataOptions& data = run.data.options;
  const bool images = std::holds_alternative<ImageFolderSource>(run.data.source);
  for (size_t i = 0; i < examples.x.size(); ++i)
    examples.x[i] = fitting_x(examples.x[i], images, data, ends.inputs[i]);
  for (size_t i = 0; i < examples.y.size(); ++i)
    if (examples.y[i].defined()) examples.y[i] = fitting_y(examples.y[i], run, losses, ends, i);
  for (size_t i = 0; i < examples.sample_weight.size(); ++i)
    if (examples.sample_weight[i].defined())
      examples.sample_weight[i] = cast(examples.sample_weight[i], number_dtype(ends.outputs[i]));
  require(!options.labels || !examples.y.empty(), ErrorCode::invalid_argument,
          std::source_location::current(), "data: there are no labels");
}

}  // namespace

Source read_like(Source source, const Source& other) {
  if (auto* table = std::get_if<CsvSource>(&source)) {
    const auto* named = std::get_if<CsvSource>(&other);
    if (!named || !named->header || !table->header) return source;
    if (table->x.empty()) table->x = named->x;
    if (table->label_column == CsvSource().label_column) table->label_column = named->label_column;
  } else if (auto* folder = std::get_if<ImageFolderSource>(&source)) {
    const auto* named = std::get_if<ImageFolderSource>(&other);
    if (named && folder->class_names.empty()) folder->class_names = named->class_names;
  }
  return source;
}

int64_t examples_in(const Batch& examples) { return examples.x.empty() ? 0 : examples.x[0].shape()[0]; }

Batch rows(const Batch& examples, int64_t begin, int64_t count) {
  return each(examples, [&](const Tensor& x) {
    Dims from = Dims::filled(x.rank(), 0), size = Dims::filled(x.rank(), -1);
    from[0] = begin;
    size[0] = count;
    return slice(x, from, size);
  });
}

RunData load_data(const RunFile& run, const keras::Model& model, const LoadOptions& load_options) {
  const Ends ends = ends_of(model);
  const DataOptions& options = run.data.options;
  const TrainAndTest read = load(run, run.data.source, ends, load_options, "data");
  RunData data{read.train, read.test, *read.named};
  if (options.validation)
    data.validation =
        load(run, read_like(options.validation->source, data.source), ends, load_options, "data.validation")
            .train;
  if (options.validation_split > 0) {
    const int64_t count = examples_in(data.train);
    // Keras' rule.
    const auto kept =
        static_cast<int64_t>(std::floor(static_cast<double>(count) * (1 - options.validation_split)));
    require(kept > 0, ErrorCode::invalid_argument, std::source_location::current(),
            "data.validation_split: ", options.validation_split, " of ", count,
            " examples leaves none to learn from");
    if (options.validation_random) {
      const random::Generator generator(static_cast<uint64_t>(run.seed));
      const Tensor order = random::permutation(count, {.generator = &generator});
      data.train = each(data.train, [&](const Tensor& x) { return gather(x, order); });
    }
    data.validation = rows(data.train, kept, count - kept);
    data.train = rows(data.train, 0, kept);
  }
  if (examples_in(data.validation) == 0) data.validation = {};
  const Json losses = losses_of(run, model);
  for (Batch* examples : {&data.train, &data.validation})
    if (!examples->x.empty()) fit_to(*examples, run, losses, ends, load_options);
  return data;
}

}  // namespace lockstep::cli
