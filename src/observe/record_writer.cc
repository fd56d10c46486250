#include "observe/record_writer.h"

#include <utility>

namespace lockstep::observe {

RecordWriter::RecordWriter(std::string folder)
    : folder_(std::move(folder)), thread_(&RecordWriter::loop, this) {}

RecordWriter::~RecordWriter() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RecordWriter::hand_over(RunRecord record) {
  {
    const std::lock_guard lock(mutex_);
    if (wrong_) std::rethrow_exception(std::exchange(wrong_, nullptr));
    next_ = std::move(record);
  }
  changed_.notify_all();
}

void RecordWriter::write(const RunRecord& record) {
  std::unique_lock lock(mutex_);
  next_.reset();  // this one is newer
  changed_.wait(lock, [&] { return !writing_; });
  wrong_ = nullptr;
  last_ = record;
  lock.unlock();
  write_record(record, folder_);
}

RunRecord RecordWriter::last() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !next_ && !writing_; });
  return last_;
}

void RecordWriter::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return next_ || stops_; });
    if (!next_) return;
    RunRecord record = *std::exchange(next_, std::nullopt);
    writing_ = true;
    lock.unlock();
    std::exception_ptr wrong;
    try {
      write_record(record, folder_);
    } catch (...) {
      wrong = std::current_exception();
    }
    lock.lock();
    writing_ = false;
    last_ = std::move(record);
    if (wrong) wrong_ = wrong;
    changed_.notify_all();
  }
}

}  // namespace lockstep::observe
