#include "cli/launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

TEST(Hosts, AreReadAsTheyAreWritten) {
  EXPECT_THAT(parse_hosts("a"), ElementsAre(Host{"a", 1}));
  EXPECT_THAT(parse_hosts("a:2,user@b.example.org:16,10.0.0.7"),
              ElementsAre(Host{"a", 2}, Host{"user@b.example.org", 16}, Host{"10.0.0.7", 1}));
  EXPECT_THAT(parse_hosts("[fe80::1]:3,[fe80::2]"), ElementsAre(Host{"fe80::1", 3}, Host{"fe80::2", 1}));
  EXPECT_THAT(parse_hosts("localhost:4"), ElementsAre(Host{"localhost", 4}));
}

TEST(Hosts, MistakesNameTheEntryAndTheForm) {
  for (const char* text : {"", ",", "a,", "a:", "a:0", "a:-1", "a:2x", ":2", "a b:1", "fe80::1:2", "[a]b:1",
                           "-x:1", "a:1,u@a:1", "a,127.0.0.1", "a:99999999999"}) {
    try {
      parse_hosts(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), ::testing::StartsWith(std::string("--hosts \"") + text + "\"")) << text;
    }
  }
}

TEST(Hosts, AreFilledInOrder) {
  const std::vector<Host> hosts{{"a", 2}, {"b", 2}, {"c", 2}};
  EXPECT_EQ(fill_hosts(hosts, 0), hosts);
  EXPECT_THAT(fill_hosts(hosts, 3), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THROW(fill_hosts(hosts, 7), Error);
}

TEST(Hosts, WhichOfThemIsHere) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof own - 1), 0);
  EXPECT_TRUE(is_this_machine("localhost") && is_this_machine("127.0.1.1") && is_this_machine("::1") &&
              is_this_machine(own));
  EXPECT_FALSE(is_this_machine(std::string("other@") + own)) << "as another user, perhaps";
  EXPECT_FALSE(is_this_machine("127.0.0.1.example.org"));
  EXPECT_EQ(network_name("user@b"), "b");
}

}  // namespace
}  // namespace lockstep::launch
