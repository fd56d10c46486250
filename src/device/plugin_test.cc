#include "device/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr PluginId kCuda = kKnownPlugins[0];

// A folder of its own, removed at the end, and the log captured.
class PluginTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_plugins_" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
    previous_ = set_log_sink([this](const LogMessage& m) {
      if (m.level >= LogLevel::warning) warnings_.emplace_back(m.text);
    });
  }
  void TearDown() override {
    set_log_sink(previous_);
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  std::vector<std::string> warnings_;

 private:
  LogSink previous_;
};

TEST_F(PluginTest, AMissingFileNamesTheFoldersSearchedAndWarnsNobody) {
  const std::vector<std::string> folders{folder_, "/nowhere"};
  const PluginStatus status = load_plugin(kCuda, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_EQ(status.plugin, nullptr);
  EXPECT_EQ(status.name, "cuda");
  EXPECT_EQ(status.kind, PluginKind::device);
  EXPECT_EQ(status.searched, folders);
  EXPECT_EQ(status.reason, "liblockstep_cuda.so not found in " + folder_ + ", /nowhere");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PluginTest, AFileThatIsNoLibraryKeepsTheLoadersMessageAndWarns) {
  const std::string path = folder_ + "/liblockstep_cuda.so";
  std::ofstream(path) << "not a shared object\n";
  const std::vector<std::string> folders{folder_};
  const PluginStatus status = load_plugin(kCuda, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_EQ(status.reason.find(path + ": "), 0u) << status.reason;
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0], "plugin cuda: " + status.reason);
}

TEST_F(PluginTest, ADanglingLinkIsNotTakenForAMissingFile) {
  std::filesystem::create_symlink(folder_ + "/gone.so", folder_ + "/liblockstep_cuda.so");
  const std::vector<std::string> folders{folder_};
  EXPECT_THAT(load_plugin(kCuda, folders).reason, HasSubstr("No such file"));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(PluginTest, ALibraryWithoutTheEntryIsNoPlugin) {
  std::filesystem::path libm;
  const std::vector<std::string> candidates{"libm.so.6"};
  if (const LoadResult result = load_library(candidates); result.library) libm = result.library->path();
  ASSERT_FALSE(libm.empty());
  std::filesystem::create_symlink(libm, folder_ + "/liblockstep_cuda.so");
  const std::vector<std::string> folders{folder_};
  const PluginStatus status = load_plugin(kCuda, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_THAT(status.reason, AllOf(HasSubstr("not a plugin"), HasSubstr("lockstep_plugin")));
}

TEST_F(PluginTest, FoldersComeFromThePathThenTheLibrarysOwn) {
  const std::vector<std::string> folders = plugin_folders(":/a::/b:");
  ASSERT_EQ(folders.size(), 3u);
  EXPECT_EQ(folders[0], "/a");
  EXPECT_EQ(folders[1], "/b");
  EXPECT_TRUE(std::filesystem::is_directory(folders[2])) << folders[2];
  EXPECT_EQ(plugin_folders("").size(), 1u);
}

// They need the libraries they were built with, but no driver: that is asked for when GPUs are listed.
TEST_F(PluginTest, ThoseOfNvidiaLoadWithoutADriver) {
  const std::string own = plugin_folders("").back();
  if (!std::filesystem::exists(own + "/liblockstep_cuda.so")) GTEST_SKIP() << "built without CUDA";
  for (const PluginId id : {kKnownPlugins[0], kKnownPlugins[1]}) {
    const PluginStatus status = load_plugin(id, std::span(&own, 1));
    if (status.reason.find("built for another Lockstep") != std::string::npos) GTEST_SKIP() << status.reason;
    EXPECT_TRUE(status.loaded || status.reason.find("not found in") != std::string::npos) << status.reason;
  }
}

TEST_F(PluginTest, StatusesAreLoadedOnceForAllThreads) {
  std::vector<const std::vector<PluginStatus>*> seen(4);
  std::vector<std::thread> threads;
  for (auto& slot : seen) threads.emplace_back([&slot] { slot = &plugin_statuses(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto* statuses : seen) EXPECT_EQ(statuses, seen[0]);
  ASSERT_EQ(seen[0]->size(), std::size(kKnownPlugins));
  for (size_t i = 0; i < std::size(kKnownPlugins); ++i) {
    const PluginStatus& status = (*seen[0])[i];
    EXPECT_EQ(status.name, kKnownPlugins[i].name);
    EXPECT_EQ(status.loaded, status.plugin != nullptr);
    EXPECT_TRUE(status.loaded || !status.reason.empty());
    EXPECT_EQ(find_plugin(status.name), status.plugin);
  }
}

TEST_F(PluginTest, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  try {
    find_plugin("cudda");
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_EQ(error.message(), "plugin \"cudda\" does not exist; there are cuda, nccl, mpi, gloo");
  }
}

#ifdef LOCKSTEP_TEST_PLUGIN_DIR

const std::string kGood = LOCKSTEP_TEST_PLUGIN_DIR "/good";
const std::string kWrongAbi = LOCKSTEP_TEST_PLUGIN_DIR "/wrong_abi";

TEST_F(PluginTest, LoadsAPluginOfThisBuild) {
  const std::vector<std::string> folders{folder_, kGood};
  const PluginStatus status = load_plugin(kCuda, folders);
  ASSERT_TRUE(status.loaded) << status.reason;
  EXPECT_EQ(status.reason, "");
  EXPECT_EQ(std::filesystem::canonical(status.path),
            std::filesystem::canonical(kGood + "/liblockstep_cuda.so"));
  ASSERT_NE(status.plugin, nullptr);
  EXPECT_EQ(*static_cast<const int*>(status.plugin->interface), 42);
}

TEST_F(PluginTest, RefusesAnotherTagAndShowsBoth) {
  const std::vector<std::string> folders{kWrongAbi};
  const PluginStatus status = load_plugin(kCuda, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_THAT(status.reason,
              AllOf(HasSubstr("\"lockstep 0.0.0, build of another day\""), HasSubstr(kPluginAbiTag)));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(PluginTest, PassesOverARefusedFileButSaysSo) {
  const std::vector<std::string> folders{kWrongAbi, kGood};
  const PluginStatus status = load_plugin(kCuda, folders);
  EXPECT_TRUE(status.loaded);
  EXPECT_THAT(status.reason, HasSubstr("built for another Lockstep"));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(PluginTest, RefusesAPluginUnderAnotherName) {
  std::filesystem::copy_file(kGood + "/liblockstep_cuda.so", folder_ + "/liblockstep_mpi.so");
  const std::vector<std::string> folders{folder_};
  const PluginStatus status = load_plugin({"mpi", PluginKind::communicator}, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_THAT(status.reason, HasSubstr("says that it is plugin \"cuda\""));
}

TEST_F(PluginTest, RefusesAPluginOfAnotherKind) {
  const std::vector<std::string> folders{kGood};
  const PluginStatus status = load_plugin({"cuda", PluginKind::communicator}, folders);
  EXPECT_FALSE(status.loaded);
  EXPECT_THAT(status.reason, HasSubstr("says that it is of kind device, expected communicator"));
}

#else

TEST_F(PluginTest, LoadsAPluginOfThisBuild) { GTEST_SKIP() << "built without LOCKSTEP_TEST_PLUGIN_DIR"; }

#endif

}  // namespace
}  // namespace lockstep
