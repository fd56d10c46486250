#include "observe/fixes.h"

#include <gtest/gtest.h>

namespace lockstep::observe::fixes {
namespace {

RunSummary made_by(RunKind kind, const std::string& trained = "run.json") {
  RunSummary run;
  run.setting.kind = kind;
  run.trained = trained;
  return run;
}

TEST(Fixes, OfTheToolRepeatWhatItWasGiven) {
  EXPECT_EQ(batch_size(made_by(RunKind::command_line, "mlp"), 256), "lockstep train mlp --batch-size 256");
  EXPECT_EQ(trace(made_by(RunKind::command_line, "runs/lenet.json")),
            "lockstep train runs/lenet.json --trace steps.json");
  EXPECT_EQ(batch_size(made_by(RunKind::arrays), 256), "model.fit(train, {.batch_size = 256});");
}

}  // namespace
}  // namespace lockstep::observe::fixes
