#include "lockstep/distribute/distributed.h"

#include <numeric>
#include <ostream>

#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::distribute {

Distributed Distributed::same(const Tensor& value, int replicas) {
  return of(TensorList(static_cast<size_t>(replicas), value));
}

Distributed Distributed::rows(const Tensor& whole, std::vector<int64_t> sizes,
                              std::vector<int64_t> worker_rows) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  require(whole.rank() > 0 && whole.shape()[0] == total, ErrorCode::shape_mismatch,
          std::source_location::current(), "a tensor of shape ", whole.shape(), " has not the ", total,
          " rows that the replicas are to have");
  Distributed value;
  value.whole_ = whole;
  value.sizes_ = std::move(sizes);
  value.worker_rows_ = std::move(worker_rows);
  return value;
}

Distributed Distributed::of(TensorList values) {
  Distributed value;
  value.values_ = std::move(values);
  return value;
}

Tensor Distributed::at(int replica) const {
  require(replica >= 0 && replica < replicas(), ErrorCode::invalid_argument, std::source_location::current(),
          "there is no replica ", replica, " among ", replicas());
  const auto r = static_cast<size_t>(replica);
  if (sizes_.empty()) return values_[r];
  if (sizes_[r] == 0) return {};
  const int64_t begin = std::accumulate(sizes_.begin(), sizes_.begin() + replica, int64_t{0});
  const TensorImpl& impl = *whole_.impl();
  Shape shape = impl.spec.shape;
  shape[0] = sizes_[r];
  return make_view(impl, {impl.spec.dtype, shape}, impl.strides, impl.offset + begin * impl.strides[0]);
}

TensorList Distributed::local_results() const {
  TensorList results;
  for (int r = 0; r < replicas(); ++r)
    if (Tensor value = at(r); value.defined()) results.push_back(std::move(value));
  return results;
}

std::string Distributed::to_string() const {
  std::string text = "PerReplica:{";
  for (int r = 0; r < replicas(); ++r) {
    const Tensor value = at(r);
    text += (r > 0 ? ",\n  " : "\n  ") + std::to_string(r) + ": " +
            (value.defined() ? value.to_string() : "none");
  }
  return text + "\n}";
}

std::ostream& operator<<(std::ostream& out, const Distributed& value) { return out << value.to_string(); }

}  // namespace lockstep::distribute
