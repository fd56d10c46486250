// One end of a connection between two processes of a run: messages over TCP, between ends that know the same
// secret.
//
// Before the first message both ends prove that they know the secret, each over a random number of the
// other's, so that a recorded proof is worth nothing. Until then nothing that arrives is parsed, and no more
// is read than a proof is long. The messages themselves are neither encrypted nor signed
// (docs/decisions/0035-the-group-and-strangers.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <source_location>
#include <string>
#include <type_traits>

namespace lockstep::comm {

using SteadyClock = std::chrono::steady_clock;
using Moment = SteadyClock::time_point;

Moment in_seconds(double s);
// For poll(): from now to then, at most `most`; 0 where it is over.
int milliseconds_until(Moment moment, int most);

enum class MessageKind : uint32_t {
  hello = 0x4c530001,
  welcome,
  refused,
  shared,
  gathered,      // one rank's part of a gathering, to rank 0
  gathered_all,  // everybody's, or what is wrong with them
  progress,
  posted,  // what a rank says of itself, to rank 0
  lost,
  gave_up,
  left,
  goodbye,
  // Messages of elastic runs, see comm/rendezvous.h.
  goes_on,   // to whoever wants to begin a run that is under way: where its endpoints are
  join,      // a newcomer wants to be let in
  rejoin,    // a member wants to form anew with the others
  patience,  // who waits is not forgotten
  formed,    // the new generation
  missed,    // who leads misses one that is alive
  expelled,  // the run has gone on without the one that asks
  ended,     // the run is over
  passed,    // the run is past the place in its program that a newcomer is at
  last = passed,
};

struct Message {
  MessageKind kind;
  std::string body;
};

// The bodies of messages: numbers as they lie in memory, texts with their length in front.
class MessageWriter {
 public:
  template <class T>
  MessageWriter& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  MessageWriter& put_text(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    text_ += text;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Zeros and empty texts where the body has ended.
class MessageReader {
 public:
  explicit MessageReader(const std::string& text) : text_(text) {}
  template <class T>
  T get() {
    T value{};
    if (text_.size() - at_ < sizeof value) {
      at_ = text_.size();
      return value;
    }
    text_.copy(reinterpret_cast<char*>(&value), sizeof value, at_);
    at_ += sizeof value;
    return value;
  }
  std::string get_text();
  bool ended() const { return at_ == text_.size(); }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

// Sending is thread-safe; receiving is for one thread at a time.
class Connection {
 public:
  // Takes the socket.
  explicit Connection(int fd);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }

  // False where the other end is gone, or has not taken the message after `timeout_s` seconds.
  bool send(MessageKind kind, const std::string& body, double timeout_s = 10);
  // Takes what has arrived without waiting; false where the other end is gone or speaks another language.
  bool receive(std::deque<Message>& messages);
  // The next message within the time, or one that has arrived by then; false where none came.
  bool wait_for(Message& message, Moment until);
  // Whether the other end is gone, as far as can be told without reading.
  bool closed() const;
  // False once receive() or wait_for() has found the other end gone.
  bool open() const { return open_; }
  // What wait_for() received beyond what it was asked for.
  std::deque<Message> take_early();

  // The accepting end. begin_challenge() sends the challenge; then answered() is called whenever something
  // has arrived.
  enum class Proof : uint8_t { pending, proven, refused };
  bool begin_challenge();
  Proof answered(const std::string& secret);
  // The connecting end: does all of it. Empty where both ends know the secret; else what is wrong. `waiting`
  // is called about once per second while the other end says nothing.
  std::string prove(const std::string& secret, Moment until, const std::function<void()>& waiting = {});

 private:
  bool take_arrived(std::deque<Message>& messages);
  bool send_bytes(const std::string& bytes, Moment until);
  // Exactly so many; false where they do not come in time.
  bool read_exactly(std::string& bytes, size_t count, Moment until, const std::function<void()>& waiting);

  const int fd_;
  std::mutex mutex_;  // of sending
  std::string arrived_;
  std::deque<Message> early_;
  std::string nonce_;  // of the challenge
  bool open_ = true;
};

}  // namespace lockstep::comm
