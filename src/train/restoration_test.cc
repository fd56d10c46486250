#include "train/restoration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An object whose variables are made one by one, as those of a model without an input shape are.
class Growing final : public TrackedObject {
 public:
  std::string kind() const override { return "Growing"; }
  NamedVariables variables() const override { return variables_; }
  NamedTrackables children() const override { return children_; }
  bool complete() const override { return complete_; }
  void when_grown(const GrownCall& call) const override { call_ = call; }

  const Variable& grow(const std::string& name, const Tensor& value, bool last = false) {
    variables_.emplace_back(name, Variable(value));
    complete_ = last;
    if (const GrownCall call = call_) (*call)(*this);
    return variables_.back().second;
  }
  void add(const std::string& name, const std::shared_ptr<TrackedObject>& child) {
    children_.emplace_back(name, Trackable(child));
  }

 private:
  NamedVariables variables_;
  NamedTrackables children_;
  bool complete_ = false;
  mutable GrownCall call_;
};

class RestorationTest : public ::testing::Test {
 protected:
  RestorationTest() {
    restoration_->path = "run/ckpt-3";
    restoration_->pending = {{"model/bias", Tensor::scalar(1.0F)}, {"model/kernel", Tensor::scalar(2.0F)}};
    previous_ =
        set_log_sink([this](const LogMessage& message) { logged_ += std::string(message.text) + "\n"; });
  }
  ~RestorationTest() override {
    restoration_.reset();
    set_log_sink(previous_);
  }

  const std::shared_ptr<Growing> model_ = std::make_shared<Growing>();
  std::shared_ptr<Restoration> restoration_ = std::make_shared<Restoration>();
  std::string logged_;
  LogSink previous_;
};

TEST(AllObjects, HaveTheirWholeNames) {
  const auto model = std::make_shared<Growing>(), layer = std::make_shared<Growing>();
  model->add("dense", layer);
  const NamedObjects all = all_objects({{"model", Trackable(model)}, {"step", Trackable(layer)}});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].first, "model");
  EXPECT_EQ(all[1].first, "model/dense");
  EXPECT_EQ(all[1].second, layer);
  EXPECT_EQ(all[2].first, "step");
}

TEST_F(RestorationTest, GoesOnWithWhatIsMadeLater) {
  watch(restoration_, "model", *model_);
  EXPECT_EQ(model_->grow("kernel", Tensor::scalar(0.0F)).value().item<float>(), 2);
  EXPECT_THAT(restoration_->names_of_pending(), ElementsAre(HasSubstr("model/bias float32")));
  EXPECT_EQ(model_->grow("bias", Tensor::scalar(0.0F), true).value().item<float>(), 1);
  EXPECT_THAT(restoration_->names_of_pending(), IsEmpty());
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(RestorationTest, SaysWhatNeverFoundItsPlace) {
  model_->grow("kernel", Tensor::scalar(0.0F));
  model_->grow("gamma", Tensor::scalar(0.0F), true);
  restoration_->continue_with("model", *model_);
  EXPECT_THAT(restoration_->found.missing, ElementsAre(HasSubstr("model/gamma")));
  EXPECT_THAT(restoration_->found.extra, ElementsAre(HasSubstr("model/bias")));
  EXPECT_THAT(logged_, HasSubstr("did not match what was built"));
}

TEST_F(RestorationTest, WarnsOfWhatNobodyMade) {
  restoration_.reset();
  EXPECT_THAT(logged_, HasSubstr("never restored, as no variable of this name was made:\n    model/bias"));
}

TEST_F(RestorationTest, OfAnotherShapeIsRefused) {
  model_->grow("kernel", Tensor::full(DType::float32, {2}, 0));
  EXPECT_THROW(restoration_->continue_with("model", *model_), Error);
  restoration_->accepted = true;
}

TEST_F(RestorationTest, ALaterRestoreTakesItsPlace) {
  restoration_->supersede();
  model_->grow("kernel", Tensor::scalar(5.0F));
  restoration_->continue_with("model", *model_);
  EXPECT_EQ(model_->variables()[0].second.value().item<float>(), 5);
  restoration_.reset();
  EXPECT_THAT(logged_, IsEmpty());
}

}  // namespace
}  // namespace lockstep::train
