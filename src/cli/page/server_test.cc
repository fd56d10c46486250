#include "cli/page/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// As the library was compiled.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <httplib.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <thread>

#include "lockstep/base/json.h"
#include "observe/record_mutations_test.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class PageServerTest : public ::testing::Test {
 protected:
  PageServerTest()
      : folder_((std::filesystem::path(::testing::TempDir()) / ("page_server_" + std::to_string(getpid())))
                    .string()) {
    observe::write_record(observe::sample_record(), folder_);
  }
  ~PageServerTest() override {
    if (server_) server_->stop();
    if (thread_.joinable()) thread_.join();
    std::filesystem::remove_all(folder_);
  }

  // Returns the URL.
  std::string start(const std::string& address) {
    server_.emplace(folder_, address);
    std::promise<std::string> url;
    thread_ = std::thread([&] {
      try {
        server_->serve([&](const std::string& at) { url.set_value(at); });
      } catch (...) {
        url.set_exception(std::current_exception());
      }
    });
    std::string at = url.get_future().get();
    port_ = std::stoi(at.substr(at.rfind(':') + 1));
    return at;
  }
  httplib::Result get(const std::string& path, const httplib::Headers& headers = {}) const {
    // It may not listen yet when the URL is known; the connection waits in the socket.
    return httplib::Client("127.0.0.1", port_).Get(path, headers);
  }

  std::string folder_;
  std::optional<PageServer> server_;
  std::thread thread_;
  int port_ = 0;
};

TEST_F(PageServerTest, ServesThePageAndTheRecord) {
  EXPECT_THAT(start("127.0.0.1:0"), MatchesRegex("http://127\\.0\\.0\\.1:[0-9]+/"));
  const httplib::Result page = get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page->get_header_value("Cache-Control"), "no-store");
  EXPECT_THAT(page->body, HasSubstr("connect-src 'self'"));
  const httplib::Result record = get("/record.json");
  ASSERT_TRUE(record);
  EXPECT_EQ(Json::parse(record->body).at("step"), Json(12));
  for (const char* path : {"/../record.json", "/report.html", "/%2e%2e/x", "//"}) {
    const httplib::Result other = get(path);
    ASSERT_TRUE(other);
    EXPECT_EQ(other->status, 404) << path;
  }
  std::filesystem::remove(folder_ + "/record.json");
  const httplib::Result gone = get("/record.json");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->status, 503);
  EXPECT_THAT(gone->body, HasSubstr("there is no record.json"));
}

TEST_F(PageServerTest, OnTheLoopbackOtherNamesAreRefused) {
  start("127.0.0.1:0");
  for (const char* name : {"evil.example", "127.0.0.1.evil.example", ""}) {
    const httplib::Result answer = get("/record.json", {{"Host", name}});
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 403) << name;
  }
  for (const char* name : {"localhost:80", "[::1]:80", "127.0.0.1"}) {
    const httplib::Result answer = get("/record.json", {{"Host", name}});
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200) << name;
  }
}

TEST_F(PageServerTest, ElsewhereTheUrlHasAToken) {
  const std::string url = start("0.0.0.0:0");
  const std::string path = url.substr(url.find('/', 8));
  EXPECT_THAT(path, MatchesRegex("/[0-9a-f]{32}/"));
  const httplib::Result with = get(path + "record.json", {{"Host", "machine.example"}});
  ASSERT_TRUE(with);
  EXPECT_EQ(with->status, 200);
  for (const std::string& guess :
       {std::string("/"), std::string("/record.json"), std::string("/0123/record.json")}) {
    const httplib::Result without = get(guess);
    ASSERT_TRUE(without);
    EXPECT_EQ(without->status, 404) << guess;
    EXPECT_THAT(without->body, ::testing::Not(HasSubstr("step")));
  }
}

TEST_F(PageServerTest, AnAddressThatIsNoneIsRefused) {
  for (const char* address :
       {"", "80", ":80", "localhost", "localhost:", "localhost:x", "localhost:70000", "::1:80", "[::1"})
    EXPECT_THROW(PageServer(folder_, address), Error) << address;
  EXPECT_THROW(start("192.0.2.1:80"), Error) << "no address of this machine";
}

}  // namespace
}  // namespace lockstep::cli
