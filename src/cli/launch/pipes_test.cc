#include "cli/launch/pipes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <vector>

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Pipes : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(ends_, O_CLOEXEC | O_NONBLOCK), 0); }
  void TearDown() override {
    for (const int end : ends_)
      if (end >= 0) close(end);
  }
  void send(const std::string& text) const {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), std::ssize(text));
  }
  std::vector<std::string> read(LineReader& reader) {
    std::vector<std::string> lines;
    reader.read_some([&](std::string_view line) { lines.emplace_back(line); });
    return lines;
  }
  int ends_[2] = {-1, -1};
};

TEST_F(Pipes, LinesComeWhole) {
  LineReader reader(ends_[0]);
  send("a\nb");
  EXPECT_THAT(read(reader), ElementsAre("a"));
  EXPECT_THAT(read(reader), IsEmpty());
  send("c\n\nd\r\ne\rf\r");
  EXPECT_THAT(read(reader), ElementsAre("bc", "", "d", "e", "f"));
  send("\ng\n");
  EXPECT_THAT(read(reader), ElementsAre("g")) << "the line feed belongs to the carriage return before";
  send("rest");
  close(std::exchange(ends_[1], -1));
  EXPECT_THAT(read(reader), IsEmpty());
  EXPECT_TRUE(reader.ended());
  std::vector<std::string> rest;
  reader.flush([&](std::string_view line) { rest.emplace_back(line); });
  EXPECT_THAT(rest, ElementsAre("rest"));
}

TEST_F(Pipes, LongLinesAreBroken) {
  LineReader reader(ends_[0], 4);
  send("abcdefghij\nkl");
  EXPECT_THAT(read(reader), ElementsAre("abcd", "efgh", "ij"));
  send("mnop");
  EXPECT_THAT(read(reader), ElementsAre("klmn"));
  send("\n");
  EXPECT_THAT(read(reader), ElementsAre("op"));
}

TEST_F(Pipes, WhatDoesNotFitWaits) {
  Outbox box(ends_[1]);
  const std::string text(1 << 20, 'x');
  box.put(text);
  EXPECT_TRUE(box.full());
  box.write_some();
  EXPECT_FALSE(box.empty());
  std::string received;
  while (received.size() < text.size()) {
    char buffer[1 << 14];
    const ssize_t count = ::read(ends_[0], buffer, sizeof buffer);
    if (count > 0) received.append(buffer, static_cast<size_t>(count));
    box.write_some();
  }
  EXPECT_EQ(received, text);
  EXPECT_TRUE(box.empty());
}

TEST_F(Pipes, WhereNobodyReadsNothingIsKept) {
  const auto before = signal(SIGPIPE, SIG_IGN);
  Outbox box(ends_[1]);
  close(std::exchange(ends_[0], -1));
  box.put("x");
  box.write_all();
  EXPECT_TRUE(box.broken());
  box.put("y");
  EXPECT_TRUE(box.empty());
  signal(SIGPIPE, before);
}

}  // namespace
}  // namespace lockstep::launch
