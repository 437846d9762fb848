#include "cli/serve.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>

#include "cli/engine_options.h"
#include "server/engine_completer.h"
#include "server/server.h"

namespace quire {
namespace {

struct ServeFlags {
  EngineOptions engine;
  ServerOptions server;
  double timeout = 0, grace = 30, header_timeout = 10, body_timeout = 60, write_timeout = 60,
         idle_timeout = 75;  // seconds
  std::string log_level = "info";
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

void serve(ServeFlags flags) {
  // stdout has the one line that programs wait for; the log goes to stderr.
  spdlog::set_default_logger(spdlog::stderr_color_mt("quire"));
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  raise_file_limit();

  ServerOptions& server = flags.server;
  server.max_running = flags.engine.max_num_seqs;
  server.version = QUIRE_VERSION;
  server.request_timeout = milliseconds(flags.timeout);
  server.grace = milliseconds(flags.grace);
  server.header_timeout = milliseconds(flags.header_timeout);
  server.body_timeout = milliseconds(flags.body_timeout);
  server.write_timeout = milliseconds(flags.write_timeout);
  server.idle_timeout = milliseconds(flags.idle_timeout);

  Engine engine(flags.engine);
  EngineCompleter completer(engine);
  Server http(completer, server);
  http.stop_on_signals();
  std::printf("quire: %s at %s/v1\n", engine.info().name.c_str(), http.url().c_str());
  std::fflush(stdout);
  http.run();
  // What is left is tidying up: a second signal must not make a clean end look like a crash.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
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
  add("--host", server.host, "address to listen on; 0.0.0.0: all");
  add("--port", server.port, "port; 0: any free one");
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
  add("--stream-buffer", server.max_stream_bytes,
      "bytes that may wait for a slow reader of a stream before it is cancelled")
      ->check(CLI::Range(size_t{4096}, size_t{1} << 30));
  add("--header-timeout", flags->header_timeout, "seconds for a request's header")->check(CLI::Range(0.1, 1e6));
  add("--body-timeout", flags->body_timeout, "seconds for a request's body")->check(CLI::Range(0.1, 1e6));
  add("--write-timeout", flags->write_timeout, "seconds for a client to take what is sent at once")
      ->check(CLI::Range(0.1, 1e6));
  add("--keep-alive-timeout", flags->idle_timeout, "seconds a connection may be idle")->check(CLI::Range(0.1, 1e6));
  add("--log-level", flags->log_level, "how much goes to stderr")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  command->callback([flags] { serve(*flags); });
}

}  // namespace quire
