// What of earlier models later ones notice.
#pragma once

namespace lockstep::keras::utils {

// Names begin anew: the next Dense without a name is called "dense". Models that exist keep theirs. Any
// thread may call it.
void clear_session();

}  // namespace lockstep::keras::utils
