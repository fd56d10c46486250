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

TEST(BorrowedArrays, ThatAFunctionCapturesAreCopied) {
  std::vector<float> memory = {1, 2, 3, 4};
  Tensor whole = from_blob(memory.data(), {DType::float32, {2, 2}});
  const Tensor turned = transpose(whole);
  auto compiled = function([whole, turned](const Tensor& x) { return x * whole + turned; });
  const Tensor one = Tensor::full(DType::float32, {2, 2}, 1);
  const std::vector<float> before = compiled(one).to_vector<float>();
  give_back(std::move(whole));
  for (float& element : memory) element = 100;
  EXPECT_EQ(compiled(one).to_vector<float>(), before);
}

}  // namespace
}  // namespace lockstep::testing
