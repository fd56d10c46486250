// Callbacks: code that fit, evaluate and predict call at set moments.
//
// A Callback is a handle: copies share the state. To write one, derive from CallbackBase and make a handle
// with make_callback<MyCallback>(arguments...).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::keras {

class Model;

// Names and values in the order in which they are shown: loss, metrics, then val_*.
class Logs {
 public:
  using Entry = std::pair<std::string, double>;
  void set(const std::string& name, double value);
  // None where there is no such name.
  std::optional<double> find(const std::string& name) const;
  const std::vector<Entry>& entries() const { return entries_; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<Entry> entries_;
};

// What a run is about; callbacks read it from on_*_begin on.
struct RunParams {
  int epochs = 1;
  int64_t steps = -1;  // of an epoch; -1: not known before the first has ended
  int verbose = 1;
};

class CallbackBase {
 public:
  virtual ~CallbackBase() = default;
  virtual void on_train_begin(const Logs&) {}
  virtual void on_train_end(const Logs&) {}
  virtual void on_epoch_begin(int /*epoch*/, const Logs&) {}
  virtual void on_epoch_end(int /*epoch*/, const Logs&) {}
  virtual void on_train_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_train_batch_end(int64_t /*batch*/, const Logs&) {}
  virtual void on_test_begin(const Logs&) {}
  virtual void on_test_end(const Logs&) {}
  virtual void on_test_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_test_batch_end(int64_t /*batch*/, const Logs&) {}
  virtual void on_predict_begin(const Logs&) {}
  virtual void on_predict_end(const Logs&) {}
  virtual void on_predict_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_predict_batch_end(int64_t /*batch*/, const Logs&) {}
  // True: the logs of every batch are wanted, so they are read from the device after each. The logs of
  // on_*_batch_end are empty otherwise, and steps follow each other without waiting.
  virtual bool wants_batch_logs() const { return false; }

  // Set before the run begins; alive as long as it lasts.
  void bind(Model* model, const RunParams& params) { model_ = model, params_ = params; }

 protected:
  Model& model() const { return *model_; }
  const RunParams& params() const { return params_; }

 private:
  Model* model_ = nullptr;
  RunParams params_;
};

class Callback {
 public:
  Callback() = default;
  Callback(std::shared_ptr<CallbackBase> base) : base_(std::move(base)) {}  // NOLINT
  const std::shared_ptr<CallbackBase>& base() const { return base_; }

 private:
  std::shared_ptr<CallbackBase> base_;
};

template <class C, class... Args>
Callback make_callback(Args&&... args) {
  return Callback(std::make_shared<C>(std::forward<Args>(args)...));
}

}  // namespace lockstep::keras
