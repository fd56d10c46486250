// `lockstep convert`: a run's model as files of others.
#include "cli/tool_test.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConvertTest : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    const Answer trained =
        shell("lockstep train mlp --epochs 1 --train-size 128 --test-size 16 --output out");
    ASSERT_EQ(trained.status, 0) << trained.errors;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void convert(const std::string& from, const std::string& to) const {
    const Answer answer = shell("lockstep convert " + from + " " + to);
    ASSERT_EQ(answer.status, 0) << answer.errors;
    EXPECT_EQ(answer.output, "mlp written to " + to + "\n");
  }
};

TEST_F(ConvertTest, WritesWhatOthersRead) {
  convert("out", "m.keras");
  convert("out", "m.onnx");
  convert("m.keras", "again.weights.h5");
  convert("out", "w.safetensors");
  const keras::Model model = keras::models::load_model(path("m.keras"));
  const Tensor x = random::uniform({3, 784});
  const Tensor expected = model.predict(x);
  const auto expect_same = [&](const keras::Model& other, const char* what) {
    EXPECT_LT(reduce_max(abs(other.predict(x) - expected)).item<float>(), 1e-4F) << what;
  };
  expect_same(keras::models::load_model(path("m.onnx")), "m.onnx");
  for (const char* weights : {"again.weights.h5", "w.safetensors", "out/weights.safetensors"}) {
    const keras::Model other = keras::models::clone_model(model);
    other.load_weights(path(weights));
    expect_same(other, weights);
  }
}

TEST_F(ConvertTest, SaysWhatItCannotDo) {
  const Answer other = shell("lockstep convert out m.txt");
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.errors,
              AllOf(HasSubstr("m.txt"), HasSubstr(".keras, .onnx, .weights.h5 or .safetensors")));
  const Answer nothing = shell("lockstep convert nowhere m.keras");
  EXPECT_NE(nothing.status, 0);
  EXPECT_THAT(nothing.errors, HasSubstr("nowhere"));
  EXPECT_FALSE(fs::exists(folder_ / "m.keras"));
}

}  // namespace
}  // namespace lockstep::cli
