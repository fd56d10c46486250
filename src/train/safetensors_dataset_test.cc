#include "lockstep/train/safetensors_dataset.h"

#include <gmock/gmock.h>

#include "data/sources/files_test.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SafetensorsDataset = FilesTest;

TEST_F(SafetensorsDataset, RowsOfTheTensors) {
  const std::string file = path("a.safetensors");
  train::save_safetensors(file, {{"x", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2})},
                                 {"y", Tensor::from<int64_t>({7, 8, 9}, {3})},
                                 {"z", Tensor::scalar(1.0F)}});
  const Dataset data = safetensors_dataset(file, {.names = {"y", "x"}});
  EXPECT_EQ(data.cardinality(), 3);
  EXPECT_EQ(data.element_spec(),
            (ElementSpec{Structure::parse("{y: *, x: *}"), {{DType::int64, {}}, {DType::float32, {2}}}}));
  Iterator iterator(data);
  iterator.next();
  const Element second = *iterator.next();
  EXPECT_EQ(second["y"].tensor().item<int64_t>(), 8);
  EXPECT_THAT(second["x"].tensor().to_vector<float>(), ElementsAre(3, 4));
  expect_restores_everywhere(data);
  EXPECT_THAT(error([&] { safetensors_dataset(file); }), HasSubstr("['z'] is"));
  EXPECT_THAT(error([&] { safetensors_dataset(file, {.names = {"w"}}); }), HasSubstr("no tensor \"w\""));
}

}  // namespace
}  // namespace lockstep::data
