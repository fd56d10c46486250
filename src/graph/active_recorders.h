// How many tapes record.
#pragma once

namespace lockstep {

// Recorders (graph/emit.h) that are told what happens on this thread now. More than one: what the inner one
// differentiates may be differentiated again.
int active_recorders();

}  // namespace lockstep
