// A dataset that is being iterated over: its stages' statistics and what they share.
#pragma once

#include <memory>
#include <mutex>
#include <stop_token>

#include "data/node.h"
#include "data/stage.h"
#include "data/tuner.h"

namespace lockstep::data {

class Pipeline {
 public:
  static constexpr int64_t kLook = -1;  // an iteration that does not count
  // `iteration` is the number of one that is gone on with, or kLook; nullopt: a new one.
  explicit Pipeline(NodePtr root, std::optional<int64_t> iteration = {});

  std::unique_ptr<Cursor> open_root();
  std::unique_ptr<Cursor> open(const Node& node, Stage* parent, size_t slot, std::stop_token stop,
                               uint64_t pass);

  int64_t iteration() const { return iteration_; }
  const Options& options() const { return options_; }
  // Where elements are made; the stages' threads make it theirs.
  Device& device() const { return device_; }
  const RowsList& known_rows() const { return rows_; }
  // Threads that all stages together should keep busy.
  int threads() const;

  // The stages, seen from the root. Its inputs may grow while it runs: hold the lock while you look.
  Stage* root() const { return root_stage_.get(); }
  std::mutex& stages_mutex() const { return mutex_; }
  Tuner& tuner() { return tuner_; }
  const Tuner& tuner() const { return tuner_; }
  void stop() { stop_.request_stop(); }
  bool stopped() const { return stop_.stop_requested(); }
  std::stop_token stop_token() const { return stop_.get_token(); }
  const Node& root_node() const { return *root_; }
  const NodePtr& root_ptr() const { return root_; }

 private:
  NodePtr root_;
  Options options_;
  Device& device_;
  int64_t iteration_;
  RowsList rows_;
  mutable std::mutex mutex_;
  std::unique_ptr<Stage> root_stage_;
  std::stop_source stop_;
  Tuner tuner_;
};

// Stops when its parent stops, or when told to.
class StopScope {
 public:
  explicit StopScope(const std::stop_token& parent) : link_(parent, Request{source_}) {}
  std::stop_token token() const { return source_.get_token(); }
  void stop() { source_.request_stop(); }

 private:
  struct Request {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Request> link_;
};

}  // namespace lockstep::data
