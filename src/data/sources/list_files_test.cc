#include <gmock/gmock.h>

#include <algorithm>

#include "data/node.h"
#include "data/sources/files_test.h"
#include "lockstep/data/image.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using FileLists = FilesTest;

TEST_F(FileLists, NamesAreSortedAndUnique) {
  for (const char* name : {"b.txt", "a.txt", "c.csv"}) write(name, "");
  write("d.txt/inner", "");
  const std::vector<std::string> expected{path("a.txt"), path("b.txt")};
  const Dataset data = Dataset::list_files({path("*.txt"), path("b*")}, {.shuffle = false});
  EXPECT_EQ(texts(data), expected);
  EXPECT_EQ(data.cardinality(), 2);
  EXPECT_THAT(error([&] {
                Dataset::list_files({path("*.txt"), path("*.png")});
              }),
              HasSubstr("no file matches \"" + path("*.png") + "\""));
  EXPECT_THAT(error([&] { Dataset::list_files({}); }), HasSubstr("no pattern"));
  expect_restores_everywhere(data);
  EXPECT_EQ(texts(Dataset(data.node()->shard_files(2, 1))), std::vector{path("b.txt")});
  EXPECT_EQ(data.node()->shard_files(3, 1), nullptr);
}

TEST_F(FileLists, NamesAreShuffledAnew) {
  for (int i = 10; i < 40; ++i) write(std::to_string(i), "");
  const Dataset data = Dataset::list_files({path("*")}, {.seed = 3});
  const std::vector<std::string> first = texts(data), second = texts(data);
  EXPECT_NE(first, second);
  EXPECT_EQ(texts(Dataset::list_files({path("*")}, {.seed = 3})), first);
  std::vector<std::string> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, texts(Dataset::list_files({path("*")}, {.shuffle = false})));
}

TEST_F(FileLists, RowsOfIdxFiles) {
  const std::string images = write("images", std::string("\0\0\x08\x02\0\0\0\3\0\0\0\2abcdef", 18));
  const std::string labels =
      write("labels", compressed(std::string("\0\0\x08\x01\0\0\0\3\1\2\3", 11), Compression::gzip));
  const Dataset data = idx_dataset(images, labels);
  EXPECT_EQ(data.cardinality(), 3);
  EXPECT_EQ(data.element_spec(),
            (ElementSpec{Structure::parse("(*, *)"), {{DType::uint8, {2}}, {DType::uint8, {}}}}));
  Iterator iterator(data);
  iterator.next();
  const Element second = *iterator.next();
  EXPECT_EQ(text(second[0].tensor()), "cd");
  EXPECT_EQ(second[1].tensor().item<uint8_t>(), 2);
  expect_restores_everywhere(data);
  expect_restores_everywhere(data.shuffle(2, {.seed = 1, .reshuffle_each_iteration = false}));
  EXPECT_EQ(texts(idx_dataset(images)), (std::vector<std::string>{"ab", "cd", "ef"}));
  EXPECT_THAT(error([&] { idx_dataset(images, write("few", std::string("\0\0\x08\x01\0\0\0\2\1\2", 10))); }),
              HasSubstr("must agree in their first dimension"));
  const Dataset changed = idx_dataset(images);
  write("images", std::string("\0\0\x08\x02\0\0\0\2\0\0\0\2abcd", 16));
  EXPECT_THAT(all(changed), ElementsAre(HasSubstr("changed meanwhile")));
}

TEST_F(FileLists, FoldersOfImages) {
  const auto image = [](uint8_t value) {
    return encode_png(Tensor::from(std::vector<uint8_t>(12, value), {2, 2, 3}));
  };
  write("cat/1.png", image(1));
  write("cat/deep/2.png", image(2));
  write("dog/3.PNG", image(3));
  write("dog/notes.txt", "");
  const std::string folder = path("");
  const ImageFolderOptions options{.image_size = {1, 4}, .shuffle = false};
  const Dataset data = image_folder_dataset(folder, options);
  EXPECT_EQ(data.cardinality(), 3);
  EXPECT_EQ(data.element_spec(),
            (ElementSpec{Structure::parse("(*, *)"), {{DType::float32, {1, 4, 3}}, {DType::int32, {}}}}));
  std::vector<int> seen;
  for (const Element& element : data) {
    EXPECT_EQ(element.spec(), data.element_spec());
    seen.push_back(static_cast<int>(element[0].tensor().data<float>()[5]) * 10 +
                   element[1].tensor().item<int32_t>());
  }
  EXPECT_EQ(seen, (std::vector<int>{10, 20, 31}));
  expect_restores_everywhere(data);

  ImageFolderOptions batches = options;
  batches.batch_size = 2;
  batches.class_names = {"dog", "cat"};
  std::vector<int64_t> sizes;
  std::vector<int32_t> labels;
  for (const Element& element : image_folder_dataset(folder, batches)) {
    sizes.push_back(element[0].tensor().shape()[0]);
    for (const int32_t label : element[1].tensor().to_vector<int32_t>()) labels.push_back(label);
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(labels, (std::vector<int32_t>{0, 1, 1}));
  batches.labels = false;
  batches.drop_remainder = true;
  EXPECT_EQ(image_folder_dataset(folder, batches).element_spec(),
            (ElementSpec{{}, {{DType::float32, {2, 1, 4, 3}}}}));

  write("cat/4.png", "no image");
  EXPECT_THAT(all(image_folder_dataset(folder, options))[1], HasSubstr("cat/4.png"));
  EXPECT_THAT(error([&] { image_folder_dataset(path("none")); }), HasSubstr("no folder"));
  EXPECT_THAT(error([&] { image_folder_dataset(folder, {.class_names = {"dgo"}}); }), HasSubstr("\"dog\"?"));
  EXPECT_THAT(error([&] { image_folder_dataset(folder, {.channels = 2}); }), HasSubstr("channels"));
}

}  // namespace
}  // namespace lockstep::data
