// A disk that loses power or runs full at a chosen operation.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"
#include "train/file_system.h"

namespace lockstep::train {

// Does everything on the real disk too, and keeps account of what would be there after a power cut: contents
// that were synced, under names that were synced.
class FaultyFiles final : public FileSystem {
 public:
  enum class Fault { none, power_cut, disk_full };

  Fault fault = Fault::none;
  int64_t at =
      -1;  // number of the operation that fails (for a full disk: of the write); all later ones do too
  int64_t operations = 0;
  int64_t writes = 0;

  void make_folders(const std::string& folder) override { real().make_folders(folder); }
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    step("create", path);
    auto inode = names_[path] = std::make_shared<Inode>();
    return std::make_unique<File>(*this, path, inode, real().create(path));
  }
  void rename(const std::string& from, const std::string& to) override {
    step("rename", from);
    real().rename(from, to);
    names_[to] = names_.at(from);
    names_.erase(from);
  }
  void remove(const std::string& path) override {
    step("remove", path);
    real().remove(path);
    names_.erase(path);
  }
  void sync_folder(const std::string& folder) override {
    step("sync the folder", folder);
    durable_names_ = names_;  // tests use one folder
  }

  // The folder as it is when the power is back. What was not synced may or may not have reached the disk.
  void come_back(const std::string& folder, bool unsynced_names, bool unsynced_contents) const {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (const auto& [path, inode] : unsynced_names ? names_ : durable_names_)
      std::ofstream(path, std::ios::binary) << (unsynced_contents ? inode->contents : inode->durable);
  }

 private:
  struct Inode {
    std::string contents, durable;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;

  class File final : public OutputFile {
   public:
    File(FaultyFiles& files, std::string path, std::shared_ptr<Inode> inode, std::unique_ptr<OutputFile> real)
        : files_(files), path_(std::move(path)), inode_(std::move(inode)), real_(std::move(real)) {}
    void write_at(uint64_t offset, const void* data, size_t bytes) override {
      const auto put = [&](size_t count) {
        if (inode_->contents.size() < offset + count) inode_->contents.resize(offset + count);
        inode_->contents.replace(offset, count, static_cast<const char*>(data), count);
        real_->write_at(offset, data, count);
      };
      try {
        files_.step("write", path_, true);
      } catch (const Error&) {
        put(bytes / 2);
        throw;
      }
      put(bytes);
    }
    void sync() override {
      files_.step("sync", path_);
      inode_->durable = inode_->contents;
    }

   private:
    FaultyFiles& files_;
    std::string path_;
    std::shared_ptr<Inode> inode_;
    std::unique_ptr<OutputFile> real_;
  };

  void step(const char* what, const std::string& path, bool writes_bytes = false) {
    const int64_t number = operations++;
    const int64_t write = writes_bytes ? writes++ : -1;
    if (fault == Fault::power_cut && number >= at)
      fail(ErrorCode::io, std::source_location::current(), "cannot ", what, " \"", path, "\": no power");
    if (fault == Fault::disk_full && writes_bytes && write >= at)
      fail(ErrorCode::io, std::source_location::current(), "cannot ", what, " \"", path,
           "\": No space left on device");
  }

  Names names_, durable_names_;
};

}  // namespace lockstep::train
