// Values that differ from replica to replica.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::distribute {

// One tensor per replica of this process. A replica that had no example has none. A handle, cheap to copy.
class Distributed {
 public:
  Distributed() = default;
  // The same for all of `replicas`.
  static Distributed same(const Tensor& value, int replicas);
  // Consecutive rows of one tensor: sizes[r] of them for replica r. `worker_rows`: how many rows each worker
  // of the run has of the global batch, where it is known.
  static Distributed rows(const Tensor& whole, std::vector<int64_t> sizes,
                          std::vector<int64_t> worker_rows = {});
  static Distributed of(TensorList values);

  int replicas() const { return static_cast<int>(sizes_.empty() ? values_.size() : sizes_.size()); }
  bool has(int replica, std::source_location where = std::source_location::current()) const {
    return at(replica, where).defined();
  }
  // Undefined where the replica has none. Rows are views.
  Tensor at(int replica, std::source_location where = std::source_location::current()) const;
  // The tensor whose rows they are, where they are consecutive rows of one; else undefined.
  const Tensor& whole() const { return whole_; }
  const std::vector<int64_t>& worker_rows() const { return worker_rows_; }
  // Those of the replicas that have one.
  TensorList local_results() const;

  // "PerReplica:{\n  0: tf.Tensor(...),\n  1: ...\n}"
  std::string to_string() const;

 private:
  Tensor whole_;
  std::vector<int64_t> sizes_;  // of rows
  std::vector<int64_t> worker_rows_;
  TensorList values_;
};
std::ostream& operator<<(std::ostream& out, const Distributed& value);

}  // namespace lockstep::distribute
