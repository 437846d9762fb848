// The HTTP server: connections, limits, and a stop that loses nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/api/completer.h"
#include "server/api/service.h"
#include "server/http/cors.h"
#include "server/http/log.h"

namespace quire {

struct ServerOptions : ServiceOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  int threads = 1;       // for HTTP; the engine has its own
  int max_connections = 4096;
  std::string ssl_certfile = {}, ssl_keyfile = {};  // PEM; both or none: HTTPS or HTTP
  std::vector<std::string> api_keys = {};           // with the file's: who may ask; none: everybody
  std::string api_key_file = {};                    // api_keys.h
  CorsOptions cors = {};
  LogFormat log_format = LogFormat::kText;  // of the lines that spdlog's default logger gets, one a request

  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  size_t max_bodies_bytes = 64 << 20;   // of all bodies that have come and are not yet parsed; more get a 503
  size_t max_replies_bytes = 64 << 20;  // of all answers that are not yet sent; more get a 503, or end
  size_t max_stream_bytes = 1 << 20;    // of outputs that wait for a client that reads slowly; more cancels its request

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
  // Listens at once, answers from run() on: until there is a model, that it is loading. Throws Error when the address
  // is wrong or taken, or a certificate or a file of keys cannot be read.
  explicit Server(ServerOptions options);
  // With a model. It must outlive the server.
  Server(Completer& completer, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  Service& service();       // once there is a model

  // Once, from any thread: the model is there, and requests are answered from now on. It must outlive the server.
  void attach(Completer& completer);

  // Serves until stopped. Once.
  void run();

  // Any thread. New connections are refused and idle ones closed; what is being answered may go on for `grace`, then it
  // is cancelled with an error. A second call cancels at once. run() returns when all connections are closed.
  void stop();
  // While run() runs, SIGTERM and SIGINT call stop(), and SIGHUP reads the files of keys and certificates again; where
  // there are none it does nothing, but for ending a server at a terminal.
  void obey_signals();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
