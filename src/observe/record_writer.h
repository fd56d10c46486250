// Writes records on a thread of its own: whoever trains does not wait for the disk.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/observe/run_record.h"

namespace lockstep::observe {

// For one thread at a time.
class RecordWriter {
 public:
  explicit RecordWriter(std::string folder);
  // What was handed over is written.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // Returns at once; of records that come faster than they can be written, the last counts. Throws what went
  // wrong with an earlier one.
  void hand_over(RunRecord record);
  // Now, behind those that were handed over.
  void write(const RunRecord& record);
  // What was written last.
  RunRecord last();

 private:
  void loop();

  const std::string folder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<RunRecord> next_;
  RunRecord last_;
  bool writing_ = false, stops_ = false;
  std::exception_ptr wrong_;
  std::thread thread_;
};

}  // namespace lockstep::observe
