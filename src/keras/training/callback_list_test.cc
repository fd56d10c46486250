#include "keras/training/callback_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes down what it hears, and under which name.
class Listener final : public CallbackBase {
 public:
  Listener(std::string name, std::vector<std::string>& heard) : name_(std::move(name)), heard_(heard) {}
  void on_epoch_begin(int epoch, const Logs&) override {
    heard_.push_back(name_ + std::to_string(epoch) + " of " + std::to_string(params().epochs));
  }
  void add_logs(int, Logs& logs) override { logs.set(name_, static_cast<double>(logs.entries().size())); }
  bool wants_batch_logs() const override { return wants; }
  bool needs_every_batch() const override { return needs; }
  bool wants = false, needs = false;

 private:
  std::string name_;
  std::vector<std::string>& heard_;
};

Model any_model() { return Sequential({layers::Dense(1, {.input_shape = {2}})}); }

TEST(CallbackList, TellsAllInOrderTheLastOneLast) {
  Model model = any_model();
  std::vector<std::string> heard;
  const CallbackList list({make_callback<Listener>("a", heard), make_callback<Listener>("b", heard)}, model,
                          {.epochs = 3, .steps = 1, .verbose = 0}, std::source_location::current(),
                          make_callback<Listener>("last", heard));
  list.tell(&CallbackBase::on_epoch_begin, 2, Logs());
  EXPECT_THAT(heard, ElementsAre("a2 of 3", "b2 of 3", "last2 of 3"));
  Logs logs;
  list.add_logs(0, logs);
  EXPECT_EQ(logs.find("b"), 1) << "each sees what those before it added";
  EXPECT_EQ(logs.find("last"), 2);
}

TEST(CallbackList, WantsWhatAnyOfThemWants) {
  Model model = any_model();
  std::vector<std::string> heard;
  const auto one = std::make_shared<Listener>("a", heard), other = std::make_shared<Listener>("b", heard);
  const CallbackList list({Callback(one), Callback(other)}, model, {.verbose = 0},
                          std::source_location::current());
  EXPECT_FALSE(list.wants_batch_logs());
  EXPECT_FALSE(list.needs_every_batch());
  other->wants = true;
  one->needs = true;
  EXPECT_TRUE(list.wants_batch_logs());
  EXPECT_TRUE(list.needs_every_batch());
}

TEST(CallbackList, AddsAProgressBarUnlessTheRunIsSilent) {
  Model model = any_model();
  for (const int verbose : {0, 2}) {
    const CallbackList list({}, model, {.epochs = 2, .steps = 5, .verbose = verbose},
                            std::source_location::current());
    ::testing::internal::CaptureStdout();
    list.tell(&CallbackBase::on_epoch_begin, 0, Logs());
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), verbose == 0 ? "" : "Epoch 1/2\n");
  }
}

TEST(CallbackList, RefusesAnEmptyCallback) {
  Model model = any_model();
  std::vector<std::string> heard;
  const auto make = [&] {
    CallbackList({make_callback<Listener>("a", heard), Callback()}, model, {.verbose = 0},
                 std::source_location::current());
  };
  EXPECT_THAT(lockstep::testing::error_of(make).message(), HasSubstr("callback 1 of 2 is empty"));
}

}  // namespace
}  // namespace lockstep::keras
