#include "cli/launch/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::launch {
namespace {

// All bytes that a text may have.
std::string any_bytes() {
  std::string bytes;
  for (int i = 1; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(Messages, CarryAnyBytesInOneLine) {
  const Preparation sent{.ranks = {2, 3},
                         .workers = 4,
                         .program = {"./a b", "", any_bytes(), "%41"},
                         .folder = "/f\n",
                         .meeting_host = "h",
                         .environment = {{"A", any_bytes()}, {"B", ""}},
                         .silence_s = 1.5};
  const std::string line = to_line(sent);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line.find('\r'), std::string::npos);
  const Preparation received = preparation_from(Json::parse(line).at("prepare"));
  EXPECT_EQ(received.ranks, sent.ranks);
  EXPECT_EQ(received.workers, sent.workers);
  EXPECT_EQ(received.program, sent.program);
  EXPECT_EQ(received.folder, sent.folder);
  EXPECT_EQ(received.meeting_host, sent.meeting_host);
  EXPECT_EQ(received.environment, sent.environment);
  EXPECT_EQ(received.silence_s, sent.silence_s);

  const Start start{
      .address = "a:1", .secret = any_bytes(), .restart = 2, .workers = {{0, {}}, {7, Share{{1}, {"x"}}}}};
  const Start told = start_from(Json::parse(to_line(start)).at("start"));
  EXPECT_EQ(told.address, start.address);
  EXPECT_EQ(told.secret, start.secret);
  EXPECT_EQ(told.restart, start.restart);
  EXPECT_EQ(told.workers, start.workers);
}

TEST(Messages, ReportsOfSeveralAgentsMayBeMixedLineByLine) {
  const auto lines = [](const Report& report) {
    std::vector<std::string> all;
    std::istringstream in(to_lines(report));
    for (std::string line; std::getline(in, line);) {
      EXPECT_LE(line.size(), 1000u) << "srun would break it";
      all.push_back(line);
    }
    return all;
  };
  const std::vector<std::string> a = lines({ReportKind::output, 0, std::string(2500, 'a')});
  const std::vector<std::string> b = lines({ReportKind::errors, 1, std::string(2500, 'b')});
  ASSERT_EQ(a.size(), b.size());
  ReportReader reader;
  std::vector<Report> reports;
  for (size_t i = 0; i < a.size(); ++i)
    for (const std::string& line : {a[i], b[i]}) {
      bool is_report = false;
      if (const auto report = reader.read(line, is_report)) reports.push_back(*report);
      EXPECT_TRUE(is_report);
    }
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].text, std::string(2500, 'a'));
  EXPECT_EQ(reports[0].kind, ReportKind::output);
  EXPECT_EQ(reports[1].text, std::string(2500, 'b'));
  EXPECT_EQ(reports[1].rank, 1);
}

TEST(Messages, OtherLinesAreNoReports) {
  ReportReader reader;
  for (const char* line : {"", "Welcome to b!", "srun: error: b: task 1: Killed", "\x1e", "\x1eo", "\x1eox y",
                           "\x1eo1", "\x1ez1 x"}) {
    bool is_report = true;
    EXPECT_FALSE(reader.read(line, is_report)) << line;
    EXPECT_FALSE(is_report) << line;
  }
}

TEST(Messages, ReportsHoldWhatWasSeen) {
  const ReadyReport ready{
      .ranks = {0, 1}, .host = "b", .process = 7, .port = 12000, .machine = {{0, 2}, {"0"}, true}};
  const ReadyReport read = ready_from(to_text(ready));
  EXPECT_EQ(read.ranks, ready.ranks);
  EXPECT_EQ(read.host, ready.host);
  EXPECT_EQ(read.process, ready.process);
  EXPECT_EQ(read.port, ready.port);
  EXPECT_EQ(read.machine, ready.machine);
  EXPECT_EQ(refusal_from(to_text(Refusal{127, "no \"x\"\n"})).message, "no \"x\"\n");
  for (const ExitStatus& status : {ExitStatus{}, ExitStatus{.code = 3}, ExitStatus{.signal = 9}})
    EXPECT_EQ(exit_status_from(to_text(status)), status);
}

}  // namespace
}  // namespace lockstep::launch
