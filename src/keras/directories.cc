#include "lockstep/keras/directories.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "base/parallel.h"
#include "keras/permutation.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/image.h"
#include "lockstep/keras/preprocessing.h"

namespace lockstep::keras::utils {
namespace {

namespace fs = std::filesystem;

struct LabelledFile {
  std::string path;
  int32_t label;
};

struct Listing {
  std::vector<std::string> class_names;
  std::vector<LabelledFile> files;
};

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

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

std::vector<std::string> files_under(const fs::path& folder, std::span<const char* const> extensions) {
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && std::find(extensions.begin(), extensions.end(),
                                                     lower_extension(entry->path())) != extensions.end()) {
      found.push_back(entry->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Listing list(const char* op, const std::string& directory, const DirectoryOptions& options,
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

  Listing listing{options.class_names, {}};
  try {
    require(fs::is_directory(directory), ErrorCode::not_found, where, op, ": there is no folder \"",
            directory, "\"");
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.is_directory() && !hidden(entry.path())) folders.push_back(entry.path().filename().string());
    std::sort(folders.begin(), folders.end());
    if (listing.class_names.empty()) listing.class_names = folders;
    for (const std::string& name : listing.class_names)
      if (std::find(folders.begin(), folders.end(), name) == folders.end()) {
        const std::string nearest = nearest_spelling(name, folders);
        fail(ErrorCode::not_found, where, op, ": \"", directory, "\" has no folder \"", name, "\"",
             nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
      }
    for (size_t label = 0; label < listing.class_names.size(); ++label)
      for (std::string& path : files_under(fs::path(directory) / listing.class_names[label], extensions))
        listing.files.push_back({std::move(path), static_cast<int32_t>(label)});
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::io, where, op, ": cannot read the folder: ", error.what());
  }
  std::string wanted;
  for (const char* extension : extensions) wanted += (wanted.empty() ? "" : ", ") + std::string(extension);
  require(!listing.files.empty(), ErrorCode::not_found, where, op, ": there is no file (", wanted,
          ") in the class folders of \"", directory, "\"; each class has a folder of its own there");

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

Tensor labels(const char* op, const Listing& listing, const std::string& mode, std::source_location where) {
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

std::vector<std::string> paths(const Listing& listing) {
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
  const int64_t height = options.image_size[0], width = options.image_size[1];
  constexpr int kChannels[] = {1, 3, 4};
  const int channels =
      kChannels[choose(kOp, "color_mode", options.color_mode, {"grayscale", "rgb", "rgba"}, where)];
  const data::ResizeOptions resize{.interpolation = choose(kOp, "interpolation", options.interpolation,
                                                           {"bilinear", "nearest"}, where) == 0
                                                        ? data::Interpolation::bilinear
                                                        : data::Interpolation::nearest,
                                   .crop_to_aspect_ratio = options.crop_to_aspect_ratio};
  static constexpr const char* kExtensions[] = {".jpeg", ".jpg", ".png"};
  const Listing listing = list(kOp, directory, options.files, kExtensions, where);

  ImageExamples examples;
  examples.y = labels(kOp, listing, options.files.label_mode, where);
  examples.class_names = listing.class_names;
  examples.file_paths = paths(listing);
  const auto count = std::ssize(listing.files);
  const int64_t pixels = height * width * channels;
  std::vector<float> x(static_cast<size_t>(count * pixels));
  parallel_for(count, 1, team_size(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string& path = listing.files[static_cast<size_t>(i)].path;
      const Tensor image = data::decode_image(read_file(path, where), channels, path, where);
      const Tensor resized = data::resize_image(image, height, width, resize, where);
      const auto elements = resized.data<float>();
      std::copy(elements.begin(), elements.end(), x.begin() + i * pixels);
    }
  });
  examples.x = Tensor::from(x, {count, height, width, channels}, where);
  return examples;
}

TextExamples text_dataset_from_directory(const std::string& directory, const DirectoryOptions& options,
                                         std::source_location where) {
  constexpr const char* kOp = "text_dataset_from_directory";
  static constexpr const char* kExtensions[] = {".txt"};
  const Listing listing = list(kOp, directory, options, kExtensions, where);
  TextExamples examples{
      {}, labels(kOp, listing, options.label_mode, where), listing.class_names, paths(listing)};
  for (const std::string& path : examples.file_paths) examples.texts.push_back(read_file(path, where));
  return examples;
}

}  // namespace lockstep::keras::utils
