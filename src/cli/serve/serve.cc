#include "cli/commands.h"

#include <malloc.h>
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
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/process_flags.h"
#include "cli/hub/model_names.h"
#include "cli/memory/request_memory.h"
#include "cli/serve/downloaded_models.h"
#include "cli/serve/loading.h"
#include "cli/serve/model_orders.h"
#include "engine/memory_plan.h"
#include "engine/ranks/follow.h"
#include "engine/runtime.h"
#include "model/registry.h"
#include "parsers/families.h"
#include "server/api/models.h"
#include "server/http/server.h"
#include "server/kv_events/kv_event_options.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/otlp/collector_url.h"

namespace quire {
namespace {

constexpr double kMostQueuedBytes = 1ull << 40;

struct ServeFlags {
  ModelFlags models;
  EngineOptions engine;
  ProcessFlags processes;
  ServerOptions server;
  size_t request_memory = 0, max_file_bytes = size_t{512} << 20, max_files_bytes = size_t{16} << 30;
  double timeout = 0, grace = 30, header_timeout = 10, body_timeout = 60, write_timeout = 60, idle_timeout = 75,
         load_timeout = 300, drain = 0;  // seconds
  std::string log_level = "info", log_format = "text";
  KvEventOptions kv_events;
  std::string kv_events_config;
  bool offline = false;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Freed memory goes back to the system, so that what one request has used is there for whatever comes next.
void keep_little_freed_memory() {
  constexpr int kLargeBlock = 256 << 10;  // with a mapping of its own
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, 4 * kLargeBlock);
}

// Each connection needs a file descriptor, and the usual soft limit is only 1,024.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// vLLM's users write lists in JSON, ["a", "b"]; CLI11 removes the brackets and leaves the quotes. Others write a,b.
void split_list(std::vector<std::string>& list) {
  std::vector<std::string> items;
  for (std::string text : std::exchange(list, {})) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '"' || c == '\''; });
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find(',', at), text.size());
      if (end > at) items.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  list = std::move(items);
}

// Fails now, and not after clients have begun to wait, if a model does not exist, cannot be loaded or does not fit.
void check_plan(EngineOptions options, size_t memory) {
  if (options.memory_bytes == 0) options.memory_bytes = memory;
  plan_memory(read_model_facts(options), options, this_machine(options));
}

// Runs read(), whose Error becomes one of the command line.
template <class Read>
void check_flag(const char* flag, const Read& read) {
  try {
    read();
  } catch (const Error& e) {
    throw CLI::ValidationError(flag, e.what());
  }
}

// The environment may have headers for other programs, so they count only with an endpoint.
void check_collector(const ServerOptions& options) {
  if (options.otlp_traces_endpoint.empty()) return;
  check_flag("--otlp-traces-endpoint", [&] { parse_collector_url(options.otlp_traces_endpoint); });
  check_flag("--otlp-headers", [&] { parse_collector_headers(options.otlp_headers); });
}

KvEventOptions kv_event_options(const ServeFlags& flags) {
  KvEventOptions options = flags.kv_events;
  if (!flags.kv_events_config.empty())
    check_flag("--kv-events-config", [&] { options = read_kv_events_config(flags.kv_events_config, options); });
  if (!options.endpoint.empty()) check_flag("--kv-events", [&] { check_kv_endpoint(options.endpoint); });
  if (!options.replay_endpoint.empty())
    check_flag("--kv-events-replay", [&] { check_kv_endpoint(options.replay_endpoint); });
  if (options.endpoint.empty() && !options.replay_endpoint.empty())
    throw CLI::ValidationError("--kv-events-replay", "needs --kv-events");
  if (!options.endpoint.empty() && !flags.engine.prefix_cache)
    throw CLI::ValidationError("--kv-events", "describes the prefix cache; leave --no-prefix-cache out");
  return options;
}

// When what computes is gone, requests have been told, and the server ends, so that a supervisor starts it again.
class EngineLoss {
 public:
  explicit EngineLoss(Server& server) : server_(&server) {}

  // On the engine's thread.
  void happens(std::string_view why) {
    const std::lock_guard lock(mutex_);
    spdlog::critical("{}", why);
    why_ = why;
    if (server_) server_->stop();
  }
  void server_ends() {
    const std::lock_guard lock(mutex_);
    server_ = nullptr;
  }
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (!why_.empty()) throw no_resource("{}", why_);
  }

 private:
  std::mutex mutex_;
  Server* server_;
  std::string why_;
};

void serve(ServeFlags flags) {
  ServerOptions& options = flags.server;
  options.max_running = flags.engine.max_num_seqs;
  options.max_file_bytes = flags.max_file_bytes;
  options.max_files_bytes = flags.max_files_bytes;
  reserve_request_memory(flags.request_memory, options, flags.engine);
  const bool follows = connect_processes(flags.processes, flags.engine);
  std::vector<ModelOrder> orders = read_model_orders(flags.models, flags.engine, flags.offline);
  const bool single = is_single(orders);
  if (flags.engine.processes && !single)
    throw CLI::ValidationError("-m", "names several models; several processes (--ranks mpi) serve one");
  if (follows) return follow(orders.front().engine);
  if (orders.size() > 1 && !options.model_names.empty())
    throw CLI::ValidationError("--served-model-name", "names one model; with several, use -m NAME=MODEL");
  if (orders.size() > 1 && !flags.engine.adapters.empty())
    throw CLI::ValidationError("--lora",
                               "belongs to one model; with several, put lora = NAME=PATH in its section of "
                               "--models-preset");
  if (!single && !flags.kv_events.endpoint.empty())
    throw CLI::ValidationError("--kv-events",
                               "describes the pages of one model; serve each model by a process of its own");
  if (!options.model_names.empty()) orders.front().names = options.model_names;
  if (single) options.model_names = orders.front().names;
  options.loads_adapters = std::ranges::any_of(orders, [](const ModelOrder& o) { return loads_adapters(o.engine); });
  options.version = QUIRE_VERSION;
  options.request_timeout = milliseconds(flags.timeout);
  options.grace = milliseconds(flags.grace);
  options.drain = milliseconds(flags.drain);
  options.header_timeout = milliseconds(flags.header_timeout);
  options.body_timeout = milliseconds(flags.body_timeout);
  options.write_timeout = milliseconds(flags.write_timeout);
  options.idle_timeout = milliseconds(flags.idle_timeout);
  options.load_timeout = milliseconds(flags.load_timeout);
  for (auto* list : {&options.cors.origins, &options.cors.methods, &options.cors.headers}) split_list(*list);
  options.log_format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;

  // Programs wait for the single line on stdout; the log goes to stderr.
  std::optional<Log> log(std::in_place, STDERR_FILENO, options.log_format, spdlog::level::from_str(flags.log_level));
  for (const ModelOrder& order : orders) check_plan(order.engine, flags.engine.memory_bytes);
  std::vector<std::filesystem::path> served;
  for (const ModelOrder& order : orders) served.emplace_back(resolve_model(order.engine.model));
  options.model_store = downloaded_models(std::move(served), flags.offline);
  if (!flags.kv_events.endpoint.empty()) {
    const auto publisher = std::make_shared<KvEventPublisher>(flags.kv_events);
    orders.front().engine.page_observer = publisher;
    options.kv_events = publisher->counts();
  }
  keep_little_freed_memory();
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);  // the reader of stdout may be gone
  auto server = std::make_unique<Server>(options);
  server->obey_signals();
  spdlog::info("listening at {}, loading {}", fmt::join(server->urls(), ", "), orders.front().engine.model);
  EngineLoss loss(*server);
  orders.front().engine.on_lost = [&loss](std::string_view why) { loss.happens(why); };
  Loading loading(std::move(orders), flags.models, flags.engine, *server);
  server->run();
  loss.server_ends();
  if (loading.busy()) {
    // Loading cannot be interrupted, and there is nothing to save.
    log.reset();
    std::_Exit(0);
  }
  loading.join();
  // A second signal during the clean-up must not make it look like a crash.
  block_ends();
  server.reset();  // before the engine
  loading.rethrow_failure();
  loss.rethrow();
}

}  // namespace

void add_serve_command(CLI::App& app) {
  const auto flags = std::make_shared<ServeFlags>();
  ServerOptions& server = flags->server;
  CLI::App* command = app.add_subcommand("serve", "Serve a model over the APIs of OpenAI, Anthropic and Ollama");
  command->fallthrough();  // --config is the program's flag
  const auto add = [&](const char* group, const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->capture_default_str()->group(group);
  };
  constexpr double kLongest = 1e6;  // seconds
  const char* const basic = "Options";
  CLI::Option* hosts =
      add(basic, "--host", server.hosts, "addresses to listen on; 0.0.0.0 for all")->type_name("ADDRESS ...");
  add(basic, "--port", server.port, "port to listen on; 0 for any free one")->check(between(0, 65535));
  command->add_option("--uds", server.uds, "Unix socket to listen on, instead of the default --host")
      ->type_name("PATH");
  command->add_flag_callback(
      "--no-dashboard", [&server] { server.dashboard = false; },
      "do not serve the live page and the chat at /dashboard (docs/dashboard.md)");
  command
      ->add_option(
          "--served-model-name", server.model_names,
          "names of the model in requests (default: the value of -m). A name that ends in * stands for all names "
          "that begin so: with 'claude-*' or '*', clients that ask for a vendor's model get this one")
      ->type_name("NAME ...");

  const char* const access = "Access";
  command
      ->add_option("--api-key", server.api_keys,
                   "accepted API keys; every request must send one. Keys in a file stay out of the process list")
      ->type_name("KEY ...")
      ->envname("QUIRE_API_KEY")
      ->group(access);
  command
      ->add_option("--admin-key", server.admin_keys,
                   "API keys that may also load, unload, download and delete models, and load adapters "
                   "(docs/serving.md). Without any key, programs of this machine may")
      ->type_name("KEY ...")
      ->envname("QUIRE_ADMIN_KEY")
      ->group(access);
  command
      ->add_option(
          "--api-key-file", server.api_key_file,
          "file of accepted keys: KEY, NAME:KEY or NAME:KEY:PRIORITY on each line (lower runs before other keys), # "
          "begins a comment; read again on SIGHUP")
      ->type_name("FILE")
      ->group(access);
  command->add_option("--ssl-certfile", server.ssl_certfile, "serve HTTPS with this certificate chain (PEM)")
      ->type_name("FILE")
      ->group(access);
  command->add_option("--ssl-keyfile", server.ssl_keyfile, "the certificate's private key (PEM)")
      ->type_name("FILE")
      ->group(access);
  command
      ->add_option(
          "--allowed-origins", server.cors.origins,
          "origins whose web pages may send requests: https://chat.example.org, patterns such as "
          "https://*.example.org, http://192.168.0.5:* and chrome-extension://*, or '*' for all (default: only "
          "pages of this machine)")
      ->type_name("ORIGIN ...")
      ->group(access);
  add(access, "--allowed-methods", server.cors.methods, "methods that pages of other origins may use")
      ->type_name("METHOD ...");
  add(access, "--allowed-headers", server.cors.headers, "headers that pages of other origins may send")
      ->type_name("HEADER ...");
  command->add_flag("--allow-credentials", server.cors.credentials, "pages of other origins may send cookies")
      ->group(access);

  const char* const answers = "Tool calls and reasoning";
  add(answers, "--tool-call-parser", server.tool_call_parser, "syntax in which the model calls tools (docs/tools.md)")
      ->type_name("NAME")
      ->check(CLI::IsMember(tool_parser_names()).description(""));
  add(answers, "--reasoning-parser", server.reasoning_parser, "marks around the model's thoughts (docs/tools.md)")
      ->type_name("NAME")
      ->check(CLI::IsMember(reasoning_parser_names()).description(""));

  add_engine_options(*command, flags->engine);
  add_process_options(*command, flags->processes, flags->engine);
  command->remove_option(command->get_option("--model"));
  add_model_flags(*command, flags->models);
  add_chat_template_options(*command, flags->engine);

  const char* const batches = "Files and batches";
  command
      ->add_option("--files-dir", server.files_dir,
                   "private folder of /v1/files and /v1/batches; without it there are none (docs/batches.md)")
      ->type_name("DIR")
      ->group(batches);
  add_size(*command, "--max-file-size", flags->max_file_bytes,
           "most bytes of an uploaded file; a larger one gets a 413")
      ->group(batches);
  add_size(*command, "--max-files-size", flags->max_files_bytes,
           "most bytes of all files in --files-dir; further uploads get a 413")
      ->group(batches);
  add(batches, "--max-batch-requests", server.max_batch_requests, "most requests of one batch")
      ->check(between(1, 10'000'000));

  const char* const limits = "Limits";
  add(limits, "--max-queue", server.max_queue, "answers that may wait for a free sequence; more get a 429")
      ->check(between(0, 1'000'000));
  add(limits, "--timeout", flags->timeout, "most seconds for a request, waiting included; 0: no limit")
      ->check(between(0, kLongest));
  add(limits, "--grace", flags->grace, "seconds that running answers get to finish after SIGTERM or Ctrl-C")
      ->check(between(0, kLongest));
  add(limits, "--drain", flags->drain,
      "seconds after SIGTERM in which new requests are still taken, while /health and /ready say 503 "
      "(docs/replicas.md)")
      ->check(between(0, kLongest));
  add(limits, "--max-connections", server.max_connections, "most connections; further ones are closed")
      ->check(between(1, 1'000'000));
  add(limits, "--max-body-size", server.max_body_bytes, "most bytes of a request's body")->check(between(1, 1 << 30));
  add(limits, "--max-header-size", server.max_header_bytes, "most bytes of a request's header")
      ->check(between(256, 1 << 20));
  add(limits, "--max-bodies-size", server.max_bodies_bytes,
      "most bytes of all bodies received, and of what is kept of them until answered; further ones get a 503")
      ->check(between(1 << 20, kMostQueuedBytes));
  add(limits, "--max-replies-size", server.max_replies_bytes,
      "most bytes of all answers not sent yet; further ones get a 503")
      ->check(between(1 << 20, kMostQueuedBytes));
  add_size(
      *command, "--request-memory", flags->request_memory,
      "memory for reading requests, beyond their bodies, and for grammars; 0: a quarter of --memory, between 64MiB "
      "and 512MiB. One request may take half of it; a larger one gets a 413")
      ->check([](const std::string& bytes) { return bytes == "0" || bytes.size() > 7 ? "" : "must be at least 10MB"; },
              "", "")
      ->group(limits);
  add(limits, "--stream-buffer", server.max_stream_bytes,
      "bytes of a stream that may wait for a slow reader before the request is cancelled")
      ->check(between(4096, 1 << 30));
  add(limits, "--header-timeout", flags->header_timeout, "seconds to receive a request's header")
      ->check(between(0.1, kLongest));
  add(limits, "--body-timeout", flags->body_timeout, "seconds to receive a request's body")
      ->check(between(0.1, kLongest));
  add(limits, "--write-timeout", flags->write_timeout, "seconds for a client to receive one write")
      ->check(between(0.1, kLongest));
  add(limits, "--load-timeout", flags->load_timeout,
      "seconds that a request waits for its model to be loaded, with several models; then it gets a 503")
      ->check(between(0, kLongest));
  add(limits, "--keep-alive-timeout", flags->idle_timeout, "seconds that a connection may be idle")
      ->check(between(0.1, kLongest));
  add(limits, "--http-threads", server.threads, "threads for HTTP, besides the engine's --threads")
      ->check(between(1, 64));

  const char* const logging = "Logging and metrics";
  add(logging, "--log-format", flags->log_format, "lines of text, or one JSON object per line")
      ->check(CLI::IsMember({"text", "json"}));
  add(logging, "--log-level", flags->log_level, "least level to log to standard error; info logs each request")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  add(logging, "--metrics-prefix", server.metrics_prefix,
      "prefix of the names at /metrics; vllm: suits its dashboards, quire_ suits promtool")
      ->type_name("PREFIX")
      ->check(CLI::Validator(
          [](const std::string& prefix) {
            const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':'; };
            const bool good = std::ranges::all_of(prefix, fits) && !std::isdigit(static_cast<unsigned char>(prefix[0]));
            return good ? std::string() : "must be letters, digits, _ and :, and not begin with a digit, not " + prefix;
          },
          ""));
  const char* const events = "KV events";
  command
      ->add_option("--kv-events", flags->kv_events.endpoint,
                   "publish which pages the prefix cache has, with their tokens, in vLLM's format over ZeroMQ: "
                   "tcp://127.0.0.1:5557, tcp://*:5557 for other machines (docs/replicas.md)")
      ->type_name("ENDPOINT")
      ->group(events);
  command
      ->add_option("--kv-events-replay", flags->kv_events.replay_endpoint,
                   "where subscribers ask for messages that they missed: tcp://127.0.0.1:5558")
      ->type_name("ENDPOINT")
      ->group(events);
  command
      ->add_option("--kv-events-topic", flags->kv_events.topic, "the topic of all messages; llm-d wants kv@POD@MODEL")
      ->type_name("TOPIC")
      ->group(events);
  add_choice(*command, "--kv-events-format", flags->kv_events.format, kKvEventFormatNames,
             "how events are encoded: array, as llm-d reads them, or map, as vllm-router does")
      ->group(events);
  command
      ->add_option("--kv-events-config", flags->kv_events_config,
                   "the same as vLLM's JSON: {\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\"}")
      ->type_name("JSON")
      ->group(events);
  const char* const tracing = "Tracing";  // next to --trace-out
  command
      ->add_option("--otlp-traces-endpoint", server.otlp_traces_endpoint,
                   "send a span of each request to this OpenTelemetry collector, over OTLP with HTTP and JSON: "
                   "http://HOST:4318/v1/traces (docs/tracing.md)")
      ->type_name("URL")
      ->group(tracing);
  command
      ->add_option(
          "--otlp-headers", server.otlp_headers,
          "headers to send with spans, such as a token: NAME=VALUE,NAME=VALUE. In the environment they stay out "
          "of the process list")
      ->type_name("LIST")
      ->envname("OTEL_EXPORTER_OTLP_HEADERS")
      ->group(tracing);
  add(tracing, "--otlp-service-name", server.otlp_service_name, "the service that spans name")
      ->type_name("NAME")
      ->envname("OTEL_SERVICE_NAME");
  command->footer(
      "--config FILE reads flags from a file, one a line without the dashes: `model = smollm2`, `port = 8000`, "
      "`api-key = [\"a\", \"b\"]`. Flags on the command line win.\n"
      "Requests that set no sampling parameters use the model's recommendation, which is logged at start.");
  command->callback([flags, hosts, command] {
    flags->offline = is_offline(*command);
    if (!flags->server.uds.empty() && hosts->count() == 0) flags->server.hosts.clear();
    check_collector(flags->server);
    flags->kv_events = kv_event_options(*flags);
    serve(*flags);
  });
}

}  // namespace quire
