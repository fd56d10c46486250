// Looking at runs: lockstep report, watch and doctor DIR, as people and scripts call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/page/page.h"
#include "cli/tool_test.h"
#include "cli/watch.h"
#include "lockstep/base/json.h"
#include "lockstep/base/terminal.h"
#include "observe/record_mutations_test.h"

namespace lockstep::cli {
namespace {

using observe::RunRecord;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunsTest : public ToolTest {
 protected:
  // Some tenths of a second.
  Answer train(const std::string& flags) const {
    return shell("lockstep train mlp --epochs 2 --train-size 1280 --test-size 100 --threads 1 " + flags);
  }
  void leave(const std::string& name, const RunRecord& record) const {
    observe::write_record(record, (folder_ / name).string());
  }
};

TEST_F(RunsTest, ATrainingRunLeavesARecordThatReportAndDoctorRead) {
  const Answer trained = train("--output out --devices 2");
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, HasSubstr("run.json and record.json written to"));
  const RunRecord record = observe::read_record((folder_ / "out").string());
  EXPECT_EQ(record.state, RunRecord::State::finished);
  EXPECT_EQ(record.step, 20);
  EXPECT_EQ(record.replicas.size(), 2u);
  EXPECT_EQ(record.configuration.at("run").at("fit").at("batch_size"), Json(128));
  EXPECT_EQ(record.configuration.at("devices").items().size(), 2u);
  ASSERT_TRUE(record.kernels.has_value());
  EXPECT_GT(record.kernels->flops_per_second, 1e8);
  EXPECT_GT(record.kernels->bytes_per_second, 1e8);

  const Answer report = shell("lockstep report out");
  EXPECT_EQ(report.status, 0) << report.errors;
  EXPECT_EQ(report.output, "page written to out/report.html: open it in a browser\n");
  const std::string page = text("out/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("Chart.js v3"), HasSubstr("Permission is hereby granted"),
                          HasSubstr("plot-timeline")));
  for (const char* fetched : {"src=\"http", "href=\"http", "url(http", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(fetched))) << "everything is in the page";
  EXPECT_EQ(shell("lockstep report out/record.json --output p.html").status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "p.html"));

  const Answer doctor = shell("lockstep doctor out");
  EXPECT_EQ(doctor.status, 0) << doctor.output;
  EXPECT_THAT(doctor.output, AllOf(HasSubstr("Run out"), HasSubstr("finished"), HasSubstr("longest kernel")));
  const Json json = Json::parse(shell("lockstep doctor out --json").output);
  EXPECT_EQ(json.at("run").at("step"), Json(20));
}

TEST_F(RunsTest, APageShowsHowTheRunScales) {
  write("scale.json",
        R"({"kind": "lockstep scale", "schema": 1, "model": "mlp", "cores": 2, "gpus": 0, "tables": []})");
  write("plan.json", R"({"kind": "lockstep plan", "schema": 1, "model": "mlp </script>", "rows": []})");
  leave("run", observe::sample_record());
  ASSERT_EQ(shell("lockstep report run scale.json plan.json").status, 0);
  EXPECT_THAT(text("run/report.html"), AllOf(HasSubstr("\"kind\":\"lockstep scale\""),
                                             HasSubstr("\"model\":\"mlp \\u003c/script>\"")));
  // Alone, it is called after the model.
  ASSERT_EQ(shell("lockstep report scale.json --output s.html").status, 0);
  EXPECT_THAT(text("s.html"), HasSubstr("<title>mlp – Lockstep</title>"));
  expect_one_line("lockstep report run run", "is a second run; a page is about one");
  expect_one_line("lockstep report nowhere", "there is no");
}

TEST_F(RunsTest, TheRecordOfSeveralWorkersIsTheChiefs) {
  const Answer trained = train("--output out --workers 2");
  if (trained.errors.find("Gloo") != std::string::npos && trained.status != 0) GTEST_SKIP() << trained.errors;
  ASSERT_EQ(trained.status, 0) << trained.errors << trained.output;
  const RunRecord record = observe::read_record((folder_ / "out").string());
  EXPECT_EQ(record.state, RunRecord::State::finished);
  ASSERT_EQ(record.replicas.size(), 2u);
  EXPECT_THAT(record.replicas[1].name, HasSubstr("replica 1 of worker 1 (process "));
  for (const RunRecord::Replica& replica : record.replicas) {
    EXPECT_EQ(replica.steps, 20);
    EXPECT_FALSE(replica.intervals.empty());
  }
  EXPECT_EQ(record.memory.size(), 2u);
  EXPECT_EQ(record.configuration.at("workers"), Json(2));
}

TEST_F(RunsTest, TrainWritesThePageWithoutAnOutputToo) {
  const Answer answer = train("--report page.html");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(text("page.html"), HasSubstr("plot-timeline"));
  expect_one_line("lockstep train mlp --epochs 1 --train-size 128 --report no/such/folder.html", "--report");
}

TEST_F(RunsTest, TwoRunsAreCompared) {
  RunRecord before = observe::sample_record();
  RunRecord after = before;
  after.examples_per_second /= 2;
  leave("a", before);
  leave("b", after);
  const Answer slower = shell("lockstep doctor a b");
  EXPECT_EQ(slower.status, 1);
  EXPECT_THAT(slower.output, HasSubstr("b is 2.00 times as slow as a."));
  EXPECT_EQ(shell("lockstep doctor b a").status, 0);
  EXPECT_EQ(Json::parse(shell("lockstep doctor a b --json").output).at("slowdown"), Json(2.0));
  expect_one_line("lockstep doctor a nowhere", "there is no file or folder \"nowhere\"");
  expect_one_line("lockstep doctor a --quick", "--quick is about this machine");
  EXPECT_EQ(shell("lockstep doctor a b a").status, 2);
}

TEST_F(RunsTest, WatchFollowsARunToItsEnd) {
  RunRecord record = observe::sample_record();
  record.state = RunRecord::State::running;
  record.host = "another machine";
  leave("run", record);
  record.state = RunRecord::State::finished;
  record.step = 18;
  leave("later", record);
  const Answer answer = shell(
      "lockstep watch run --interval 0.05 > seen & "
      "until [ -s seen ]; do sleep 0.02; done; mv later/record.json run/record.json; wait $! && cat seen");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.output, HasSubstr("running, step 12, epoch 3 of 3, loss 1.25"));
  EXPECT_THAT(answer.output, HasSubstr("finished, step 18"));
  EXPECT_THAT(answer.output, HasSubstr("input-bound"));
  EXPECT_THAT(answer.output, Not(HasSubstr("\x1b["))) << "nothing is drawn over where there is no terminal";
  expect_one_line("lockstep watch nowhere", "there is no file or folder \"nowhere\"");
  expect_one_line("lockstep watch run --http 80", "HOST:PORT");
}

TEST(WatchText, FitsTheTerminal) {
  RunRecord record = observe::sample_record();
  record.verdicts[0].cause = std::string(30, 'x') + " " + std::string(90, 'y');
  for (const int columns : {40, 80, 200}) {
    std::istringstream lines(watch_text(record, columns));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("yyy") != std::string::npos) continue;  // a word that fits no line
      EXPECT_LE(terminal::width(line), columns) << line;
    }
  }
  EXPECT_THAT(watch_text(record, 80), AllOf(HasSubstr("mlp </script> · interrupted · epoch 2 of 3 · step 12"),
                                            HasSubstr("  compute                    75.0% █")));
}

TEST(WatchText, SaysHowOldTheStatisticsOfOtherWorkersAre) {
  RunRecord record = observe::sample_record();
  record.others_ms = record.updated_ms - 42'000;
  EXPECT_THAT(watch_text(record, 120), Not(HasSubstr("of other workers")))
      << "it has ended: they are the last ones";
  record.state = RunRecord::State::running;
  EXPECT_THAT(watch_text(record, 120), HasSubstr("of other workers as it was 42 s ago"));
  record.verdicts.clear();
  EXPECT_THAT(watch_text(record, 120), HasSubstr("healthy: " + record.bound));
}

TEST(Page, NamesOfUsersAreNoMarkup) {
  RunRecord record = observe::sample_record();
  const std::string hostile = "</script><img src=x onerror=alert(1)>{{script}}<!--";
  record.model = hostile;
  record.verdicts[0].cause = hostile;
  record.configuration.set(hostile, hostile);
  const std::string text = page({.record = record});
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  EXPECT_THAT(text, Not(HasSubstr("<!--")));
  EXPECT_THAT(text, HasSubstr("\\u003c/script>\\u003cimg"));
  EXPECT_THAT(text, HasSubstr("<title>&lt;/script&gt;"));
  // What stands between the tags of the data is the record.
  const std::string begin = "id=\"record\">";
  const size_t from = text.find(begin) + begin.size();
  const Json shown = Json::parse(text.substr(from, text.find("</script>", from) - from));
  EXPECT_EQ(shown.at("model"), Json(hostile));
}

// Minutes of a browser's work: the stage `pages` of ./run check runs it by itself.
TEST_F(RunsTest, LongPagesOpenInABrowser) {
  if (shell("command -v chromium-headless-shell chromium").output.empty())
    GTEST_SKIP() << "there is no chromium-headless-shell (./run check pages installs it)";
  const Answer answer =
      shell("python3 -B " LOCKSTEP_SOURCE_DIR "/tests/pages/report_pages.py --needed --tool " LOCKSTEP_TOOL);
  EXPECT_EQ(answer.status, 0) << answer.errors;
}

}  // namespace
}  // namespace lockstep::cli
