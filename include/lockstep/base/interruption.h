// How a program whose signals somebody else handles, such as an interpreter, ends a long computation.
#pragma once

namespace lockstep {

// Makes loops of compiled functions call `check` about ten times a second, on the thread that runs them. What it
// throws ends the computation and reaches whoever called the function. Null, as at first: nothing is called.
// Any thread may set it.
void set_interruption_check(void (*check)());

}  // namespace lockstep
