// Models are trained on memory that is somebody else's as on their own copies of it.
#include "borrowed_arrays.h"

namespace lockstep::testing {
namespace {

TEST(BorrowedArrays, TrainAsCopiesDo) { expect_borrowed_trains_as_copied(); }

TEST(BorrowedArrays, TrainOnSeveralDevicesAsCopiesDo) {
  const distribute::MirroredStrategy strategy({"/cpu:0", "/cpu:1"}, {.report = false});
  const auto scope = strategy.scope();
  expect_borrowed_trains_as_copied();
}

TEST(BorrowedArrays, AreGivenBack) {
  auto owner = std::make_shared<HostArrays>();
  const std::weak_ptr<HostArrays> held = owner;
  Tensor x = from_blob(owner->x.data(), {DType::float32, {kRows, kColumns}}, owner);
  Tensor y = from_blob(owner->y.data(), {DType::float32, {kRows, 1}}, owner);
  owner.reset();
  const keras::Sequential model = compiled_model();
  for (const bool shuffle : {true, false}) results_of(model, {x, y}, shuffle);
  give_back(std::move(x));
  give_back(std::move(y));
  EXPECT_TRUE(held.expired()) << "nothing of the model keeps its data";
}

}  // namespace
}  // namespace lockstep::testing
