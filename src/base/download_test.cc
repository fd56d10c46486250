#include "base/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/http_server_test.h"
#include "base/sha256.h"
#include "base/shared_library.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Download : public testing::Test {
 protected:
  void SetUp() override {
    const std::string names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    if (!load_library(names).library) GTEST_SKIP() << "there is no libcurl on this machine";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string error(const std::string& url, const DownloadOptions& options = {}) const {
    try {
      download(url, path_, options);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }
  bool nothing_there() const { return std::filesystem::is_empty(folder_); }

  std::string folder_ = testing::TempDir() + "lockstep_download_" + std::to_string(getpid());
  std::string path_ = folder_ + "/file";
  std::string partial_ = path_ + ".part";
  std::string body_ = std::string(300'000, 'a') + std::string(300'000, 'b');
  std::string digest_ = Sha256().update(body_).finish();
};

TEST_F(Download, BringsTheFileAndSaysHowFarItIs) {
  const HttpServer server([&](const std::string&) { return HttpServer::ok(body_); });
  int64_t last = 0, total = 0;
  download(server.url(), path_, {.sha256 = digest_, .progress = [&](int64_t done, int64_t all) {
                                   EXPECT_GE(done, last);
                                   last = done;
                                   total = all;
                                 }});
  EXPECT_EQ(read_file(path_), body_);
  EXPECT_EQ(last, std::ssize(body_));
  EXPECT_EQ(total, std::ssize(body_));
  EXPECT_FALSE(std::filesystem::exists(partial_));
}

TEST_F(Download, OfAFileUrl) {
  std::ofstream(folder_ + "/source") << "text";
  download("file://" + folder_ + "/source", path_);
  EXPECT_EQ(read_file(path_), "text");
}

TEST_F(Download, AnotherDigestLeavesNothing) {
  const HttpServer server([&](const std::string&) { return HttpServer::ok("something else"); });
  EXPECT_THAT(error(server.url(), {.sha256 = digest_}), AllOf(HasSubstr(server.url()), HasSubstr(digest_)));
  EXPECT_TRUE(nothing_there());
}

TEST_F(Download, ErrorsOfTheServerAndOfTheConnectionAreSaid) {
  std::string url;
  {
    const HttpServer server([&](const std::string&) { return HttpServer::not_found(); });
    url = server.url();
    EXPECT_THAT(error(url), AllOf(HasSubstr(url), HasSubstr("404")));
  }
  EXPECT_THAT(error(url), AllOf(HasSubstr(url), HasSubstr("onnect")));
  EXPECT_TRUE(nothing_there());
}

TEST_F(Download, ContinuesWhereTheConnectionBroke) {
  int requests = 0;
  const HttpServer server([&](const std::string&) {
    return requests++ == 0 ? HttpServer::ok(body_).substr(0, 200'000) : HttpServer::rest(body_, 199'000);
  });
  EXPECT_THAT(error(server.url(), {.sha256 = digest_}), HasSubstr(server.url()));
  EXPECT_FALSE(std::filesystem::exists(path_));
  // Exactly what the server will continue from.
  std::filesystem::resize_file(partial_, 199'000);
  download(server.url(), path_, {.sha256 = digest_});
  EXPECT_THAT(server.requests().at(1), HasSubstr("Range: bytes=199000-"));
  EXPECT_EQ(read_file(path_), body_);
}

TEST_F(Download, StartsAgainWhereTheServerCannotContinue) {
  std::ofstream(partial_) << body_.substr(0, 1000);
  const HttpServer server([&](const std::string&) { return HttpServer::ok(body_); });
  download(server.url(), path_, {.sha256 = digest_});
  EXPECT_THAT(server.requests(), SizeIs(2));
  EXPECT_THAT(server.requests().back(), Not(HasSubstr("Range:")));
  EXPECT_EQ(read_file(path_), body_);
}

TEST_F(Download, StartsAgainWhereThePartBelongsToSomethingElse) {
  std::ofstream(partial_) << std::string(1000, 'z');
  const HttpServer server([&](const std::string& request) {
    return request.find("Range:") == std::string::npos ? HttpServer::ok(body_)
                                                       : HttpServer::rest(body_, 1000);
  });
  download(server.url(), path_, {.sha256 = digest_});
  EXPECT_EQ(read_file(path_), body_);
}

TEST_F(Download, AFileThatIsThereIsLeftAlone) {
  std::ofstream(path_) << "mine";
  const HttpServer server([&](const std::string&) { return HttpServer::ok(body_); });
  download(server.url(), path_);
  EXPECT_EQ(read_file(path_), "mine");
  EXPECT_THAT(server.requests(), SizeIs(0));
}

TEST_F(Download, OneLoadsAndTheOthersWait) {
  const HttpServer server([&](const std::string&) { return HttpServer::ok(body_); });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] { download(server.url(), path_, {.sha256 = digest_}); });
  }
  EXPECT_EQ(read_file(path_), body_);
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST_F(Download, AnExceptionOfTheProgressFunctionPasses) {
  const HttpServer server([&](const std::string&) { return HttpServer::ok(body_); });
  EXPECT_THROW(download(server.url(), path_, {.progress = [](int64_t, int64_t) { throw 7; }}), int);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace lockstep
