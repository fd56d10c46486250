// Serves the page about a run, which follows it.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace lockstep::cli {

class PageServer {
 public:
  // `run`: the folder with its record. `address`: "127.0.0.1:8080", "[::1]:0". Throws Error(invalid_argument)
  // for what is no address. Where it is not on the loopback, the URL has a random token in it.
  PageServer(std::string run, const std::string& address);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Answers until stop(). `ready` gets the URL. Throws Error(io) where nobody can listen there.
  void serve(const std::function<void(const std::string& url)>& ready);
  // From any thread.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cli
