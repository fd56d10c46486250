#include "comm/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TfConfig, GoodOnesHaveNoFaults) {
  EXPECT_THAT(
      tf_config_faults(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"),
      IsEmpty());
  EXPECT_THAT(tf_config_faults(R"({"cluster": {"chief": ["[fd00::1]:9"], "worker": ["b:1"]},
                                   "task": {"type": "worker", "index": "0"}})"),
              IsEmpty());
  EXPECT_THAT(
      tf_config_faults(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"),
      IsEmpty());
}

TEST(TfConfig, WhatIsNoJsonIsQuotedWithItsPlace) {
  EXPECT_THAT(tf_config_faults("{'cluster': {}}"),
              ElementsAre(testing::StartsWith("parse error at line 1, column 2")));
  EXPECT_THAT(tf_config_faults("[]"), ElementsAre("it is not a JSON object"));
}

TEST(TfConfig, ClusterAndTaskAreNeeded) {
  EXPECT_THAT(tf_config_faults("{}"), ElementsAre(HasSubstr("no \"cluster\""), HasSubstr("no \"task\"")));
  EXPECT_THAT(
      tf_config_faults(R"({"cluster": {}, "task": {}})"),
      ElementsAre(HasSubstr("not an object of jobs"), HasSubstr("no \"type\""), HasSubstr("no \"index\"")));
}

std::vector<std::string> with_workers(const std::string& list) {
  return tf_config_faults(R"({"cluster": {"worker": )" + list +
                          R"(}, "task": {"type": "worker", "index": 0}})");
}

TEST(TfConfig, AddressesAreLookedAt) {
  EXPECT_THAT(with_workers(R"(["a"])"), ElementsAre(HasSubstr("worker 0, \"a\", has no port")));
  EXPECT_THAT(with_workers(R"(["a:1", "b:99999"])"), ElementsAre(HasSubstr("worker 1")));
  EXPECT_THAT(with_workers(R"(["http://a:1"])"), ElementsAre(HasSubstr("is a URL")));
  EXPECT_THAT(with_workers(R"(["::1:5"])"), ElementsAre(HasSubstr("without brackets")));
  EXPECT_THAT(with_workers(R"([":5"])"), ElementsAre(HasSubstr("no host")));
  EXPECT_THAT(with_workers(R"(["a:1", "a:1"])"),
              ElementsAre("worker 0 and worker 1 have the same address, a:1"));
  EXPECT_THAT(with_workers(R"(["localhost:1", "127.0.0.1:2", "127.0.0.1:1", "127.0.0.2:1"])"),
              ElementsAre("worker 0 and worker 2 have the same address, 127.0.0.1:1"));
  EXPECT_THAT(with_workers(R"([3])"), ElementsAre(HasSubstr("is not an address but 3")));
  EXPECT_THAT(with_workers("[]"), ElementsAre(HasSubstr("not a list of addresses")));
}

TEST(TfConfig, TheTaskMustBeOneOfTheCluster) {
  EXPECT_THAT(tf_config_faults(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}})"),
              ElementsAre(HasSubstr("of type \"chief\", which is no job")));
  EXPECT_THAT(tf_config_faults(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})"),
              ElementsAre("this task is worker 1, but there is 1, number 0"));
  EXPECT_THAT(
      tf_config_faults(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "x"}})"),
      ElementsAre(HasSubstr("is not a number")));
  EXPECT_THAT(tf_config_faults(
                  R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})"),
              ElementsAre(HasSubstr("a parameter server, and there are none")));
}

TEST(TfConfig, MisspeltKeysAreNamed) {
  EXPECT_THAT(
      tf_config_faults(R"({"cluster": {"workers": ["a:1"]}, "task": {"type": "workers", "index": 0}})"),
      ElementsAre(HasSubstr("did you mean worker?")));
  EXPECT_THAT(
      tf_config_faults(
          R"({"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}, "tsk": 1})"),
      ElementsAre(HasSubstr("there are 2 chiefs"), HasSubstr("\"tsk\"")));
}

}  // namespace
}  // namespace lockstep::comm
