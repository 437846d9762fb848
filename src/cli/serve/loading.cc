#include "cli/serve/loading.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdio>
#include <future>
#include <string>
#include <utility>

#include "base/error.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/sampling_flags.h"
#include "cli/memory/memory_table.h"
#include "cli/sd_notify.h"
#include "cli/terminal/load_progress.h"
#include "engine/memory_plan.h"
#include "server/api/models.h"

namespace quire {

void block_ends() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

namespace {

std::vector<std::string> adapter_names(const EngineOptions& options) {
  std::vector<std::string> names;
  for (const AdapterOption& adapter : options.adapters) names.push_back(adapter.name);
  return names;
}

}  // namespace

Loading::Loading(std::vector<ModelOrder> orders, ModelFlags flags, EngineOptions common, Server& server)
    : orders_(std::move(orders)),
      flags_(std::move(flags)),
      common_(std::move(common)),
      server_(server),
      thread_([this] { run(); }) {}

void Loading::run() {
  block_ends();
  try {
    read_bandwidth_ = measure_read_bandwidth(orders_.front().engine.threads);
    if (is_single(orders_)) {
      load_one();
    } else {
      attach_several();
    }
    std::vector<std::string> names;
    for (const size_t model : server_.models().all()) names.push_back(server_.models().list(model).names.names.front());
    const std::string url = server_.url();
    const bool over_tcp = server_.port() > 0;
    if (is_single(orders_)) names = {orders_.front().engine.model};
    std::printf("quire: %s at %s%s\n", fmt::format("{}", fmt::join(names, ", ")).c_str(), url.c_str(),
                over_tcp ? "/v1" : "");
    std::fflush(stdout);
    if (over_tcp && server_.models().options().dashboard) spdlog::info("a live page and a chat: {}/dashboard", url);
    sd_notify("READY=1");
  } catch (...) {
    failure_ = std::current_exception();
    ended_ = true;
    for (int i = 0; i < 3; ++i) server_.stop();  // without drain and grace period
  }
  ended_ = true;
}

std::unique_ptr<Completer> Loading::load(const ModelOrder& order) {
  LoadLog log(order.engine.model);
  EngineOptions options = order.engine;
  options.on_load = [&log](const LoadProgress& progress) { log.note(progress); };
  auto engine = std::make_unique<Engine>(options, runtime_);
  for (const std::string& line : memory_table(engine->memory_plan())) spdlog::info("memory: {}", line);
  const std::string sampling = describe_defaults(engine->info().sampling_defaults);
  spdlog::info("sampling of requests that do not set it: {}", sampling.empty()
                                                                  ? "temperature 1 (the model recommends none)"
                                                                  : sampling + " (recommended for this model)");
  return std::make_unique<EngineCompleter>(std::move(engine), read_bandwidth_);
}

ServedModel Loading::served_model(const ModelOrder& order) {
  ServedModel model{.names = order.names,
                    .adapters = adapter_names(order.engine),
                    .pinned = order.pinned,
                    .keep_alive = order.keep_alive,
                    .max_model_len = order.max_model_len};
  model.load = [this, order] {
    spdlog::info("loading {}", order.names.front());
    return load(order);
  };
  return model;
}

// If its memory is not free when it is asked for, others are unloaded.
ServedModel Loading::downloaded_model(const std::string& name) {
  ModelOrder order = downloaded_order(name, flags_, common_);
  const ModelFacts facts = read_model_facts(order.engine);
  const MemoryPlan plan = plan_memory(facts, order.engine, runtime_->machine(model_memory_));
  order.max_model_len = static_cast<int>(plan.limits.max_positions);
  return served_model(order);
}

void Loading::load_one() {
  completer_ = load(orders_.front());
  server_.attach(*completer_);
}

void Loading::attach_several() {
  runtime_ = make_runtime(common_);
  request_memory_ = runtime_->memory.take([&](size_t left) {
    const size_t wanted = common_.reserved_bytes - common_.constraint_bytes;  // grammars belong to each model
    if (left < wanted)
      throw no_resource("requests may take {} MiB, but only {} MiB are free; lower --request-memory", wanted / kMiB,
                        left / kMiB);
    return wanted;
  });
  model_memory_ = runtime_->memory.left();
  if (!divide_memory(orders_, *runtime_))
    spdlog::info("the models do not fit in memory together: one is unloaded when another is asked for");
  std::vector<ServedModel> models;
  for (const ModelOrder& order : orders_) models.push_back(served_model(order));
  server_.attach(std::move(models), read_bandwidth_,
                 [this](const std::string& name) { return downloaded_model(name); });
  for (size_t model = 0; model < orders_.size(); ++model) {
    if (!orders_[model].at_start) continue;
    std::promise<void> settled;
    server_.models().acquire(model, [&settled](const ServiceLease&, const std::exception_ptr& failure) {
      if (failure) {
        settled.set_exception(failure);
      } else {
        settled.set_value();
      }
    });
    settled.get_future().get();
  }
}

}  // namespace quire
