#include "lockstep/base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::terminal {
namespace {

// A variable of the environment, put back at the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Terminal, SomebodyElseMayShowWhatIsWritten) {
  static std::string shown;
  static bool takes = true;
  set_output([](std::string_view text) {
    shown += text;
    return takes;
  });
  EXPECT_TRUE(write("first"));
  EXPECT_TRUE(write("", stderr));  // which is nobody else's
  takes = false;
  EXPECT_TRUE(write(""));
  set_output(nullptr);
  EXPECT_TRUE(write(""));
  EXPECT_EQ(shown, "first");
}

TEST(Terminal, WidthCountsCharactersAndNoColours) {
  EXPECT_EQ(width("abc"), 3);
  EXPECT_EQ(width("━━"), 2);
  EXPECT_EQ(width("\r\x1b[K\x1b[1mab\x1b[0m"), 2);
}

TEST(Terminal, LinesBreakBetweenWordsAndGoOnUnderTheirText) {
  EXPECT_EQ(wrapped("one two three four\nfive", 9), "one two\n  three\n  four\nfive");
  EXPECT_EQ(wrapped("  --epochs  how often it goes\n", 20), "  --epochs  how\n    often it goes\n");
  EXPECT_EQ(wrapped("  -e  how often it goes\n", 16), "  -e  how often\n      it goes\n");
  EXPECT_EQ(wrapped("unbreakable_word and more", 8), "unbreakable_word\n  and\n  more");
  EXPECT_EQ(wrapped("  a  b long_word_here", 16), "  a  b\n  long_word_here");
  EXPECT_EQ(wrapped("", 8), "");
  EXPECT_EQ(wrapped("fits\n\n", 8), "fits\n\n");
}

TEST(Terminal, ColumnsAreWhatTheVariableSays) {
  const Variable columns("COLUMNS", "53");
  EXPECT_EQ(terminal::columns(), 53);
}

TEST(Terminal, NeitherAFileNorADumbTerminalHasColours) {
  const Variable columns("COLUMNS", nullptr);
  std::FILE* file = std::tmpfile();
  EXPECT_FALSE(terminal::columns(file));
  EXPECT_FALSE(colours(file));
  std::fclose(file);
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  // Not as the controlling terminal: its end would be a SIGHUP.
  std::FILE* tty = fdopen(open(ptsname(master), O_RDWR | O_NOCTTY), "r+");
  ASSERT_NE(tty, nullptr);
  {
    const Variable term("TERM", "xterm"), no_colour("NO_COLOR", nullptr);
    EXPECT_TRUE(moves(tty));
    EXPECT_TRUE(colours(tty));
  }
  {
    const Variable term("TERM", "xterm"), no_colour("NO_COLOR", "1");
    EXPECT_TRUE(moves(tty));
    EXPECT_FALSE(colours(tty));
  }
  {
    const Variable term("TERM", "dumb"), no_colour("NO_COLOR", nullptr);
    EXPECT_FALSE(moves(tty));
    EXPECT_FALSE(colours(tty));
  }
  std::fclose(tty);
  close(master);
}

TEST(Terminal, AFullDiskIsToldAndForgotten) {
  std::FILE* full = std::fopen("/dev/full", "w");
  EXPECT_FALSE(write("text", full));
  EXPECT_EQ(std::fclose(full), 0) << "nothing is left to be written";
}

// Without its care the signal would end this program.
TEST(Terminal, APipeThatNobodyReadsRaisesNoSignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  std::FILE* closed = fdopen(ends[1], "w");
  EXPECT_FALSE(print("text\n", closed));
  EXPECT_FALSE(print("more\n", closed));
  std::fclose(closed);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

}  // namespace
}  // namespace lockstep::terminal
