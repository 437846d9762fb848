#include "load/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

#include "base/error.h"
#include "load/client.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using Clock = LoadClient::Clock;

constexpr int kWarmupTokens = 16;  // answer length: enough for prefill, decode and a kept-alive connection

// One run. Single-threaded: everything happens in io_.run().
class LoadRun {
 public:
  LoadRun(const Workload& workload, LoadOptions& options, std::function<void(int, int)> progress)
      : workload_(workload), options_(options), progress_(std::move(progress)), ticker_(io_) {
    const auto timeout = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeout));
    for (const std::string& url : options.urls)
      clients_.push_back(std::make_unique<LoadClient>(io_, parse_server_url(url), options.api_key, timeout));
  }

  std::vector<RequestRecord> run() {
    spawn(all());
    io_.run();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(records_);
  }

 private:
  void spawn(asio::awaitable<void> task) {
    asio::co_spawn(io_, std::move(task), [this](const std::exception_ptr& failure) {
      if (!failure) return;
      if (!failure_) failure_ = failure;
      io_.stop();
    });
  }

  asio::awaitable<void> all() {
    if (options_.model.empty()) options_.model = co_await clients_.front()->first_model();
    co_await warm_up();
    records_.resize(workload_.requests.size());
    start_ = Clock::now();
    spawn(tick());
    if (options_.concurrency > 0) {
      sending_ = std::min(options_.concurrency, static_cast<int>(workload_.requests.size()));
      for (int i = 0; i < sending_; ++i) spawn(closed_loop());
    } else {
      sending_ = 1;
      spawn(open_loop());
    }
  }

  // The first requests may meet cold files, caches and clocks. Warm-up prompts differ from all measured ones, except
  // for a shared prefix, which they put into the server's cache.
  asio::awaitable<void> warm_up() {
    Workload warm;
    warm.seed = ~workload_.seed;
    const PlannedRequest first = workload_.requests.front();
    warm.requests.assign(static_cast<size_t>(options_.warmup),
                         {0, std::min(first.input_tokens, 256), std::min(first.output_tokens, kWarmupTokens), {}});
    if (workload_.shared_prefix > 0) {
      warm.seed = workload_.seed;
      warm.shared_prefix = workload_.shared_prefix;
      for (PlannedRequest& request : warm.requests) request.input_tokens = workload_.shared_prefix;
    }
    for (size_t i = 0; i < warm.requests.size(); ++i) {
      const std::string body = request_body(warm, i);
      for (const auto& client : clients_) {
        RequestRecord record = planned_record(warm.requests[i]);
        co_await client->complete(endpoint(), body, Clock::now(), record);
        if (!record.failure.empty()) throw invalid("the warm-up request failed: {}", record.failure);
      }
    }
  }

  asio::awaitable<void> closed_loop() {
    while (next_ < records_.size() && !over()) {
      const size_t i = next_++;
      const std::string body = request_body(workload_, i);
      co_await measure(i, body, seconds());
    }
    client_ended();
  }

  asio::awaitable<void> open_loop() {
    asio::steady_timer timer(io_);
    while (next_ < records_.size() && !over()) {
      const double at = workload_.requests[next_].at;
      if (options_.duration > 0 && at >= options_.duration) break;
      std::string body = request_body(workload_, next_);
      timer.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at)));
      co_await timer.async_wait(asio::use_awaitable);
      ++sending_;
      spawn(open_request(next_++, std::move(body), at));
    }
    client_ended();
  }

  asio::awaitable<void> open_request(size_t i, std::string body, double at) {
    co_await measure(i, body, at);
    client_ended();
  }

  asio::awaitable<void> measure(size_t i, const std::string& body, double intended) {
    RequestRecord& record = records_[i];
    record = planned_record(workload_.requests[i]);
    record.intended = intended;
    co_await clients_[i % clients_.size()]->complete(endpoint(), body, start_, record);
    if (record.failure.empty() && options_.ignore_eos && record.output_tokens != record.planned_output)
      record.failure = fmt::format("{} tokens instead of {}", record.output_tokens, record.planned_output);
    ++ended_;
  }

  void client_ended() {
    if (--sending_ > 0) return;
    records_.resize(next_);  // the rest was never sent
    ticker_.cancel();
  }

  asio::awaitable<void> tick() {
    while (sending_ > 0) {
      ticker_.expires_after(std::chrono::seconds(1));
      boost::system::error_code cancelled;
      co_await ticker_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
      if (sending_ > 0) progress_(ended_, static_cast<int>(next_));
    }
  }

  bool over() const { return options_.duration > 0 && seconds() >= options_.duration; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  const char* endpoint() const { return options_.prompts == PromptKind::kChat ? "/chat/completions" : "/completions"; }

  static RequestRecord planned_record(const PlannedRequest& planned) {
    RequestRecord record;
    record.planned_input = planned.input_tokens;
    record.planned_output = planned.output_tokens;
    return record;
  }

  std::string request_body(const Workload& workload, size_t i) const {
    nlohmann::json body = {{"model", options_.model},
                           {"max_tokens", workload.requests[i].output_tokens},
                           {"temperature", 0},
                           {"stream", true},
                           {"stream_options", {{"include_usage", true}}}};
    if (options_.ignore_eos) body["ignore_eos"] = true;
    switch (options_.prompts) {
      case PromptKind::kTokens:
        body["prompt"] = prompt_tokens(workload, i, options_.first_id, options_.last_id);
        break;
      case PromptKind::kText:
        body["prompt"] = prompt_words(workload, i);
        break;
      case PromptKind::kChat:
        body["messages"] = {{{"role", "user"}, {"content", prompt_words(workload, i)}}};
        break;
    }
    if (options_.extra.is_object()) body.update(options_.extra);
    return body.dump();
  }

  const Workload& workload_;
  LoadOptions& options_;
  std::function<void(int, int)> progress_;
  asio::io_context io_{1};
  std::vector<std::unique_ptr<LoadClient>> clients_;  // of each server
  asio::steady_timer ticker_;
  Clock::time_point start_ = Clock::now();
  std::vector<RequestRecord> records_;
  size_t next_ = 0;  // request to send next
  int sending_ = 0;  // coroutines still sending or waiting
  int ended_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<RequestRecord> run_load(const Workload& workload, LoadOptions& options,
                                    const std::function<void(int ended, int sent)>& progress) {
  return LoadRun(workload, options, progress).run();
}

}  // namespace quire
