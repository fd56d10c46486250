#include "comm/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error_of_test.h"
#include "comm/address.h"
#include "comm/free_address_test.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Until it holds, for at most ten seconds.
bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::vector<std::unique_ptr<Group>> groups(int size) {
  const std::string address = free_address();
  std::vector<std::unique_ptr<Group>> all(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = size - 1; r >= 0; --r)
    threads.emplace_back([&, r] {
      all[static_cast<size_t>(r)] =
          std::make_unique<Group>(GroupOptions{.address = address, .rank = r, .size = size, .timeout_s = 30});
    });
  for (std::thread& thread : threads) thread.join();
  return all;
}

TEST(Group, OfOneNeedsNobody) {
  Group group({.address = "nowhere", .rank = 0, .size = 1});
  EXPECT_EQ(group.share("abc"), "abc");
  EXPECT_EQ(group.lost(), "");
}

TEST(Group, SharesWhatRankZeroGives) {
  auto all = groups(4);
  const std::string bytes(100'000, 'x');
  EXPECT_EQ(all[0]->share(bytes), bytes);
  EXPECT_EQ(all[0]->share(std::string("a\0b", 3)), std::string("a\0b", 3));
  for (int r = 1; r < 4; ++r) {
    EXPECT_EQ(all[static_cast<size_t>(r)]->share({}), bytes);
    EXPECT_EQ(all[static_cast<size_t>(r)]->share({}), std::string("a\0b", 3));
  }
}

TEST(Group, RankZeroKnowsWhatTheOthersSaidLast) {
  auto all = groups(3);
  EXPECT_EQ(all[0]->posts()[1].bytes, "") << "nothing yet";
  const std::string large(500'000, 'x');
  all[1]->post("first");
  all[1]->post(large);
  all[2]->post("short");
  EXPECT_TRUE(soon([&] {
    const std::vector<Group::Post> posts = all[0]->posts();
    return posts[1].bytes == large && posts[2].bytes == "short";
  }));
  EXPECT_GE(all[0]->posts()[1].age_s, 0);
  EXPECT_EQ(all[0]->posts()[0].bytes, "") << "its own it knows";
  all[1]->post("second");
  EXPECT_TRUE(soon([&] { return all[0]->posts()[1].bytes == "second"; }));
}

TEST(Group, KnowsWhoIsBehind) {
  auto all = groups(3);
  all[0]->progress(5, 4);
  all[1]->progress(5, 5);
  all[2]->progress(3, 3);
  for (const auto& group : all) {
    EXPECT_TRUE(soon([&] {
      const std::string text = group->behind(5);
      return text.find("rank 2 (process ") == 0 && text.find("has begun 3") != std::string::npos &&
             text.find("rank 1") == std::string::npos;
    })) << group->rank()
        << ": " << group->behind(5);
    EXPECT_EQ(group->behind(3), "");
  }
}

TEST(Group, DoesNotMissWhoSaidGoodbye) {
  auto all = groups(3);
  all[2].reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(all[0]->lost(), "");
  EXPECT_EQ(all[1]->lost(), "");
}

TEST(Group, EverybodyLearnsWhoDied) {
  const std::string address = free_address();
  const GroupOptions options{.address = address, .rank = 0, .size = 3, .timeout_s = 30};
  const pid_t child = fork();
  if (child == 0) {
    GroupOptions own = options;
    own.rank = 1;
    const Group group(own);
    pause();
    _exit(0);
  }
  std::unique_ptr<Group> second;
  std::thread thread([&] {
    GroupOptions own = options;
    own.rank = 2;
    second = std::make_unique<Group>(own);
  });
  const Group first(options);
  thread.join();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::string who = "rank 1 (process " + std::to_string(child);
  EXPECT_TRUE(soon([&] { return first.lost().find(who) == 0; })) << first.lost();
  EXPECT_TRUE(soon([&] { return second->lost().find(who) == 0; })) << second->lost();
  EXPECT_THAT(first.lost(), HasSubstr("is gone: it closed the connection"));
}

TEST(Group, ThatIsIncompleteNamesWhoDidNotCome) {
  const std::string address = free_address();
  std::string second;
  std::thread thread([&] {
    second = error_of([&] { Group({.address = address, .rank = 2, .size = 4, .timeout_s = 20}); }).message();
  });
  EXPECT_THAT(error_of([&] { Group({.address = address, .rank = 0, .size = 4, .timeout_s = 1}); }).message(),
              HasSubstr("and ranks 1, 3 of 4 did not come"));
  thread.join();
  EXPECT_THAT(second, HasSubstr("ranks 1, 3 of 4 did not come"));
  EXPECT_THAT(
      error_of([&] { Group({.address = address, .rank = 1, .size = 4, .timeout_s = 0.2}); }).message(),
      AllOf(HasSubstr("rank 1 of 4"), HasSubstr("nobody listens there")));
}

// A program that has nothing to do with the run has its port.
TEST(Group, LongWhoWaitsForAnAnswerSaysSo) {
  int port = 0;
  const int listener = bind_any_port("127.0.0.1", port, std::source_location::current());
  ASSERT_EQ(listen(listener, 1), 0);
  std::string said;
  const LogSink before = set_log_sink([&](const LogMessage& message) { said += message.text; });
  const Error error = error_of(
      [&] { Group({.address = "127.0.0.1:" + std::to_string(port), .rank = 1, .size = 2, .timeout_s = 8}); });
  set_log_sink(before);
  close(listener);
  EXPECT_THAT(said, AllOf(HasSubstr("waiting for rank 0 at 127.0.0.1:"), HasSubstr("does not answer")));
  EXPECT_THAT(error.message(), HasSubstr("what listens there is no run of this version of Lockstep"));
}

TEST(Group, RefusesWhoDoesNotFit) {
  const std::string address = free_address();
  std::string refused;
  std::thread thread([&] {
    refused = error_of([&] { Group({.address = address, .rank = 1, .size = 3, .timeout_s = 20}); }).message();
  });
  EXPECT_THAT(error_of([&] { Group({.address = address, .rank = 0, .size = 2, .timeout_s = 20}); }).message(),
              AllOf(HasSubstr("says that it is rank 1 of 3"), HasSubstr("rank 0 expects 2 ranks")));
  thread.join();
  EXPECT_THAT(refused, HasSubstr("rank 0 expects 2 ranks"));
  EXPECT_THAT(error_of([] { Group({.address = "x", .rank = 0, .size = 2}); }).message(),
              HasSubstr("host:port"));
  EXPECT_THAT(error_of([] { Group({.address = "x:1", .rank = 2, .size = 2}); }).message(),
              HasSubstr("rank 2 of 2"));
}

// A socket that is connected to the address as soon as somebody listens there.
int connected_to(const std::string& address) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  target.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  for (int i = 0; i < 1000; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof target) == 0) return fd;
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "nobody listens at " << address;
  return -1;
}

// Every one of them connects before the first rank does, and stays. Waiting five seconds for each of those
// who say nothing would take longer than the group has.
TEST(Group, UnauthenticatedPeersNeitherEndNorDelayARun) {
  const std::string address = free_address();
  std::unique_ptr<Group> first, second;
  std::thread zero([&] {
    first = std::make_unique<Group>(GroupOptions{.address = address, .rank = 0, .size = 2, .timeout_s = 60});
  });
  std::vector<int> peers;
  const std::string words[] = {
      "", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string(1000, '\0'), std::string(1000, '\xff'),
      // A message of this protocol that claims a gigabyte.
      std::string("\x01\x00\x53\x4c\x00\x00\x00\x40", 8), "lockstep group 1\n" + std::string(64, 'x')};
  for (const std::string& word : words) {
    peers.push_back(connected_to(address));
    [[maybe_unused]] const ssize_t sent = send(peers.back(), word.data(), word.size(), MSG_NOSIGNAL);
  }
  for (int i = 0; i < 20; ++i) peers.push_back(connected_to(address));
  second = std::make_unique<Group>(GroupOptions{.address = address, .rank = 1, .size = 2, .timeout_s = 60});
  zero.join();
  std::thread sharer([&] { first->share("abc"); });
  EXPECT_EQ(second->share({}), "abc");
  sharer.join();
  for (const int fd : peers) close(fd);
}

TEST(Group, WhoDoesNotKnowTheSecretIsRefusedAndTheRunGoesOn) {
  const std::string address = free_address();
  const GroupOptions options{.address = address, .rank = 0, .size = 2, .timeout_s = 60, .secret = "right"};
  std::unique_ptr<Group> first, second;
  std::thread zero([&] { first = std::make_unique<Group>(options); });
  for (const char* wrong : {"", "wrong", "right "}) {
    GroupOptions peer = options;
    peer.rank = 1;
    peer.secret = wrong;
    EXPECT_THAT(error_of([&] { const Group group(peer); }).message(),
                HasSubstr("all ranks need the same one"))
        << wrong;
  }
  GroupOptions member = options;
  member.rank = 1;
  second = std::make_unique<Group>(member);
  zero.join();
  EXPECT_EQ(first->size(), 2);
}

// It accepts the connection and answers a challenge of its own making.
TEST(Group, ARankDoesNotJoinWhatDoesNotKnowTheSecret) {
  const std::string address = free_address();
  std::unique_ptr<Group> impostor;
  std::thread other([&] {
    EXPECT_THAT(error_of([&] {
                  Group({.address = address, .rank = 0, .size = 2, .timeout_s = 2, .secret = "a"});
                }).message(),
                HasSubstr("rank 1 of 2 did not come"));
  });
  EXPECT_THAT(error_of([&] {
                Group({.address = address, .rank = 1, .size = 2, .timeout_s = 30, .secret = "b"});
              }).message(),
              HasSubstr("secret"));
  other.join();
}

TEST(Group, APortInUseNamesItsOwner) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string place = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_THAT(error_of([&] { Group({.address = place, .rank = 0, .size = 2, .timeout_s = 5}); }).message(),
              AllOf(HasSubstr(place), HasSubstr("in use by process " + std::to_string(getpid()) + " (")));
  close(fd);
}

TEST(Group, NamesThatCannotBeResolvedAreNamed) {
  EXPECT_THAT(error_of([&] {
                Group({.address = "no.such.host.invalid:5", .rank = 1, .size = 2, .timeout_s = 0.3});
              }).message(),
              HasSubstr("the name no.such.host.invalid cannot be resolved"));
  EXPECT_THAT(
      error_of([&] { Group({.address = "192.0.2.1:5", .rank = 0, .size = 2, .timeout_s = 0.3}); }).message(),
      HasSubstr("rank 0 runs on another host"));
}

}  // namespace
}  // namespace lockstep::comm
