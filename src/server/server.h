// The HTTP server: connections, limits, and a stop that loses nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/completer.h"
#include "server/service.h"

namespace quire {

struct ServerOptions : ServiceOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  int threads = 1;       // for HTTP; the engine has its own
  int max_connections = 4096;

  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  size_t max_stream_bytes = 4 << 20;  // of outputs that wait for a client that reads slowly; more cancels its request

  // Each is the longest the step may take as a whole, however steadily the bytes trickle.
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to the end of its header
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{60'000};  // one write: a whole answer, or what a stream has at hand
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds request_timeout{0};     // of a generation, its time in the queue included; 0: none
  std::chrono::milliseconds grace{30'000};          // of stop()
};

class Server {
 public:
  // Listens at once, answers from run() on. Throws Error when the address is wrong or taken. The completer must outlive
  // it.
  Server(Completer& completer, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  Service& service();

  // Serves until stopped. Once.
  void run();

  // Any thread. New connections are refused and idle ones closed; what is being answered may go on for `grace`, then it
  // is cancelled with an error. A second call cancels at once. run() returns when all connections are closed.
  void stop();
  // SIGTERM and SIGINT call stop() while run() runs.
  void stop_on_signals();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
