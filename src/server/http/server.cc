#include "server/http/server.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <csignal>
#include <functional>
#include <future>
#include <list>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/batch/batch_queue.h"
#include "server/batch/file_store.h"
#include "server/http/connection.h"
#include "server/http/listener.h"
#include "server/http/tls.h"
#include "server/otlp/span_exporter.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::seconds kLastAnswers{5};  // after the grace, for errors to reach the clients

double in_seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

std::unique_ptr<Tls> make_tls(const ServerOptions& options) {
  if (options.ssl_certfile.empty() && options.ssl_keyfile.empty()) return nullptr;
  if (options.ssl_certfile.empty()) throw invalid("--ssl-keyfile needs --ssl-certfile");
  if (options.ssl_keyfile.empty()) throw invalid("--ssl-certfile needs --ssl-keyfile");
  return std::make_unique<Tls>(options.ssl_certfile, options.ssl_keyfile);
}

std::unique_ptr<FileStore> make_file_store(const ServerOptions& options) {
  if (options.files_dir.empty()) return nullptr;
  return std::make_unique<FileStore>(options.files_dir, FileStoreLimits{.max_file_bytes = options.max_file_bytes,
                                                                        .max_bytes = options.max_files_bytes});
}

// Spans are counted where /metrics finds them.
std::unique_ptr<SpanExporter> make_exporter(ServerOptions& options) {
  if (options.otlp_traces_endpoint.empty()) return nullptr;
  const auto counts = std::make_shared<SpanCounts>();
  options.spans = counts;
  return std::make_unique<SpanExporter>(SpanExporterOptions{.url = parse_collector_url(options.otlp_traces_endpoint),
                                                            .headers = parse_collector_headers(options.otlp_headers),
                                                            .service = options.otlp_service_name,
                                                            .version = options.version},
                                        counts);
}

}  // namespace

// The list of connections and the phase of stopping live on the control strand.
struct Server::State {
  explicit State(ServerOptions given)
      : options(std::move(given)),
        spans(make_exporter(options)),
        tls(make_tls(options)),
        keys(options.api_keys, options.api_key_file, options.admin_keys),
        local_hosts(options.hosts, options.cors.origins),
        request_log(spdlog::default_logger()->clone(kRequestLogger)),
        bodies(options.max_bodies_bytes),
        replies(options.max_replies_bytes),
        files(make_file_store(options)),
        context{options,      tls.get(), keys,  local_hosts, *request_log, spans.get(), bodies, replies, small_bodies,
                large_bodies, disk,      tasks, {},          {},           {},          {},     {}},
        io(options.threads),
        control(asio::make_strand(io)),
        signals(control),
        timer(control) {
    check(options.cors);
    listen();
  }

  void listen() {
    const bool dual_stack = options.hosts.size() == 1;  // "::" next to "0.0.0.0" would otherwise be in use
    uint16_t port = options.port;
    for (const std::string& host : options.hosts) {
      listeners.push_back(Listener::on_tcp(control, host, port, dual_stack));
      port = listeners.back().port();
    }
    if (!options.uds.empty()) listeners.push_back(Listener::on_unix_socket(control, options.uds));
    if (listeners.empty()) throw invalid("nothing to listen on: set --host or --uds");
  }

  asio::awaitable<void> accept(Listener& listener) {
    Listener::Acceptor& acceptor = listener.acceptor();
    const bool guarded = listener.loopback() && !keys.required();
    const bool trusted =
        listener.loopback() || listener.port() == 0;  // the rights of a socket's file decide who connects
    while (acceptor.is_open()) {
      const auto strand = asio::make_strand(io);  // the connection's
      auto [error, socket] = co_await acceptor.async_accept(strand, kTuple);
      if (!acceptor.is_open()) co_return;
      if (error) {  // out of file descriptors, or the client has left already
        spdlog::warn("cannot accept a connection: {}", error.message());
        asio::steady_timer pause(control, std::chrono::milliseconds(50));
        co_await pause.async_wait(kTuple);
        continue;
      }
      if (std::cmp_greater_equal(connections.size(), options.max_connections)) continue;  // closes it
      try {
        serve(std::move(socket), guarded, trusted);
      } catch (...) {  // out of memory: this client is lost, the next need not be
        log(std::current_exception());
      }
    }
  }

  void serve(Socket socket, bool guarded, bool trusted) {
    const auto executor = socket.get_executor();
    const auto place = connections.emplace(connections.end(), nullptr);
    try {
      *place = std::make_shared<Connection>(std::move(socket), guarded, trusted, context);
      asio::co_spawn(executor, (*place)->run(), asio::bind_executor(control, [this, place](std::exception_ptr failure) {
                       if (failure) log(failure);
                       connections.erase(place);
                       if (phase >= Phase::kFinishing && connections.empty()) finish();
                     }));
    } catch (...) {
      connections.erase(place);
      throw;
    }
  }

  // An exception ends the handler that threw it, nothing else.
  void run() {
    for (;;) {
      try {
        io.run();
        return;
      } catch (...) {
        log(std::current_exception());
      }
    }
  }

  // Requests of batches are read where large bodies are, one at a time, within the same memory.
  void begin_batches() {
    if (!files) return;
    files->share(keys.several_tenants());
    BatchQueueOptions batch_options;
    batch_options.max_line_bytes = options.max_body_bytes;
    batch_options.max_requests = options.max_batch_requests;
    batch_options.memory_bytes = options.batch_bytes;
    batch_options.work_bytes = options.large_work_bytes;
    batch_options.counts = batch_counts;
    batch_options.worker = [this](const std::function<void()>& work) {
      std::packaged_task<void()> task(work);
      std::future<void> done = task.get_future();
      asio::post(large_bodies, std::move(task));
      done.get();
    };
    batches = std::make_unique<BatchQueue>(*files, *models, std::move(batch_options));
    context.batches.store(batches.get(), std::memory_order_release);
  }

  static void log(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      spdlog::error("a connection failed: {}", e.what());
    }
  }

  void stop() {
    if (phase == Phase::kServing && options.drain.count() > 0 && context.models) return begin_drain();
    if (phase <= Phase::kDraining) return finish_answers();
    cancel_all();
  }

  // Routers notice that the server is about to stop, and send nothing more.
  void begin_drain() {
    phase = Phase::kDraining;
    spdlog::info("taking requests for {} s more, while /health and /ready say 503", in_seconds(options.drain));
    context.draining = true;
    if (BatchQueue* const queue = context.batches.load(std::memory_order_acquire)) queue->drain();
    after(options.drain, [this] { finish_answers(); });
  }

  void finish_answers() {
    phase = Phase::kFinishing;
    announce_stop();
    context.draining = true;
    context.stopping = true;
    if (BatchQueue* const queue = context.batches.load(std::memory_order_acquire)) queue->drain();
    for (Listener& listener : listeners) listener.close();
    if (connections.empty()) return finish();
    for (const auto& connection : connections) connection->drain();
    after(options.grace, [this] { cancel_all(); });
  }

  void announce_stop() const {
    // Requests of batches are not waited for: they are computed again after the next start.
    const int answers = context.models && !connections.empty() ? models->admission()->inside() : 0;
    if (answers == 0) return spdlog::info("stopping");
    spdlog::info("finishing {} answer{} (up to {} s); press Ctrl-C again to stop now", answers, answers == 1 ? "" : "s",
                 in_seconds(options.grace));
  }

  void cancel_all() {
    phase = Phase::kCancelling;
    if (connections.empty()) return finish();
    context.aborting = true;
    for (const auto& connection : connections) connection->abort();
    after(kLastAnswers, [this] { io.stop(); });
  }

  void after(std::chrono::milliseconds delay, std::function<void()> act) {
    timer.expires_after(delay);
    timer.async_wait([act = std::move(act)](ErrorCode error) {
      if (!error) act();
    });
  }

  // Leaves run() nothing to wait for.
  void finish() {
    ErrorCode ignored;
    timer.cancel();
    signals.cancel(ignored);
  }

  // A file that cannot be read changes nothing.
  void reload() {
    if (!tls && keys.file().empty()) spdlog::info("SIGHUP: there are no files of keys or certificates to reload");
    const auto attempt = [](auto&& read) {
      try {
        read();
      } catch (const Error& error) {
        spdlog::error("SIGHUP: {}; nothing has changed", error.what());
      }
    };
    if (!keys.file().empty()) {
      attempt([&] {
        spdlog::info("SIGHUP: loaded {} API keys", keys.reload());
        if (models) models->admission()->share(keys.several_tenants());
        if (files) files->share(keys.several_tenants());
      });
    }
    if (tls) {
      attempt([&] {
        tls->reload();
        spdlog::info("SIGHUP: loaded the certificate {}", options.ssl_certfile);
      });
    }
  }

  void wait_for_signal() {
    signals.async_wait([this](ErrorCode error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        reload();
        return wait_for_signal();
      }
      stop();
      if (phase == Phase::kDraining || (phase == Phase::kFinishing && !connections.empty())) wait_for_signal();
    });
  }

  ServerOptions options;
  std::unique_ptr<SpanExporter> spans;  // nullptr: requests are not traced
  std::unique_ptr<Models> models;
  std::unique_ptr<Tls> tls;
  ApiKeys keys;
  LocalHosts local_hosts;
  std::shared_ptr<spdlog::logger> request_log;
  ByteBudget bodies, replies;
  asio::thread_pool small_bodies{1}, large_bodies{1}, disk{1};
  const std::shared_ptr<BatchCounts> batch_counts = std::make_shared<BatchCounts>();
  std::unique_ptr<FileStore> files;     // nullptr: there are none
  std::unique_ptr<BatchQueue> batches;  // likewise
  TaskRunner tasks;
  ConnectionContext context;
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> control;
  std::vector<Listener> listeners;
  asio::signal_set signals;
  asio::steady_timer timer;
  std::list<std::shared_ptr<Connection>> connections;
  enum class Phase { kServing, kDraining, kFinishing, kCancelling } phase = Phase::kServing;
};

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Server::Server(Completer& completer, ServerOptions options) : Server(std::move(options)) { attach(completer); }

Server::Server(std::vector<ServedModel> models, ServerOptions options) : Server(std::move(options)) {
  attach(std::move(models));
}

void Server::attach(Completer& completer) {
  std::vector<ServedModel> models;
  models.push_back({.names = state_->options.model_names, .completer = &completer});
  attach(std::move(models), completer.read_bandwidth());
}

void Server::attach(std::vector<ServedModel> models, double read_bandwidth, ServeDownloaded downloaded) {
  ServiceOptions options = state_->options;
  options.needs_key = state_->keys.required();
  options.several_tenants = state_->keys.several_tenants();
  if (state_->files) options.batches = state_->batch_counts;
  state_->models = std::make_unique<Models>(std::move(models), options, read_bandwidth, std::move(downloaded));
  state_->begin_batches();
  state_->context.models.store(state_->models.get(), std::memory_order_release);
}

// Requests that still wait for a worker hold connections, whose sockets must not outlive `io`: they fail here.
Server::~Server() {
  state_->context.aborting = true;
  state_->batches.reset();  // before the workers that read its requests
  state_->small_bodies.join();
  state_->large_bodies.join();
  state_->disk.join();
  state_->tasks.stop();
  if (state_->models) state_->models->stop();
}

uint16_t Server::port() const { return state_->listeners.front().port(); }
const Models& Server::models() const { return *state_->models; }

std::vector<std::string> Server::urls() const {
  std::vector<std::string> urls;
  for (const Listener& listener : state_->listeners) urls.push_back(listener.url(state_->tls ? "https" : "http"));
  return urls;
}

void Server::run() {
  for (Listener& listener : state_->listeners) {
    asio::co_spawn(state_->control, state_->accept(listener), [](std::exception_ptr failure) {
      if (failure) State::log(failure);
    });
  }
  std::vector<std::thread> threads;
  for (int i = 1; i < state_->options.threads; ++i) threads.emplace_back([this] { state_->run(); });
  state_->run();
  for (std::thread& thread : threads) thread.join();
}

void Server::stop() {
  asio::post(state_->control, [state = state_.get()] { state->stop(); });
}

void Server::obey_signals() {
  state_->signals.add(SIGINT);
  state_->signals.add(SIGTERM);
  // A service manager's reload never ends the server. Without files to reload, closing the terminal does, as usual.
  if (state_->tls || !state_->keys.file().empty() || ::isatty(STDIN_FILENO) == 0) state_->signals.add(SIGHUP);
  state_->wait_for_signal();
}

}  // namespace quire
