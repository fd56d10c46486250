// Who listens at a port of this machine.
#pragma once

#include <string>

namespace lockstep::comm {

// "process 71 (python3 train.py)"; "another process" where the system does not let this one see whose it is.
std::string port_owner(int port);

}  // namespace lockstep::comm
