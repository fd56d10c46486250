// A stream beside a card's own, and events between streams.
#pragma once

#include <memory>

#include "device/side_stream.h"

namespace lockstep::cuda {

std::unique_ptr<SideStream> make_side_stream(const Device& device);

}  // namespace lockstep::cuda
