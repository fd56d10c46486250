#include "cli/page/server.h"

// As the library was compiled.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <random>
#include <string_view>
#include <utility>

#include "cli/page/page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"

namespace lockstep::cli {
namespace {

struct Address {
  std::string host;
  int port = 0;
};

Address parsed(const std::string& text) {
  const size_t colon = text.rfind(':');
  Address address;
  bool right = colon != std::string::npos && colon > 0;
  if (right) {
    address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [behind, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    right = error == std::errc() && behind == end && address.port >= 0 && address.port <= 65535;
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    else
      right = right && address.host.find(':') == std::string::npos;
  }
  require(right && !address.host.empty(), ErrorCode::invalid_argument, std::source_location::current(),
          "--http takes HOST:PORT, as 127.0.0.1:8080 or [::1]:0, received \"", text, "\"");
  return address;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

std::string random_token() {
  std::random_device source;  // the system's
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", source());
  return token;
}

std::string in_url(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// "localhost:8080" without its port.
std::string host_of(const std::string& header) {
  if (header.starts_with('[')) return header.substr(1, header.find(']') - 1);
  return header.substr(0, header.find(':'));
}

}  // namespace

struct PageServer::State {
  std::string run;
  Address address;
  std::string token;  // empty: on the loopback
  httplib::Server server;

  void answer(const httplib::Request& request, httplib::Response& response) const {
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    // A page of somebody else's, whose name was made to mean this machine, is not to read the run.
    if (token.empty() && !is_loopback(host_of(request.get_header_value("Host")))) {
      response.status = 403;
      response.set_content("this page is for the machine that it is on\n", "text/plain");
      return;
    }
    const std::string root = token.empty() ? "/" : "/" + token + "/";
    if (request.path == root) {
      response.set_content(live_page(), "text/html; charset=utf-8");
    } else if (request.path == root + "record.json") {
      try {
        response.set_content(shown_json(observe::read_record(run)).dump(), "application/json");
      } catch (const Error& error) {
        response.status = 503;
        response.set_content(error.message() + "\n", "text/plain; charset=utf-8");
      }
    } else {
      response.status = 404;
      response.set_content("there is nothing here\n", "text/plain");
    }
  }
};

PageServer::PageServer(std::string run, const std::string& address) : state_(std::make_unique<State>()) {
  state_->run = std::move(run);
  state_->address = parsed(address);
  if (!is_loopback(state_->address.host)) state_->token = random_token();
  state_->server.Get(".*",
                     [state = state_.get()](const httplib::Request& request, httplib::Response& response) {
                       state->answer(request, response);
                     });
}

PageServer::~PageServer() { stop(); }

void PageServer::stop() { state_->server.stop(); }

void PageServer::serve(const std::function<void(const std::string& url)>& ready) {
  auto& [run, address, token, server] = *state_;
  if (address.port == 0)
    address.port = std::max(0, server.bind_to_any_port(address.host.c_str()));
  else if (!server.bind_to_port(address.host.c_str(), address.port))
    address.port = 0;
  require(address.port > 0, ErrorCode::io, std::source_location::current(), "nobody can listen at ",
          in_url(address.host),
          ": the address is not this machine's, or the port is taken; port 0 takes a free one");
  const bool anywhere = address.host == "0.0.0.0" || address.host == "::";
  const std::string host = anywhere ? host_name() : address.host;
  ready(fmt::format("http://{}:{}/{}", in_url(host), address.port, token.empty() ? "" : token + "/"));
  server.listen_after_bind();
}

}  // namespace lockstep::cli
