// Addresses of processes, and the sockets that listen at them or connect to them.
#pragma once

#include <source_location>
#include <string>

#include "comm/connection.h"

namespace lockstep::comm {

struct Address {
  std::string host, port;
};

// "host:port", "[::1]:29400". Throws Error(invalid_argument) where it is none.
Address parse_address(const std::string& text, std::source_location where);
// The text of an address that parse_address() reads.
std::string address_text(const std::string& host, int port);

// A socket that listens there, or -1: `error` is errno then, 0 where the name cannot be resolved, as
// `failure` says.
int try_listen(const Address& address, int backlog, int& error, std::string& failure);
// A connected socket, or -1 and why there is none now. `refused`: a machine answered that nobody listens
// there.
int try_connect(const Address& address, Moment until, std::string& failure, bool* refused = nullptr);
// A socket that is bound to a port which the system chose, on the address of `host`. Throws Error(io).
int bind_any_port(const std::string& host, int& port, std::source_location where);
// The address, without a port, of this end of a socket.
std::string host_of_socket(int fd);
// "process 71 on host b"
std::string own_name();
// What other machines can call this one: its name; or, where that means the loopback here, as in Debian's
// /etc/hosts, the address of its first interface.
std::string reachable_host();

}  // namespace lockstep::comm
