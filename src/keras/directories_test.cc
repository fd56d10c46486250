#include "lockstep/keras/directories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/image.h"

namespace lockstep::keras::utils {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Directories : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"dogs/inner", "cats", ".hidden"})
      std::filesystem::create_directories(path(folder));
    image("cats/a.png", 10);
    image("cats/b.JPG", 20);
    image("dogs/inner/c.jpeg", 30);
    image("dogs/d.png", 40);
    image("dogs/.e.png", 50);
    image(".hidden/f.png", 60);
    text("dogs/notes.txt", "wuff");
    text("cats/notes.txt", "miau");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void text(const std::string& name, const std::string& contents) const {
    std::ofstream(path(name), std::ios::binary) << contents;
  }
  void image(const std::string& name, uint8_t value) const {
    const Tensor pixels = Tensor::from(std::vector<uint8_t>(6 * 4 * 3, value), {6, 4, 3});
    text(name, name.ends_with(".png") ? data::encode_png(pixels) : data::encode_jpeg(pixels));
  }
  std::string error(const ImageOptions& options) const {
    try {
      image_dataset_from_directory(root_, options);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }

  std::string root_ = testing::TempDir() + "lockstep_directories_" + std::to_string(getpid());
};

TEST_F(Directories, FoldersAreClasses) {
  const ImageExamples images =
      image_dataset_from_directory(root_, {.image_size = {2, 3}, .files = {.shuffle = false}});
  EXPECT_THAT(images.class_names, ElementsAre("cats", "dogs"));
  EXPECT_THAT(images.file_paths, ElementsAre(path("cats/a.png"), path("cats/b.JPG"), path("dogs/d.png"),
                                             path("dogs/inner/c.jpeg")));
  EXPECT_EQ(images.x.spec(), (TensorSpec{DType::float32, {4, 2, 3, 3}}));
  EXPECT_THAT(images.y.to_vector<int32_t>(), ElementsAre(0, 0, 1, 1));
  const auto x = images.x.to_vector<float>();
  const float values[] = {10, 20, 40, 30};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(x[18 * i], values[i], 1) << i;
}

TEST_F(Directories, LabelsHaveFourModes) {
  const auto labels = [&](const std::string& mode) {
    return text_dataset_from_directory(
        root_, {.label_mode = mode, .class_names = {"dogs", "cats"}, .shuffle = false});
  };
  EXPECT_THAT(labels("int").texts, ElementsAre("wuff", "miau"));
  EXPECT_THAT(labels("int").y.to_vector<int32_t>(), ElementsAre(0, 1));
  EXPECT_THAT(labels("categorical").y.to_vector<float>(), ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(labels("binary").y.spec(), (TensorSpec{DType::float32, {2, 1}}));
  EXPECT_FALSE(labels("none").y.defined());
  EXPECT_THAT(error({.files = {.label_mode = "one"}}), HasSubstr("\"one\""));
}

TEST_F(Directories, SplitsAreDisjointAndComplete) {
  ImageOptions options{.image_size = {1, 1}, .color_mode = "grayscale"};
  std::set<std::string> seen;
  for (const char* subset : {"training", "validation"}) {
    options.files = {.seed = 7, .validation_split = 0.3, .subset = subset};
    const ImageExamples images = image_dataset_from_directory(root_, options);
    EXPECT_EQ(images.x.shape(), (Shape{std::string(subset) == "training" ? 3 : 1, 1, 1, 1}));
    seen.insert(images.file_paths.begin(), images.file_paths.end());
  }
  EXPECT_THAT(seen, SizeIs(4));
  EXPECT_THAT(error({.files = {.validation_split = 0.5, .subset = "training"}}), HasSubstr("needs a seed"));
  EXPECT_THAT(error({.files = {.validation_split = 0.5}}), HasSubstr("go together"));
  EXPECT_THAT(error({.files = {.validation_split = 1}}), HasSubstr("below 1"));
}

TEST_F(Directories, LinksThatLeadNowhereAreNamed) {
  std::filesystem::create_symlink(path("cats/a.png"), path("dogs/linked.png"));
  std::filesystem::create_symlink(path("cats"), path("dogs/folder.png"));
  EXPECT_EQ(image_dataset_from_directory(root_).file_paths.size(), 7u);
  std::filesystem::create_symlink("nowhere", path("dogs/gone.txt"));
  EXPECT_EQ(error({}), "no error") << "it would not have been read";
  std::filesystem::create_symlink("/nowhere/g.png", path("dogs/gone.png"));
  EXPECT_THAT(error({}), HasSubstr("dogs/gone.png\" is a link that leads nowhere"));
}

TEST_F(Directories, FilesThatAreLeftOutAreCountedInAWarning) {
  std::vector<std::string> warnings;
  const LogSink before =
      set_log_sink([&](const LogMessage& message) { warnings.push_back(std::string(message.text)); });
  const auto list = [&](const DirectoryOptions& options) {
    warnings.clear();
    image_files_from_directory(root_, options);
  };
  for (const char* name : {"cats/1.gif", "cats/2.GIF", "dogs/3.webp", "dogs/README", "dogs/.hidden.bmp"})
    text(name, "?");
  for (const char* name : {"beside.png", "beside.gif"}) text(name, "?");
  list({});
  ASSERT_THAT(warnings, SizeIs(2));
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("that are not .jpeg, .jpg, .png are left out: "),
                                 HasSubstr("1 without an extension, 2 .gif, 2 .txt, 1 .webp")));
  EXPECT_THAT(warnings[1], HasSubstr("1 files (.jpeg, .jpg, .png)"));
  EXPECT_THAT(warnings[1], HasSubstr("lie beside the class folders"));
  for (const char* name : {"cats", "dogs"}) std::filesystem::remove_all(path(name));
  std::filesystem::remove(path("beside.gif"));
  list({.label_mode = "none"});
  EXPECT_THAT(warnings, SizeIs(0));
  set_log_sink(before);
}

// Where labels are of no use, images need no class folders.
TEST_F(Directories, AFolderWithoutClassesIsReadWhereNoLabelsAreWanted) {
  std::filesystem::create_directories(path("flat"));
  image("flat/2.png", 20);
  image("flat/1.png", 10);
  const ImageExamples images = image_dataset_from_directory(
      path("flat"), {.image_size = {2, 3}, .files = {.label_mode = "none", .shuffle = false}});
  EXPECT_THAT(images.file_paths, ElementsAre(path("flat/1.png"), path("flat/2.png")));
  EXPECT_FALSE(images.y.defined());
  EXPECT_THROW(image_files_from_directory(path("flat")), Error);
}

TEST_F(Directories, WhatCannotBeReadIsNamed) {
  text("cats/broken.png", "\x89PNG\r\n\x1a\nrubbish");
  EXPECT_THAT(error({}), HasSubstr(path("cats/broken.png")));
  EXPECT_THAT(error({.files = {.class_names = {"cat"}}}), HasSubstr("did you mean \"cats\"?"));
  EXPECT_THAT(error({.color_mode = "cmyk"}), HasSubstr("\"grayscale\", \"rgb\", \"rgba\""));
  EXPECT_THAT(error({.image_size = {3}}), HasSubstr("image_size"));
  try {
    image_dataset_from_directory(path("missing"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("no folder"));
  }
  try {
    text_dataset_from_directory(path("dogs"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), AllOf(HasSubstr("no file (.txt)"), HasSubstr("folder of its own")));
  }
}

}  // namespace
}  // namespace lockstep::keras::utils
