#include "comm/addition.h"

#include <source_location>

#include "lockstep/base/error.h"

namespace lockstep::comm {

void add(void* sum, const void* a, const void* b, int64_t count, DType dtype) {
  dispatch(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      fail(ErrorCode::dtype_mismatch, std::source_location::current(),
           "all_reduce_sum: booleans have no sum; cast() them first");
    else
      add(static_cast<T*>(sum), static_cast<const T*>(a), static_cast<const T*>(b), count);
  });
}

}  // namespace lockstep::comm
