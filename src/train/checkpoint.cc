#include "lockstep/train/checkpoint.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <system_error>
#include <unordered_set>

#include "base/file.h"
#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/host.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint_file.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint_format.h"
#include "train/checkpoint_state.h"
#include "train/file_system.h"
#include "train/restoration.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

class TrackedCheckpoint final : public TrackedObject {
 public:
  explicit TrackedCheckpoint(NamedTrackables objects) : objects_(std::move(objects)) {}
  std::string kind() const override { return "Checkpoint"; }
  NamedTrackables children() const override { return objects_; }

 private:
  NamedTrackables objects_;
};

NamedTrackables named(const CheckpointObjects& objects) {
  NamedTrackables all;
  const auto add = [&](const char* name, const Trackable& object) {
    if (object.defined()) all.emplace_back(name, object);
  };
  add("step", objects.step);
  add("optimizer", objects.optimizer);
  add("model", objects.model);
  add("iterator", objects.iterator);
  return all;
}
void copy_elements(const Tensor& tensor, char* target) {
  const TensorImpl& impl = *tensor.impl();
  if (tensor.device().kind() != DeviceKind::cpu) {
    if (is_contiguous(tensor.shape(), impl.strides)) {
      backend_of(tensor.device()).copy_to_host(target, impl.data(), tensor.spec().bytes());
    } else {
      copy_elements(tensor.to(device_by_name("/CPU:0")), target);
    }
  } else if (is_contiguous(tensor.shape(), impl.strides)) {
    std::memcpy(target, impl.data(), tensor.spec().bytes());
  } else {
    const Tensor laid_out = Tensor::empty(tensor.dtype(), tensor.shape(), tensor.device());
    copy_strided(tensor.dtype(), tensor.shape(), impl.data(), impl.strides, laid_out.impl()->data(),
                 laid_out.impl()->strides);
    std::memcpy(target, laid_out.impl()->data(), tensor.spec().bytes());
  }
}

// Memory that is kept from one save to the next: touching fresh pages takes many times as long as a copy.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { release(); }

  char* reserve(size_t bytes) {
    if (bytes <= bytes_) return data_;
    release();
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapped != MAP_FAILED, ErrorCode::out_of_memory, std::source_location::current(),
            "a checkpoint needs ", bytes, " bytes of memory for a copy of the state; the system has none");
    madvise(mapped, bytes, MADV_HUGEPAGE);
    data_ = static_cast<char*>(mapped);
    bytes_ = bytes;
    return data_;
  }

 private:
  void release() {
    if (data_) munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Writes what is staged, header first in the buffer but last to the file: checksums are taken on the way.
void write_checkpoint(FileSystem& files, const std::string& path, CheckpointHeader header, char* staged,
                      size_t header_size, uint64_t data_size) {
  constexpr size_t kPiece = size_t{16} << 20;
  write_durably(files, path, [&](OutputFile& file) {
    uint64_t written = header_size;
    const auto write_up_to = [&](uint64_t end, uint64_t least) {
      if (end - written < least) return;
      file.write_at(written, staged + written, end - written);
      written = end;
    };
    std::vector<CheckpointFile::Entry*> by_offset;
    for (auto& entry : header.entries) by_offset.push_back(&entry);
    std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
      return std::pair(a->offset, a->spec.bytes()) < std::pair(b->offset, b->spec.bytes());
    });
    for (auto* entry : by_offset) {
      const uint64_t end = header_size + entry->offset + entry->spec.bytes();
      for (uint64_t at = header_size + entry->offset; at < end;) {
        const size_t piece = std::min<uint64_t>(kPiece, end - at);
        entry->crc32c = crc32c({staged + at, piece}, entry->crc32c);
        at += piece;
        write_up_to(at, kPiece);
      }
    }
    write_up_to(header_size + data_size, 1);
    const std::string begin = header_bytes(header);
    require(begin.size() == header_size, ErrorCode::internal, std::source_location::current(),
            "a checkpoint's header has ", begin.size(), " bytes, not ", header_size);
    file.write_at(0, begin.data(), begin.size());
  });
}

// Adds what else could be restored to the error about a checkpoint that cannot.
[[noreturn]] void refuse_with_offer(const Error& error, const std::string& path) {
  std::string offer;
  const std::optional<std::string> good = newest_good_checkpoint(folder_of(path));
  const auto bare = [](std::string name) {
    if (name.ends_with(kCheckpointEnding)) name.resize(name.size() - kCheckpointEnding.size());
    return fs::path(name).lexically_normal();
  };
  if (good && bare(*good) != bare(path))
    offer = "; the newest good checkpoint there is \"" + *good +
            "\": restore that one, or let a CheckpointManager with .fall_back = true do so";
  fail(error.code(), error.where(), error.message(), offer);
}

}  // namespace

struct Checkpoint::Impl {
  NamedTrackables objects;
  int64_t save_counter = 0;
  Staging staging;
  std::weak_ptr<Restoration> last_restoration;
  std::map<std::string, FolderLock> locks;  // of the folders that it has saved to
  std::future<void> writing;                // last: it uses the staging, and must be done before that goes

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    try {
      wait();
    } catch (const std::exception& error) {
      log(LogLevel::error, "the last checkpoint was not saved: ", error.what());
    }
  }

  void wait() {
    if (writing.valid()) writing.get();
  }

  void write(const std::string& path, int64_t counter, double time,
             const std::function<void(FileSystem&)>& then, const SaveOptions& options,
             std::source_location where);
};

void Checkpoint::Impl::write(const std::string& path, int64_t counter, double time,
                             const std::function<void(FileSystem&)>& then, const SaveOptions& options,
                             std::source_location where) {
  require(Trace::current() == nullptr, ErrorCode::failed_precondition, where, "checkpoint \"", path,
          "\": inside of a traced function there are no values to save; save between the steps");
  // One copy of the state is held: this also throws what went wrong with the last one.
  wait();
  FileSystem& files = FileSystem::current();
  const std::string folder = folder_of(path);
  files.make_folders(folder);
  locks[folder] = FolderLock(folder, where);
  CheckpointHeader header{
      .entries = {}, .objects = Json::object(), .save_counter = counter, .saved_at = time};
  TensorList values;
  std::unordered_set<std::string> names;
  const auto add = [&](const std::string& name, const Tensor& value, const std::string& variable) {
    require(names.insert(name).second && name != "__metadata__", ErrorCode::invalid_argument, where,
            "checkpoint \"", path, "\": two tensors would be called \"", name,
            "\"; give objects names of their own");
    // Json writes a replacement for what is no UTF-8.
    require(Json::parse(Json(name).dump()).as_string() == name, ErrorCode::invalid_argument, where,
            "checkpoint \"", path, "\": the name ", Json(name), " is not UTF-8");
    require(backend_of(value.device()).has_memory(), ErrorCode::invalid_argument, where, "checkpoint \"",
            path, "\": \"", name, "\" is on ", value.device(), ", which holds no elements");
    header.entries.push_back({.name = name, .spec = value.spec(), .variable = variable});
    values.push_back(value);
  };
  for (const auto& [name, object] : all_objects(objects)) {
    header.objects.set(name, Json::object({{"kind", object->kind()}}));
    object->require_savable(name, where);
    for (const auto& [own, variable] : object->variables()) {
      variable.impl()->gather();
      add(join_names(name, own), variable.impl()->value, variable.name());
    }
    if (!object->has_state()) continue;
    for (const auto& [own, value] : object->save_state()) add(join_names(name, own), value, "");
  }
  const uint64_t data_size = lay_out(header.entries);
  const size_t header_size = header_bytes(header).size();
  char* staged = staging.reserve(header_size + data_size);
  for (size_t i = 0; i < values.size(); ++i)
    copy_elements(values[i], staged + header_size + header.entries[i].offset);

  const auto under_way = std::make_shared<std::optional<SaveUnderWay>>();
  under_way->emplace(folder);
  const auto job = std::make_shared<std::function<void()>>(
      [&files, path = path + std::string(kCheckpointEnding), header = std::move(header), staged, header_size,
       data_size, then, under_way, where = CallSite::of(where)] {
        const CallSite site(where);  // the thread that writes has none
        // Those who look for checkpoints need not wait any longer, whatever came of it.
        const std::shared_ptr<void> ends(nullptr, [&](void*) { under_way->reset(); });
        write_checkpoint(files, path, header, staged, header_size, data_size);
        if (then) then(files);
      });
  if (options.asynchronous) try {
      writing = std::async(std::launch::async, [job] { (*job)(); });
      return;
    } catch (const std::system_error& error) {
      log_once(LogLevel::warning, "checkpoints are saved while training waits, as no thread can be made: ",
               error.code().message());
    }
  (*job)();
}

Checkpoint::Checkpoint(const CheckpointObjects& objects, std::source_location where)
    : Checkpoint(named(objects), where) {}

std::shared_ptr<Checkpoint::Impl> Checkpoint::made_of(const NamedTrackables& objects,
                                                      std::source_location where) {
  std::set<std::string> names;
  for (const auto& [name, object] : objects) {
    require(!name.empty() && name.find('/') == std::string::npos && name != "__metadata__",
            ErrorCode::invalid_argument, where, "Checkpoint: \"", name,
            "\" is no name for an object: it must not be empty, hold a '/' or be \"__metadata__\"");
    require(names.insert(name).second, ErrorCode::invalid_argument, where,
            "Checkpoint: two objects are called \"", name, "\"");
    require(object.defined(), ErrorCode::invalid_argument, where, "Checkpoint: \"", name, "\" is none");
  }
  auto impl = std::make_shared<Impl>();
  impl->objects = objects;
  return impl;
}

std::string Checkpoint::save(const std::string& prefix, const SaveOptions& options,
                             std::source_location where) const {
  return save_numbered(prefix, Retention{}, options, where);
}

std::string Checkpoint::save_numbered(const std::string& prefix, const Retention& retention,
                                      const SaveOptions& options, std::source_location where) const {
  const CallSite site(where);
  require(!fs::path(prefix).filename().empty(), ErrorCode::invalid_argument, where,
          "Checkpoint: the prefix \"", prefix, "\" names a folder only; add a name, as in \"", prefix,
          "ckpt\"");
  // The last save is on the disk, or known to have failed, before its number is looked at.
  impl_->wait();
  const int64_t number = std::max(impl_->save_counter,
                                  greatest_number(folder_of(prefix), fs::path(prefix).filename().string())) +
                         1;
  const std::string path = prefix + "-" + std::to_string(number);
  const KeptCheckpoint saved{.name = fs::path(path).filename().string(), .time = seconds_since_1970()};
  impl_->write(
      path, number, saved.time,
      [folder = folder_of(path), saved, retention](FileSystem& files) {
        enter_checkpoint(files, folder, saved, retention);
      },
      options, where);
  impl_->save_counter = number;
  return path;
}

std::string Checkpoint::write(const std::string& path, const SaveOptions& options,
                              std::source_location where) const {
  const CallSite site(where);
  std::string bare = path;
  if (bare.ends_with(kCheckpointEnding)) bare.resize(bare.size() - kCheckpointEnding.size());
  require(!fs::path(bare).filename().empty(), ErrorCode::invalid_argument, where, "Checkpoint: the path \"",
          path, "\" names no file");
  impl_->write(bare, 0, seconds_since_1970(), {}, options, where);
  return bare;
}

void Checkpoint::wait() const { impl_->wait(); }
int64_t Checkpoint::save_counter() const { return impl_->save_counter; }
ObjectPtr Checkpoint::tracked() const { return std::make_shared<TrackedCheckpoint>(impl_->objects); }

RestoreStatus Checkpoint::restore(const std::optional<std::string>& path, std::source_location where) const {
  const CallSite site(where);
  require(Trace::current() == nullptr, ErrorCode::failed_precondition, where,
          "Checkpoint: restore outside of traced functions");
  impl_->wait();
  RestoreStatus status;
  status.impl_ = std::make_shared<RestoreStatus::Impl>();
  if (!path) return status;
  const std::shared_ptr<Restoration>& restoration = status.impl_->restoration;
  restoration->accepted = true;  // until it is complete there is nothing to warn of

  SaveUnderWay::wait_for(folder_of(*path));
  try {
    const CheckpointFile file(*path, where);
    CheckpointMatch match(file, *path, impl_->objects, *restoration, where);
    match.read(*restoration, where);
    match.assign(where);
    if (file.save_counter() > 0) impl_->save_counter = file.save_counter();
    // What an earlier restore still has to put back must not come after this one.
    if (const auto earlier = impl_->last_restoration.lock()) earlier->supersede();
    for (const auto& [name, object] : match.growing()) watch(restoration, name, *object);
    restoration->path = *path;
    restoration->accepted = false;
    impl_->last_restoration = restoration;
  } catch (const Error& error) {
    restoration->pending.clear();
    if (error.code() != ErrorCode::io && error.code() != ErrorCode::not_found) throw;
    refuse_with_offer(error, *path);
  }
  return status;
}

}  // namespace lockstep::train
