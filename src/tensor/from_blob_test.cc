#include "lockstep/tensor/from_blob.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

std::shared_ptr<std::vector<float>> elements() {
  return std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST(FromBlob, ReadsElementsWhereTheyLie) {
  const auto owner = elements();
  const Tensor x = from_blob(owner->data(), {DType::float32, {2, 3}}, owner);
  EXPECT_EQ(x.data<float>().data(), owner->data());
  EXPECT_EQ(x.device().kind(), DeviceKind::cpu);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  (*owner)[0] = 9;
  EXPECT_EQ(x.to_vector<float>()[0], 9);
}

TEST(FromBlob, HoldsTheOwnerAsLongAsAViewLives) {
  auto owner = elements();
  const std::weak_ptr<std::vector<float>> held = owner;
  Tensor row;
  {
    const Tensor x = from_blob(owner->data(), {DType::float32, {2, 3}}, owner);
    owner.reset();
    row = make_view(*x.impl(), {DType::float32, {3}}, {1}, 3);
  }
  EXPECT_FALSE(held.expired());
  EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{4, 5, 6}));
  row = {};
  EXPECT_TRUE(held.expired());
}

TEST(FromBlob, IsInNobodysAccount) {
  Device& cpu = device_by_name("/CPU:0");
  std::vector<float> owner(1 << 20);
  const int64_t before = cpu.memory_info().current, ledger = backend_of(cpu).ledger().summary().after;
  {
    const Tensor x = from_blob(owner.data(), {DType::float32, {1 << 20}});
    EXPECT_EQ(cpu.memory_info().current, before);
    EXPECT_EQ(backend_of(cpu).ledger().summary().after, ledger);
  }
  EXPECT_EQ(cpu.memory_info().current, before);
  EXPECT_EQ(backend_of(cpu).ledger().summary().after, ledger);
}

TEST(FromBlob, MayNotBeOverwritten) {
  const auto owner = elements();
  const Tensor x = from_blob(owner->data(), {DType::float32, {6}}, owner);
  EXPECT_FALSE(sole_owner(x));
}

TEST(FromBlob, ElementsMayBeginAnywhereThatIsAlignedForThem) {
  std::vector<char> bytes(64);
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::int32, DType::float64}) {
    const size_t width = size_of(dtype);
    const auto place = reinterpret_cast<uintptr_t>(bytes.data());
    char* const aligned = bytes.data() + (width - place % width) % width;
    EXPECT_EQ(from_blob(aligned + width, {dtype, {2}}).size(), 2);
    if (width == 1) continue;
    try {
      from_blob(aligned + 1, {dtype, {2}});
      FAIL() << "taken, though it begins between two elements";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find("copy it to where it is aligned"), std::string::npos);
    }
  }
}

TEST(FromBlob, RefusesWhatIsNoMemory) {
  EXPECT_THROW(from_blob(nullptr, {DType::float32, {2}}), Error);
  EXPECT_EQ(from_blob(nullptr, {DType::float32, {0, 3}}).to_vector<float>(), std::vector<float>());
  const float one = 1;
  EXPECT_THROW(from_blob(&one, {DType::float32, {-1}}), Error);
  EXPECT_THROW(from_blob(&one, {DType::float32, {int64_t{1} << 40, int64_t{1} << 40}}), Error);
}

TEST(GiveBack, CopiesForThoseWhoStillRead) {
  const auto owner = elements();
  const int64_t ledger = backend_of(device_by_name("/CPU:0")).ledger().summary().after;
  Tensor x = from_blob(owner->data(), {DType::float32, {6}}, owner);
  const Tensor kept = make_view(*x.impl(), {DType::float32, {2}}, {1}, 2);
  give_back(std::move(x));
  (*owner)[2] = 9;
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_NE(kept.data<float>().data(), owner->data() + 2);
  EXPECT_EQ(backend_of(kept.device()).ledger().summary().after, ledger + 24) << "the copy is the device's";
  EXPECT_FALSE(sole_owner(kept)) << "others may know where it was";
}

TEST(GiveBack, LetsGoOfTheOwnerWhereSomebodyKeepsAPart) {
  auto owner = elements();
  const std::weak_ptr<std::vector<float>> held = owner;
  Tensor x = from_blob(owner->data(), {DType::float32, {6}}, owner);
  owner.reset();
  const Tensor kept = make_view(*x.impl(), {DType::float32, {2}}, {1}, 2);
  give_back(std::move(x));
  EXPECT_TRUE(held.expired());
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{3, 4}));
}

TEST(GiveBack, ChangesNothingWhereThereIsNoRoomForTheCopy) {
  Device& cpu = device_by_name("/CPU:0");
  std::vector<float> rows(1 << 20, 1);
  Tensor x = lend(rows.data(), {DType::float32, {1 << 20}});
  const Tensor kept = x;
  cpu.set_memory_limit(cpu.memory_info().current + 1000);
  EXPECT_THROW(give_back(std::move(x)), Error);
  cpu.set_memory_limit(0);
  ASSERT_TRUE(x.defined());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(x.data<float>().data(), rows.data());
  give_back(std::move(x));
  rows[0] = 9;
  EXPECT_EQ(kept.to_vector<float>()[0], 1);
}

TEST(GiveBack, CopiesNothingWhereNobodyReads) {
  auto owner = elements();
  const std::weak_ptr<std::vector<float>> held = owner;
  Device& cpu = device_by_name("/CPU:0");
  Tensor x = from_blob(owner->data(), {DType::float32, {6}}, owner);
  owner.reset();
  cpu.reset_peak_memory();
  const int64_t peak = cpu.memory_info().peak;
  give_back(std::move(x));
  EXPECT_TRUE(held.expired());
  EXPECT_EQ(cpu.memory_info().peak, peak);
}

TEST(Lend, ShowsCopiesUntilItIsGivenBack) {
  const auto owner = elements();
  Tensor x = lend(owner->data(), {DType::float32, {2, 3}}, owner);
  EXPECT_EQ(x.data<float>().data(), owner->data()) << "the library reads it in place";
  const Tensor row = make_view(*x.impl(), {DType::float32, {3}}, {1}, 3);
  const Elements<float> all = x.numpy(), second = row.numpy();
  EXPECT_NE(all.data(), owner->data());
  give_back(std::move(x));
  std::fill(owner->begin(), owner->end(), 9.0F);
  EXPECT_EQ(std::vector<float>(all.begin(), all.end()), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(std::vector<float>(second.begin(), second.end()), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(row.numpy().data(), row.data<float>().data()) << "a copy of one's own is shown in place";
}

TEST(Lend, OfWhichSomebodyOwnsAPart) {
  const auto owner = elements();
  Device& cpu = device_by_name("/CPU:0");
  Tensor x = lend(owner->data(), {DType::float32, {2, 3}}, owner);
  const Tensor column = owned(make_view(*x.impl(), {DType::float32, {2}}, {3}, 1), cpu);
  cpu.reset_peak_memory();
  const int64_t peak = cpu.memory_info().peak;
  give_back(std::move(x));
  EXPECT_EQ(cpu.memory_info().peak, peak) << "nobody reads what was lent";
  EXPECT_EQ(column.to_vector<float>(), (std::vector<float>{2, 5}));
  EXPECT_EQ(owned(column, cpu).data<float>().data(), column.data<float>().data());
}

TEST(GiveBack, LeavesTensorsWithMemoryOfTheirOwn) {
  Tensor x = Tensor::from<float>({1, 2}, {2});
  give_back(std::move(x));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2}));  // NOLINT(bugprone-use-after-move)
  Tensor none;
  give_back(std::move(none));
  EXPECT_FALSE(none.defined());  // NOLINT(bugprone-use-after-move)
}

TEST(GiveBack, WhileAnotherThreadReads) {
  for (int i = 0; i < 100; ++i) {
    const auto owner = elements();
    Tensor x = from_blob(owner->data(), {DType::float32, {6}}, owner);
    const Tensor kept = x;
    float sum = 0;
    std::thread reader([&] {
      for (const float value : kept.data<float>()) sum += value;
    });
    give_back(std::move(x));
    reader.join();
    EXPECT_EQ(sum, 21);
  }
}

}  // namespace
}  // namespace lockstep
