// The host's memory that GPUs read by themselves.
#pragma once

#include <cstddef>

namespace lockstep::cuda {

// Whether these bytes of the host are pinned, so that a copy of them needs no other memory on its way. Blocks
// of CPU devices are pinned when they have been asked for several times: that takes a millisecond for some
// megabytes, and they come again.
bool is_pinned(const void* data, size_t bytes);

}  // namespace lockstep::cuda
