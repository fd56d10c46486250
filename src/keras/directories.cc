#include "lockstep/keras/directories.h"

#include <algorithm>
#include <span>

#include "base/file.h"
#include "data/labelled_files.h"
#include "keras/permutation.h"
#include "lockstep/base/error.h"
#include "lockstep/data/image.h"
#include "lockstep/keras/preprocessing.h"

namespace lockstep::keras::utils {
namespace {

using data::LabelledFile;
using data::LabelledFiles;

// The position of `value` among the choices.
size_t choose(const char* op, const char* option, const std::string& value,
              const std::vector<std::string>& choices, std::source_location where) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "\"" : ", \"") + choice + "\"";
  fail(ErrorCode::invalid_argument, where, op, ": ", option, " is one of ", list, ", received \"", value,
       "\"");
}

LabelledFiles list(const char* op, const std::string& directory, const DirectoryOptions& options,
                   std::span<const char* const> extensions, std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, op, ": ", rule...);
  };
  const bool split = options.validation_split != 0;
  check(options.validation_split >= 0 && options.validation_split < 1,
        "validation_split is from 0 to below 1, received ", options.validation_split);
  check(split == !options.subset.empty(), "validation_split and subset go together, received ",
        options.validation_split, " and \"", options.subset, "\"");
  if (split) choose(op, "subset", options.subset, {"training", "validation"}, where);
  check(!split || !options.shuffle || options.seed.has_value(),
        "a validation split of shuffled files needs a seed, or the training and the validation part overlap");

  LabelledFiles listing = data::list_labelled_files(op, directory, options.class_names, extensions,
                                                    options.label_mode != "none", where);
  if (options.shuffle) shuffle(listing.files, options.seed.value_or(0));
  if (split) {
    const auto held_out =
        static_cast<int64_t>(options.validation_split * static_cast<double>(listing.files.size()));
    const auto boundary = listing.files.end() - held_out;
    if (options.subset == "training") {
      listing.files.erase(boundary, listing.files.end());
    } else {
      listing.files.erase(listing.files.begin(), boundary);
    }
  }
  return listing;
}

Tensor labels(const char* op, const LabelledFiles& listing, const std::string& mode,
              std::source_location where) {
  std::vector<int32_t> values;
  for (const LabelledFile& file : listing.files) values.push_back(file.label);
  const auto count = std::ssize(values), classes = std::ssize(listing.class_names);
  switch (choose(op, "label_mode", mode, {"int", "categorical", "binary", "none"}, where)) {
    case 0: return Tensor::from(values, {count}, where);
    case 1: return to_categorical(Tensor::from(values, {count}, where), classes, where);
    case 2: {
      require(classes == 2, ErrorCode::invalid_argument, where, op,
              ": label_mode \"binary\" is for two classes, but there are ", classes);
      return Tensor::from(std::vector<float>(values.begin(), values.end()), {count, 1}, where);
    }
    default: return {};
  }
}

std::vector<std::string> paths(const LabelledFiles& listing) {
  std::vector<std::string> result;
  for (const LabelledFile& file : listing.files) result.push_back(file.path);
  return result;
}

}  // namespace

ImageExamples image_dataset_from_directory(const std::string& directory, const ImageOptions& options,
                                           std::source_location where) {
  constexpr const char* kOp = "image_dataset_from_directory";
  require(options.image_size.size() == 2 && options.image_size[0] > 0 && options.image_size[1] > 0,
          ErrorCode::invalid_argument, where, kOp, ": image_size is a positive height and width, received ",
          Shape(options.image_size));
  constexpr int kChannels[] = {1, 3, 4};
  const int channels =
      kChannels[choose(kOp, "color_mode", options.color_mode, {"grayscale", "rgb", "rgba"}, where)];
  const data::ResizeOptions resize{.interpolation = options.interpolation,
                                   .crop_to_aspect_ratio = options.crop_to_aspect_ratio};
  ImageFiles files = image_files_from_directory(directory, options.files, where);
  ImageExamples examples;
  examples.y = files.y;
  examples.class_names = std::move(files.class_names);
  examples.file_paths = std::move(files.file_paths);
  examples.x = data::decode_image_files(
      examples.file_paths, {.image_size = options.image_size, .channels = channels, .resize = resize}, where);
  return examples;
}

ImageFiles image_files_from_directory(const std::string& directory, const DirectoryOptions& options,
                                      std::source_location where) {
  constexpr const char* kOp = "image_dataset_from_directory";
  const LabelledFiles listing = list(kOp, directory, options, data::kImageExtensions, where);
  return {labels(kOp, listing, options.label_mode, where), listing.class_names, paths(listing)};
}

TextExamples text_dataset_from_directory(const std::string& directory, const DirectoryOptions& options,
                                         std::source_location where) {
  constexpr const char* kOp = "text_dataset_from_directory";
  static constexpr const char* kExtensions[] = {".txt"};
  const LabelledFiles listing = list(kOp, directory, options, kExtensions, where);
  TextExamples examples{
      {}, labels(kOp, listing, options.label_mode, where), listing.class_names, paths(listing)};
  for (const std::string& path : examples.file_paths) examples.texts.push_back(read_file(path, where));
  return examples;
}

}  // namespace lockstep::keras::utils
