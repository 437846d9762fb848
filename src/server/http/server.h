// The HTTP server: listens, keeps the list of connections, and stops without losing an answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/api/completer.h"
#include "server/api/models.h"
#include "server/api/service.h"
#include "server/http/cors.h"
#include "server/http/log.h"

namespace quire {

struct ServerOptions : ServiceOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};  // names or addresses to listen on
  uint16_t port = 8080;                            // the same for all hosts; 0: any free one
  std::string uds = {};                            // path of a Unix socket to listen on; empty: none
  int threads = 1;                                 // for HTTP; the engine has its own
  int max_connections = 4096;
  std::string ssl_certfile = {}, ssl_keyfile = {};  // PEM; both or neither: HTTPS or HTTP
  std::vector<std::string> api_keys = {};           // accepted keys, with those of the file; none: no key is needed
  std::vector<std::string> admin_keys = {};         // likewise, of operators
  std::string api_key_file = {};                    // see api_keys.h
  CorsOptions cors = {};
  std::string otlp_traces_endpoint = {};    // where spans of requests are sent (docs/tracing.md); empty: nowhere
  std::string otlp_headers = {};            // NAME=VALUE,NAME=VALUE, sent with them
  std::string otlp_service_name = "quire";  // the service that they name
  LogFormat log_format = LogFormat::kText;  // the line that each request writes to spdlog's default logger

  std::string files_dir = {};                     // of /v1/files and /v1/batches; empty: there are none
  uint64_t max_file_bytes = uint64_t{512} << 20;  // of an upload; a larger one gets a 413
  uint64_t max_files_bytes = uint64_t{16} << 30;  // of all files; further uploads get a 413
  size_t max_batch_requests = 50'000;             // of one batch
  size_t batch_bytes = size_t{64} << 20;          // memory for requests of batches and their answers

  size_t max_header_bytes = 16 << 10;  // trailers and chunk extensions included
  size_t max_body_bytes = 8 << 20;
  size_t max_bodies_bytes = 64 << 20;  // all bodies, with what is kept of them until answered; more get a 503
  size_t large_work_bytes = 64 << 20;  // memory for reading one body, beyond itself; more gets a 413
  size_t small_work_bytes = 16 << 20;  // likewise, while others may be read at the same time; more has to wait its turn
  size_t max_replies_bytes = 64 << 20;  // all answers not yet sent; more get a 503, or end
  size_t max_stream_bytes = 1 << 20;    // waiting for a client that reads slowly; more cancels its request

  // Each limits a whole step, however steadily the bytes trickle.
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to the end of its header
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{60'000};  // one write: a whole answer, or the events at hand
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds request_timeout{0};     // one generation, with its time in the queue; 0: no limit
  std::chrono::milliseconds load_timeout{300'000};  // how long a request waits for its model to be loaded
  std::chrono::milliseconds drain{0};               // how long stop() still takes new requests
  std::chrono::milliseconds grace{30'000};          // after that: how long stop() lets answers finish
};

class Server {
 public:
  // Listens immediately and answers once run() is called; until there is a model, it says that it is loading. Throws
  // Error if an address is wrong or in use, a certificate or a file of keys cannot be read, the collector of spans has no
  // valid URL, or options contradict each other.
  explicit Server(ServerOptions options);
  // With a model, which must outlive the server, or with several.
  Server(Completer& completer, ServerOptions options);
  Server(std::vector<ServedModel> models, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens: "http://127.0.0.1:8080", "unix:/run/quire.sock". Hosts first.
  std::vector<std::string> urls() const;
  std::string url() const { return urls().front(); }
  uint16_t port() const;         // 0: it listens on a Unix socket alone
  const Models& models() const;  // once there are any

  // Answers requests with this model from now on, under ServerOptions::model_names. It must outlive the server. Call
  // once, from any thread.
  void attach(Completer& completer);
  // Likewise with several models, each under its own names; the first is the default. read_bandwidth: of this machine's
  // memory, in bytes per second; 0: unknown. downloaded: as Models takes it.
  void attach(std::vector<ServedModel> models, double read_bandwidth = 0, ServeDownloaded downloaded = nullptr);

  // Serves until stopped. Call once.
  void run();

  // From any thread. For the time of `drain`, says that it is stopping where routers ask (/health, /ready), and answers
  // requests as before, each connection's last. Then refuses new connections and closes idle ones; answers under way may
  // continue for `grace`, then they are cancelled with an error. A second call ends the drain, or cancels the answers if it
  // has ended. run() returns when all connections are closed.
  void stop();
  // While run() runs, SIGTERM and SIGINT call stop(), and SIGHUP reads the files of keys and certificates again.
  // Without such files SIGHUP does nothing, but still ends a server that runs in a terminal.
  void obey_signals();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
