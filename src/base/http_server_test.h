// A web server for tests: answers each request on a port of its own at 127.0.0.1 with what a function
// returns.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep {

class HttpServer {
 public:
  // From the request's head to the whole response; the connection is closed after it.
  using Handler = std::function<std::string(const std::string& request)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    setenv("no_proxy", "127.0.0.1", 1);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(socket_, 8) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~HttpServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& name = "file") const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + name;
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string ok(std::string_view body) {
    return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
  }
  static std::string not_found() { return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"; }
  // The bytes from `first` on.
  static std::string rest(std::string_view body, size_t first) {
    return "HTTP/1.1 206 Partial Content\r\nContent-Length: " + std::to_string(body.size() - first) +
           "\r\nContent-Range: bytes " + std::to_string(first) + "-" + std::to_string(body.size() - 1) + "/" +
           std::to_string(body.size()) + "\r\n\r\n" + std::string(body.substr(first));
  }

 private:
  void serve() {
    for (;;) {
      const int connection = accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
        if (got <= 0) break;
        request.append(buffer, static_cast<size_t>(got));
      }
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string response = handler_(request);
      for (size_t sent = 0; sent < response.size();) {
        const ssize_t put = send(connection, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
        if (put <= 0) break;
        sent += static_cast<size_t>(put);
      }
      close(connection);
    }
  }

  Handler handler_;
  int socket_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::jthread thread_;
};

}  // namespace lockstep
