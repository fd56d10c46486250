// Checkpoints on disks that fail, and files that were damaged: a clear error or an older checkpoint, never
// wrong values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"
#include "train/checkpoint_format.h"
#include "train/faulty_files_test.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A state in which every kind of tensor occurs, all of whose values say which save they are of.
struct Small {
  Variable a{Tensor::from<float>({0, 0, 0}, {3}), {.name = "a"}};
  Variable b{Tensor::scalar<double>(0), {.name = "b"}};
  Variable c{Tensor::from(std::vector<bool>{false, false}, {2}), {.name = "c"}};
  int64_t step = 0;

  Checkpoint checkpoint() { return Checkpoint({{"a", a}, {"b", b}, {"c", c}, {"step", step}}); }
  void set(int value) {
    a.assign(Tensor::full(DType::float32, {3}, value));
    b.assign(Tensor::scalar<double>(value));
    c.assign(Tensor::full(DType::boolean, {2}, value % 2));
    step = value;
  }
  // -1 where the values are of different saves.
  int value() const {
    for (const float element : a.value().to_vector<float>())
      if (element != static_cast<float>(step)) return -1;
    for (const bool element : c.value().to_vector<bool>())
      if (element != (step % 2 != 0)) return -1;
    return b.value().item<double>() == static_cast<double>(step) ? static_cast<int>(step) : -1;
  }
};

class CheckpointFaults : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_checkpoint_faults_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    previous_ = set_log_sink([](const LogMessage&) {});
  }
  void TearDown() override {
    set_log_sink(previous_);
    fs::permissions(folder_, fs::perms::owner_all, fs::perm_options::add);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // What restoring says, "" where it worked.
  std::string restored(const Checkpoint& checkpoint, const std::string& name) const {
    try {
      checkpoint.restore(path(name)).assert_consumed();
      return "";
    } catch (const Error& error) {
      EXPECT_THAT(error.code(), AnyOf(ErrorCode::io, ErrorCode::not_found));
      return error.message();
    }
  }

  // Damages every stride-th byte of a small checkpoint, one at a time.
  void flip_bytes(size_t stride) {
    Small small;
    const Checkpoint checkpoint = small.checkpoint();
    small.set(3);
    checkpoint.save(path("ckpt"), {.asynchronous = false});
    const std::string good = read_file(path("ckpt-1.safetensors"));
    const CheckpointFile file(path("ckpt-1"));
    small.set(7);
    std::string bytes = good;
    for (size_t i = 0; i < good.size(); i += i < first_tensor(file) ? stride : 1) {
      constexpr char kFlips[] = {'\x01', '\x20', '\x80'};
      bytes[i] = static_cast<char>(good[i] ^ kFlips[i % 3]);
      write_bytes(path("ckpt-1.safetensors"), bytes);
      const std::string said = restored(checkpoint, "ckpt-1");
      ASSERT_THAT(said, HasSubstr("ckpt-1.safetensors")) << "byte " << i;
      for (const auto& entry : file.entries()) {
        if (entry.offset <= i && i < entry.offset + entry.spec.bytes()) {
          ASSERT_THAT(said, HasSubstr("tensor \"" + entry.name + "\"")) << "byte " << i;
        }
      }
      ASSERT_EQ(small.value(), 7) << "byte " << i;
      bytes[i] = good[i];
    }
    write_bytes(path("ckpt-1.safetensors"), good);
    EXPECT_EQ(restored(checkpoint, "ckpt-1"), "");
    EXPECT_EQ(small.value(), 3);
  }

  void truncate(size_t stride) {
    Small small;
    const Checkpoint checkpoint = small.checkpoint();
    checkpoint.save(path("ckpt"), {.asynchronous = false});
    const std::string good = read_file(path("ckpt-1.safetensors"));
    const size_t data = first_tensor(CheckpointFile(path("ckpt-1")));
    small.set(7);
    for (size_t size = 0; size < good.size(); size += size < data ? stride : 1) {
      write_bytes(path("ckpt-1.safetensors"), std::string_view(good).substr(0, size));
      ASSERT_NE(restored(checkpoint, "ckpt-1"), "") << size << " bytes";
    }
    write_bytes(path("ckpt-1.safetensors"), good + "x");
    EXPECT_NE(restored(checkpoint, "ckpt-1"), "");
    EXPECT_EQ(small.value(), 7);
  }

  static size_t first_tensor(const CheckpointFile& file) {
    size_t first = SIZE_MAX;
    for (const auto& entry : file.entries()) first = std::min<size_t>(first, entry.offset);
    return first;
  }

  std::string folder_;
  LogSink previous_;
};

TEST_F(CheckpointFaults, DamagedBytesAreNoticed) { flip_bytes(37); }
TEST_F(CheckpointFaults, LongEveryDamagedByteIsNoticed) { flip_bytes(1); }
TEST_F(CheckpointFaults, TruncationsAreNoticed) { truncate(37); }
TEST_F(CheckpointFaults, LongEveryTruncationIsNoticed) { truncate(1); }

// Rewrites the header's checksum, as somebody who edits a file would.
std::string with_checksum(std::string bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const size_t digits = bytes.find("00000000");
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc32c(std::string_view(bytes).substr(8, length)));
  return bytes.replace(digits, 8, text, 8);
}

TEST_F(CheckpointFaults, ManifestsThatMakeNoSenseAreRefused) {
  const Variable v(Tensor::from<float>({1, 2}, {2}));
  const Checkpoint checkpoint({{"v", v}});
  checkpoint.save(path("ckpt"), {.asynchronous = false});
  const std::string good = read_file(path("ckpt-1.safetensors"));
  const auto said_of = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const size_t digits = bytes.find("header_crc32c\":\"") + 16;
    bytes.replace(digits, 8, "00000000");
    const size_t found = bytes.find(from);
    EXPECT_NE(found, std::string::npos) << from;
    bytes.replace(found, from.size(), to);
    write_bytes(path("ckpt-1.safetensors"), with_checksum(bytes));
    return restored(checkpoint, "ckpt-1");
  };
  EXPECT_EQ(said_of("save_counter", "save_counter"), "");
  EXPECT_THAT(said_of(R"(\"version\":1)", R"(\"version\":2)"), HasSubstr("version 2"));
  EXPECT_THAT(said_of(R"(\"save_counter\":1)", R"(\"save_countes\":1)"), HasSubstr("save_counter"));
  EXPECT_THAT(said_of(R"(\"crc32c\":)", R"(\"crc32d\":)"), HasSubstr("crc32c"));
  EXPECT_THAT(said_of(R"(\"name\":\"v\")", R"(\"name\":\"w\")"), HasSubstr("its manifest lists \"w\""));
  EXPECT_THAT(said_of(R"(\"tensors\":[)", R"(\"tensors\":[)"), "");
  EXPECT_THAT(said_of(R"("manifest":"{)", R"("manifest":"[)"), HasSubstr("damaged"));
  EXPECT_THAT(said_of(R"("manifest":)", R"("manifesu":)"), HasSubstr("no manifest"));
}

TEST_F(CheckpointFaults, AfterAPowerCutTheLastOrTheOneBeforeIsThere) {
  for (const bool names : {false, true})
    for (const bool contents : {false, true}) {
      bool saved = false;
      for (int64_t at = 0; !saved; ++at) {
        SCOPED_TRACE(testing::Message()
                     << "names " << names << ", contents " << contents << ", operation " << at);
        fs::remove_all(folder_);
        fs::create_directories(folder_);
        Small small;
        const Checkpoint checkpoint = small.checkpoint();
        const CheckpointManager manager(checkpoint, folder_, {.max_to_keep = 1});
        FaultyFiles files;
        {
          const FileSystemScope scope(files);
          small.set(1);
          manager.save();
          manager.wait();
          files.operations = 0;
          files.at = at;
          files.fault = FaultyFiles::Fault::power_cut;
          small.set(2);
          manager.save();
          try {
            manager.wait();
            saved = true;
          } catch (const Error& error) {
            EXPECT_THAT(error.message(), HasSubstr("no power"));
          }
        }
        files.come_back(folder_, names, contents);
        small.set(0);
        const std::optional<std::string> found = manager.restore_or_initialize();
        ASSERT_TRUE(found);
        if (saved) {
          EXPECT_EQ(small.value(), 2);
        } else {
          EXPECT_THAT(small.value(), AnyOf(1, 2));
        }
        // Training goes on, whatever was left behind.
        small.set(3);
        manager.save({.asynchronous = false});
        small.set(0);
        EXPECT_TRUE(manager.restore_or_initialize());
        EXPECT_EQ(small.value(), 3);
      }
    }
}

TEST_F(CheckpointFaults, AFullDiskLeavesTheLastOneAndNoRemains) {
  bool saved = false;
  for (int64_t at = 0; !saved; ++at) {
    SCOPED_TRACE(at);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    Small small;
    const Checkpoint checkpoint = small.checkpoint();
    FaultyFiles files;
    const FileSystemScope scope(files);
    small.set(1);
    checkpoint.save(path("ckpt"), {.asynchronous = false});
    files.writes = 0;
    files.at = at;
    files.fault = FaultyFiles::Fault::disk_full;
    small.set(2);
    try {
      checkpoint.save(path("ckpt"), {.asynchronous = false});
      saved = true;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr("No space left on device"));
    }
    for (const auto& file : fs::directory_iterator(folder_))
      EXPECT_NE(file.path().extension(), ".tmp") << file;
    checkpoint.restore(latest_checkpoint(folder_)).assert_consumed();
    EXPECT_EQ(small.value(), saved ? 2 : 1);
    // There is room again.
    files.fault = FaultyFiles::Fault::none;
    small.set(3);
    checkpoint.save(path("ckpt"), {.asynchronous = false});
    small.set(0);
    checkpoint.restore(latest_checkpoint(folder_)).assert_consumed();
    EXPECT_EQ(small.value(), 3);
  }
}

TEST_F(CheckpointFaults, AFolderThatCannotBeWrittenIsNamed) {
  Small small;
  const Checkpoint checkpoint = small.checkpoint();
  // A file where the folder should be: no user may write there, not even root.
  write_bytes(path("taken"), "");
  try {
    checkpoint.save(path("taken/ckpt"), {.asynchronous = false});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), AllOf(HasSubstr("cannot"), HasSubstr("taken")));
  }
  fs::create_directories(path("read_only"));
  fs::permissions(path("read_only"), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                         fs::perms::others_exec);
  // Root may write everywhere: somebody else tries.
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  ASSERT_TRUE(!root || seteuid(kNobody) == 0);
  std::string said;
  try {
    checkpoint.save(path("read_only/ckpt"), {.asynchronous = false});
  } catch (const Error& error) {
    said = error.message();
  }
  ASSERT_TRUE(!root || seteuid(0) == 0);
  EXPECT_THAT(said, AllOf(HasSubstr("read_only\""), HasSubstr("Permission denied")));
}

}  // namespace
}  // namespace lockstep::train
