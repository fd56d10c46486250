// A run as a file: model, data, compile and fit settings (docs/run.schema.json).
//
// Every mistake is an Error that names the key as a path ("fit.batch_size"), what is allowed, and the nearest
// spelling.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/settings.h"
#include "lockstep/keras/model.h"

namespace lockstep::cli {

// The name of an application, the path of a model's JSON, that JSON itself, or {"zoo": name, options...}.
struct ModelSettings {
  Json json = {};
  bool from_json() const;   // not an application
  bool is_archive() const;  // the path of a .keras file
  void read(const Json& json, const std::string& path);
  Json write(const std::string& folder) const;
  static Json schema();
};

// --- where examples come from ------------------------------------------------------------------------------

// What a file calls the inputs of a model, the labels of its outputs or their weights: one name, a list in
// the model's order, or an object from the model's names to the file's. Several names of one input or output
// (["height", "width"]) are joined along the last dimension.
struct FieldNames {
  std::vector<std::string> listed = {};
  std::map<std::string, std::vector<std::string>> named = {};
  bool empty() const { return listed.empty() && named.empty(); }
  bool operator==(const FieldNames&) const = default;
  // Those of each of a model's inputs or outputs, which are called `ends`; empty where the file has none.
  std::vector<std::vector<std::string>> of(const std::vector<std::string>& ends,
                                           const std::string& key) const;
  void read(const Json& json, const std::string& path);
  Json write(const std::string& folder) const;
  static Json schema();
};

struct BuiltinSource {
  static constexpr const char* kKey = "name";
  std::string name = "digits";
  std::string folder = {};
  int64_t train_size = -1;
  int64_t test_size = -1;
  int64_t seed = 0;
  static const std::vector<std::string>& names();
  void visit(auto& v) {
    v(kKey, name, {.help = "A data set that is known by name", .required = true, .one_of = names()});
    v("folder", folder,
      {.help = "Where its files are looked for first (not for digits, which are made)", .file = true});
    v("train_size", train_size, {.help = "Training examples: the first ones; -1: all", .at_least = -1});
    v("test_size", test_size,
      {.help = "Examples held back to test on: the first ones; -1: all", .at_least = -1});
    v("seed", seed, {.help = "Of the digits that are made", .at_least = 0});
  }
};

struct IdxFiles {
  std::string images = {};
  std::string labels = {};
  void visit(auto& v) {
    v("images", images, {.help = "Path of the examples", .required = true, .file = true});
    v("labels", labels, {.help = "Path of their labels", .required = true, .file = true});
  }
};
struct IdxSource {
  static constexpr const char* kKey = "idx";
  IdxFiles idx = {};
  void visit(auto& v) {
    v(kKey, idx, {.help = "Files in MNIST's format, compressed with gzip or not", .required = true});
  }
};

struct CsvSource {
  static constexpr const char* kKey = "csv";
  std::string path = {};
  FieldNames x = {};
  FieldNames label_column = {.listed = {"-1"}};
  FieldNames sample_weight_column = {};
  bool header = true;
  std::string separator = ",";
  void visit(auto& v) {
    v(kKey, path, {.help = "Path of a table of numbers", .required = true, .file = true});
    v("x", x,
      {.help = "Columns of the input, a list; of several inputs: an object from their names to columns; left "
               "out: all that "
               "are neither labels nor weights"});
    v("label_column", label_column,
      {.help = "Name of the labels' column (left out: the last), or its number, from 0 or, negative, from "
               "the end; of "
               "several outputs: a list in their order, or an object by their names"});
    v("sample_weight_column", sample_weight_column,
      {.help = "The column of the examples' weights in the loss; by output as label_column is"});
    v("header", header, {.help = "Whether the first row names the columns"});
    v("separator", separator, {.help = "The character between fields"});
  }
};

struct SafetensorsSource {
  static constexpr const char* kKey = "safetensors";
  std::string path = {};
  FieldNames x = {.listed = {"x"}};
  FieldNames y = {.listed = {"y"}};
  FieldNames sample_weight = {};
  void visit(auto& v) {
    v(kKey, path, {.help = "Path of a file of named tensors", .required = true, .file = true});
    v("x", x,
      {.help = "Name of the examples in it (left out: \"x\"); of several inputs: a list in their order, or "
               "an object "
               "from their names to the file's"});
    v("y", y, {.help = "Name of the labels in it (left out: \"y\"); of several outputs as x is"});
    v("sample_weight", sample_weight,
      {.help = "Name of the examples' weights in the loss; of several outputs as x is, one for all of them, "
               "or none"});
  }
};

struct ImageFolderSource {
  static constexpr const char* kKey = "image_folder";
  std::string path = {};
  std::vector<std::string> class_names = {};
  std::vector<int64_t> image_size = {};
  std::string interpolation = "bilinear";
  bool crop_to_aspect_ratio = false;
  void visit(auto& v) {
    v(kKey, path,
      {.help = "Path of a folder with a folder of JPEG and PNG images for each class, which are read in an "
               "order drawn from the run's seed",
       .required = true,
       .file = true});
    v("class_names", class_names,
      {.help = "The folders' names in the order of the classes' numbers; left out: those that there are, "
               "sorted"});
    v("image_size", image_size,
      {.help = "Height and width that images are brought to; left out: the model's"});
    v("interpolation", interpolation,
      {.help = "How that is done",
       .one_of = {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area"}});
    v("crop_to_aspect_ratio", crop_to_aspect_ratio, {.help = "Cut out a centred part instead of distorting"});
  }
};

struct TextSource {
  static constexpr const char* kKey = "text";
  std::string path = {};
  int64_t context = 64;
  void visit(auto& v) {
    v(kKey, path,
      {.help = "Path of a text: its bytes are the tokens, each one's label is the next",
       .required = true,
       .file = true});
    v("context", context, {.help = "Tokens of an example", .at_least = 1});
  }
};

using Source =
    std::variant<BuiltinSource, IdxSource, CsvSource, SafetensorsSource, ImageFolderSource, TextSource>;

// A source by itself: the name of a built-in one, or an object with one of the keys name, idx, csv, ....
struct SourceSettings {
  Source source = {};
  void read(const Json& json, const std::string& path);
  Json write(const std::string& folder) const;
  static Json schema();
};

struct DataOptions {
  std::optional<double> scale = {};
  bool flatten = false;
  bool one_hot = false;
  double validation_split = 0;
  bool validation_random = false;
  std::optional<SourceSettings> validation = {};
  void visit(auto& v) {
    v("scale", scale, {.help = "Factor of the examples; left out: 1/255 for bytes and images, 1 for others"});
    v("flatten", flatten,
      {.help = "Make each example a vector; where its size fits the model's input that happens by itself"});
    v("one_hot", one_hot, {.help = "Turn class numbers into vectors"});
    v("validation_split", validation_split,
      {.help = "This fraction, from the end, is held back for validation", .at_least = 0, .below = 1});
    v("validation_random", validation_random,
      {.help = "Draw that fraction at random, by the run's seed: for data in an order that means something"});
    v("validation", validation,
      {.help = "Examples to validate on after every epoch; left out: those that a built-in set holds back"});
  }
};

// A source with what is done to its examples.
struct DataSettings {
  Source source = {};
  DataOptions options = {};
  void read(const Json& json, const std::string& path);
  Json write(const std::string& folder) const;
  static Json schema();
};

// --- training ----------------------------------------------------------------------------------------------

struct CompileSettings {
  Json optimizer = {};
  Json loss = {};
  Json loss_weights = {};
  Json metrics = {};
  Json weighted_metrics = {};
  bool run_eagerly = false;
  int64_t steps_per_execution = 1;
  bool auto_scale_loss = true;
  Json jit_compile = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  void visit(auto& v) {
    v("optimizer", optimizer,
      {.help = "A name (\"adam\") or {\"class_name\", \"config\"} as Keras writes it"});
    v("exclude_from_weight_decay", exclude_from_weight_decay,
      {.help = "Weights whose names hold one of these words, [\"bias\", \"gamma\"] say, do not decay"});
    v("loss", loss,
      {.help = "A name, {\"class_name\", \"config\"}, a list in the order of the outputs or an object by "
               "their names"});
    v("loss_weights", loss_weights, {.help = "A factor for each loss: a number, a list or an object"});
    v("metrics", metrics,
      {.help = "A list of names or {\"class_name\", \"config\"}; an object by output names"});
    v("weighted_metrics", weighted_metrics, {.help = "The same, of metrics that heed the examples' weights"});
    v("run_eagerly", run_eagerly, {.help = "Op by op, for debugging"});
    v("steps_per_execution", steps_per_execution,
      {.help = "Batches between two calls of the callbacks", .at_least = 1});
    v("auto_scale_loss", auto_scale_loss, {.help = "mixed_float16: the optimizer scales the loss"});
    v("jit_compile", jit_compile, {.help = "Written by Keras; steps are always compiled here"});
  }
  // The options that the keys of the file make.
  keras::CompileOptions options(const std::string& path) const;
};

struct FitSettings {
  int64_t epochs = 1;
  int64_t batch_size = 32;
  bool shuffle = true;
  std::map<int64_t, double> class_weight = {};
  int64_t initial_epoch = 0;
  int64_t steps_per_epoch = -1;
  int64_t validation_steps = -1;
  int64_t validation_batch_size = -1;
  int64_t validation_freq = 1;
  int64_t verbose = 1;
  void visit(auto& v) {
    // What fit() takes as an int.
    constexpr double kMore = 2147483648.0;
    v("epochs", epochs,
      {.help = "Times the training examples are gone through", .at_least = 0, .below = kMore});
    v("batch_size", batch_size, {.help = "Examples per step", .at_least = 1});
    v("shuffle", shuffle, {.help = "A new order for every epoch"});
    v("class_weight", class_weight,
      {.help = "Weights of the classes' examples in the loss, by class number"});
    v("initial_epoch", initial_epoch, {.help = "Epochs that count as done", .at_least = 0, .below = kMore});
    v("steps_per_epoch", steps_per_epoch, {.help = "-1: until the data ends", .at_least = -1});
    v("validation_steps", validation_steps, {.help = "-1: until the data ends", .at_least = -1});
    v("validation_batch_size", validation_batch_size, {.help = "-1: batch_size", .at_least = -1});
    v("validation_freq", validation_freq,
      {.help = "Validate every so many epochs", .at_least = 1, .below = kMore});
    v("verbose", verbose,
      {.help = "0: silent, 1: a progress bar, 2: a line per epoch", .at_least = 0, .below = 3});
  }
};

struct RunFile {
  std::string folder = {};  // of the file: its relative paths start there
  ModelSettings model = {};
  DataSettings data = {};
  std::optional<CompileSettings> compile = {};
  FitSettings fit = {};
  std::string initial_weights = {};
  int64_t seed = 0;
  std::string output = {};
  std::string backup = {};
  std::string schema = {};
  void visit(auto& v) {
    v("$schema", schema, {.help = "For editors"});
    v("model", model,
      {.help = "A model by the name of an application, the path of a model's JSON, that JSON itself, or "
               "{\"zoo\": name, options...}",
       .required = true});
    v("data", data, {.help = "The examples to learn from", .required = true});
    v("compile", compile,
      {.help =
           "Keras' compile settings; left out: those of the model's JSON, and for applications Adam, sparse "
           "categorical cross-entropy and accuracy"});
    v("fit", fit, {.help = "How training goes"});
    v("initial_weights", initial_weights,
      {.help = "Path of a file of weights to start from: .safetensors, .weights.h5, .keras, .h5, or a "
               "TensorFlow checkpoint",
       .file = true});
    v("seed", seed, {.help = "Of the initial weights, the order of the examples and dropout", .at_least = 0});
    v("output", output,
      {.help = "Folder for weights.safetensors, model.json, history.json, run.json and record.json, for "
               "`lockstep "
               "evaluate` and "
               "`lockstep predict`; left out: none",
       .file = true});
    v("backup", backup,
      {.help =
           "Folder that the run is kept in after every epoch, until it has ended: killed at any moment and "
           "started again, it goes on there and ends with the same bits; left out: none",
       .file = true});
  }

  // A path of the file, as the program must open it.
  std::string resolve(const std::string& path) const;
};

RunFile read_run_file(const std::string& path);
RunFile parse_run(const Json& json, const std::string& folder);
// What parse_run() reads as the same run, in whatever folder; what is as it would be by itself is left out.
Json written_run(const RunFile& run);
// What docs/run.schema.json holds.
Json run_schema();
// The keys with their explanations, a line each, and an example: for people.
std::string run_help();

}  // namespace lockstep::cli
