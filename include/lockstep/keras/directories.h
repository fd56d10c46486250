// keras::utils: folders of images and texts, one folder per class.
//
// The functions keep nothing between calls: several threads may call them at once.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/datasets.h"
#include "lockstep/ops/image.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::utils {

// Which files of a folder are read, in which order, and what their labels become. The files of each class are
// sorted; folders inside of a class folder belong to it; hidden files and folders are left out, other files are
// left out with a warning. A folder without class folders is read itself where label_mode is "none".
struct DirectoryOptions {
  // "int": int32 (n,), "categorical": float32 (n, classes), "binary": float32 (n, 1) of two classes, "none".
  std::string label_mode = "int";
  // The folders to read, in the order of their labels. Empty: all of them, sorted.
  std::vector<std::string> class_names = {};
  bool shuffle = true;
  // Needed where a validation split is taken from shuffled files; 0 where it is not given.
  std::optional<uint64_t> seed = {};
  // The last part of the files, once shuffled, is the validation part.
  double validation_split = 0;
  std::string subset = {};  // then: "training" or "validation"
};

struct ImageOptions {
  std::vector<int64_t> image_size = {256, 256};  // height, width
  std::string color_mode = "rgb";                // or "grayscale", "rgba"
  Interpolation interpolation = "bilinear";      // or nearest, bicubic, lanczos3, lanczos5, area
  bool crop_to_aspect_ratio = false;
  DirectoryOptions files = {};
};

struct ImageExamples : datasets::Examples {  // x: float32 (n, height, width, channels), from 0 to 255
  std::vector<std::string> class_names;
  std::vector<std::string> file_paths;
};

// The JPEG and PNG images (.jpg, .jpeg, .png) of a folder. Throws Error(io) that names the file where one
// cannot be read, Error(not_found) where there is none.
ImageExamples image_dataset_from_directory(const std::string& directory, const ImageOptions& options = {},
                                           std::source_location where = std::source_location::current());

// The same files without what is in them: for who reads them when they are needed (data::decode_image_files).
struct ImageFiles {
  Tensor y;  // undefined where label_mode is "none"
  std::vector<std::string> class_names;
  std::vector<std::string> file_paths;
};
ImageFiles image_files_from_directory(const std::string& directory, const DirectoryOptions& options = {},
                                      std::source_location where = std::source_location::current());

struct TextExamples {
  std::vector<std::string> texts;
  Tensor y;
  std::vector<std::string> class_names;
  std::vector<std::string> file_paths;
};

// The text files (.txt) of a folder.
TextExamples text_dataset_from_directory(const std::string& directory, const DirectoryOptions& options = {},
                                         std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::utils
