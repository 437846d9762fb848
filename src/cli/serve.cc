#include "cli/serve.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/team.h"
#include "cli/engine_options.h"
#include "cli/sd_notify.h"
#include "kernels/probe.h"
#include "server/api/engine_completer.h"
#include "server/http/server.h"

namespace quire {
namespace {

struct ServeFlags {
  EngineOptions engine;
  ServerOptions server;
  double timeout = 0, grace = 30, header_timeout = 10, body_timeout = 60, write_timeout = 60,
         idle_timeout = 75;  // seconds
  std::string log_level = "info", log_format = "text";
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// A connection is a file descriptor; the usual soft limit of 1,024 is less than what may be asked for.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// vLLM's users write lists in JSON, ["a", "b"], of which CLI11 takes the brackets; ours are words.
void strip_quotes(std::vector<std::string>& list) {
  for (std::string& item : list) {
    std::erase_if(item, [](char c) { return c == ' ' || c == '"'; });
  }
}

void block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

// Bytes per second that the machine reads at best: what the figures of decoding stand beside. Before the model takes
// its memory, so that the process never holds more than was budgeted.
double measure_read_bandwidth(int threads) {
  if (threads < 0 || threads > 1024) return 0;  // the engine says what is wrong
  Team team(threads > 0 ? threads : usable_cores());
  return ReadProbe(team, size_t{128} << 20).bandwidth(2);
}

// The model, which the server gets when it is loaded.
class Loading {
 public:
  Loading(const EngineOptions& options, Server& server)
      : thread_([this, &options, &server] {
          block_ends();
          try {
            const double read_bandwidth = measure_read_bandwidth(options.threads);
            engine_ = std::make_unique<Engine>(options);
            for (const std::string& line : memory_table(engine_->info())) spdlog::info("memory: {}", line);
            completer_ = std::make_unique<EngineCompleter>(*engine_, read_bandwidth);
            server.attach(*completer_);
            const std::string url = server.url();
            const bool over_tcp = server.port() > 0;
            std::printf("quire: %s at %s%s\n", engine_->info().name.c_str(), url.c_str(), over_tcp ? "/v1" : "");
            std::fflush(stdout);
            sd_notify("READY=1");
            ended_ = true;
          } catch (...) {
            failure_ = std::current_exception();
            ended_ = true;
            server.stop();
            server.stop();  // nothing is under way that is worth waiting for
          }
        }) {}

  bool ended() const { return ended_; }
  void join() { thread_.join(); }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineCompleter> completer_;
  std::exception_ptr failure_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

void serve(ServeFlags flags) {
  ServerOptions& options = flags.server;
  options.max_running = flags.engine.max_num_seqs;
  // One always may come, beside the part that is for small ones.
  options.max_bodies_bytes = std::max(options.max_bodies_bytes, options.max_body_bytes / 4 * 5);
  flags.engine.reserved_bytes = options.max_bodies_bytes + options.max_replies_bytes;
  options.version = QUIRE_VERSION;
  options.request_timeout = milliseconds(flags.timeout);
  options.grace = milliseconds(flags.grace);
  options.header_timeout = milliseconds(flags.header_timeout);
  options.body_timeout = milliseconds(flags.body_timeout);
  options.write_timeout = milliseconds(flags.write_timeout);
  options.idle_timeout = milliseconds(flags.idle_timeout);
  for (auto* list : {&options.cors.origins, &options.cors.methods, &options.cors.headers}) strip_quotes(*list);
  options.log_format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;

  // stdout has the one line that programs wait for; the log goes to stderr.
  std::optional<Log> log(std::in_place, STDERR_FILENO, options.log_format, spdlog::level::from_str(flags.log_level));
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);  // whoever read stdout may be gone
  auto server = std::make_unique<Server>(options);
  server->obey_signals();
  spdlog::info("listening at {}, loading {}", fmt::join(server->urls(), ", "), flags.engine.model);
  Loading loading(flags.engine, *server);
  server->run();
  if (!loading.ended()) {
    // A load cannot be interrupted, and nothing would be lost with it.
    log.reset();
    std::_Exit(0);
  }
  loading.join();
  // What is left is tidying up: a second signal must not make a clean end look like a crash.
  block_ends();
  server.reset();  // before the engine
  loading.rethrow_failure();
}

}  // namespace

void add_serve_command(CLI::App& app) {
  const auto flags = std::make_shared<ServeFlags>();
  ServerOptions& server = flags->server;
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model over the OpenAI API: /v1/chat/completions, /v1/completions");
  add_engine_options(*command, flags->engine);
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str();
  };
  CLI::Option* hosts = add("--host", server.hosts, "addresses to listen on; 0.0.0.0: all of this machine's");
  add("--port", server.port, "port; 0: any free one");
  command->add_option("--uds", server.uds, "path of a Unix socket to listen on, instead of the default --host");
  command->add_option("--served-model-name", server.model_names, "names of the model in requests (default: after -m)");
  add("--metrics-prefix", server.metrics_prefix,
      "before the names of /metrics; vllm: makes its dashboards work, quire_ is what promtool likes")
      ->check(CLI::Validator(
          [](const std::string& prefix) {
            const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':'; };
            const bool good = std::ranges::all_of(prefix, fits) && !std::isdigit(static_cast<unsigned char>(prefix[0]));
            return good ? std::string() : "expected letters, digits, _ and :, no digit first";
          },
          "PREFIX"));
  command->add_option("--ssl-certfile", server.ssl_certfile, "certificate and its chain, PEM: serve HTTPS");
  command->add_option("--ssl-keyfile", server.ssl_keyfile, "the certificate's private key, PEM");
  command
      ->add_option("--api-key", server.api_keys,
                   "keys of which requests must have one; a file of them does not show in the list of processes")
      ->envname("QUIRE_API_KEY");
  command->add_option("--api-key-file", server.api_key_file,
                      "file of keys, KEY or NAME:KEY a line, # before comments; read again on SIGHUP");
  command->add_option("--allowed-origins", server.cors.origins,
                      "origins whose web pages may ask, or '*' (default: none but this server's own)");
  add("--allowed-methods", server.cors.methods, "methods that pages of other origins may use");
  add("--allowed-headers", server.cors.headers, "headers that pages of other origins may send");
  command->add_flag("--allow-credentials", server.cors.credentials, "pages of other origins may send cookies");
  add("--max-queue", server.max_queue, "answers that may wait behind the running ones; more get a 429")
      ->check(CLI::Range(0, 1'000'000));
  add("--timeout", flags->timeout, "seconds a request may take in all; 0: no limit")->check(CLI::Range(0.0, 1e6));
  add("--grace", flags->grace, "seconds that answers may go on after SIGTERM or SIGINT")->check(CLI::Range(0.0, 1e6));
  add("--http-threads", server.threads, "threads for HTTP, beside the engine's")->check(CLI::Range(1, 64));
  add("--max-connections", server.max_connections, "connections at the same time; more are closed")
      ->check(CLI::Range(1, 1'000'000));
  add("--max-body-size", server.max_body_bytes, "bytes of a request's body")
      ->check(CLI::Range(size_t{1}, size_t{1} << 30));
  add("--max-header-size", server.max_header_bytes, "bytes of a request's header")
      ->check(CLI::Range(size_t{256}, size_t{1} << 20));
  add("--max-bodies-size", server.max_bodies_bytes, "bytes of all bodies that are being received; more get a 503")
      ->check(CLI::Range(size_t{1} << 20, size_t{1} << 40));
  add("--max-replies-size", server.max_replies_bytes, "bytes of all answers that are not yet sent; more get a 503")
      ->check(CLI::Range(size_t{1} << 20, size_t{1} << 40));
  add("--stream-buffer", server.max_stream_bytes,
      "bytes that may wait for a slow reader of a stream before it is cancelled")
      ->check(CLI::Range(size_t{4096}, size_t{1} << 30));
  add("--header-timeout", flags->header_timeout, "seconds for a request's header")->check(CLI::Range(0.1, 1e6));
  add("--body-timeout", flags->body_timeout, "seconds for a request's body")->check(CLI::Range(0.1, 1e6));
  add("--write-timeout", flags->write_timeout, "seconds for a client to take what is sent at once")
      ->check(CLI::Range(0.1, 1e6));
  add("--keep-alive-timeout", flags->idle_timeout, "seconds a connection may be idle")->check(CLI::Range(0.1, 1e6));
  add("--log-format", flags->log_format, "lines of text, or JSON objects")->check(CLI::IsMember({"text", "json"}));
  add("--log-level", flags->log_level, "how much goes to stderr; info has a line a request")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  command->callback([flags, hosts] {
    if (!flags->server.uds.empty() && hosts->count() == 0) flags->server.hosts.clear();
    serve(*flags);
  });
}

}  // namespace quire
