#include "server/otlp/span_exporter.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/signals.h"
#include "base/text/quote.h"
#include "server/otlp/collector_client.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using ExporterClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr milliseconds kLongestBackOff{30'000};
constexpr size_t kShownAnswer = 200;  // bytes of a refusal in the log

bool is_temporary(const CollectorAnswer& answer) {
  constexpr std::array kTemporary = {0, 429, 502, 503, 504};
  return std::ranges::find(kTemporary, answer.status) != kTemporary.end();
}

bool accepted(const CollectorAnswer& answer) { return answer.status >= 200 && answer.status < 300; }

std::string reason_of(const CollectorAnswer& answer) {
  if (answer.status == 0) return answer.failure;
  const std::string_view body = std::string_view(answer.body).substr(0, kShownAnswer);
  return fmt::format("HTTP {}{}{}", answer.status, body.empty() ? "" : " ", body.empty() ? "" : quote(body));
}

}  // namespace

// Everything but add() happens on `thread`.
struct SpanExporter::State {
  State(SpanExporterOptions o, std::shared_ptr<SpanCounts> c)
      : options(std::move(o)),
        counts(std::move(c)),
        client(io, options.url, options.headers, options.timeout, options.resolve),
        wake(io),
        last_call(io) {}

  // ---- from any thread

  void add(RequestSpan span) {
    bool notify = false, lost = false;
    {
      const std::lock_guard lock(mutex);
      lost = waiting.size() >= options.most_waiting;
      if (!lost) {
        waiting.push_back(std::move(span));
        notify = waiting.size() == 1 || waiting.size() == options.batch;
      }
    }
    if (lost) return lose(SpanFate::kQueueFull, 1, "too many wait for it");
    if (notify) asio::post(io, [this] { wake.cancel(); });
  }

  void lose(SpanFate fate, uint64_t spans, const std::string& why) {
    if (spans == 0) return;
    counts->add(fate, spans);
    if (complained.exchange(true)) return;
    spdlog::warn(
        "spans of requests are dropped: {}: {} (further ones are only counted, as otlp_spans_total in /metrics)",
        options.url.authority, why);
  }

  // ---- on the thread

  std::vector<RequestSpan> take_batch() {
    const std::lock_guard lock(mutex);
    const auto count = static_cast<std::ptrdiff_t>(std::min(waiting.size(), options.batch));
    std::vector<RequestSpan> batch(std::make_move_iterator(waiting.begin()),
                                   std::make_move_iterator(waiting.begin() + count));
    waiting.erase(waiting.begin(), waiting.begin() + count);
    return batch;
  }

  size_t count_waiting() {
    const std::lock_guard lock(mutex);
    return waiting.size();
  }

  // Until the time, or stop(); add() may end it sooner.
  asio::awaitable<void> sleep_until(ExporterClock::time_point time) {
    if (stopping) co_return;
    wake.expires_at(time);
    co_await wake.async_wait(kNoThrow);
  }

  asio::awaitable<void> run() {
    while (!stopping || count_waiting() > 0) {
      while (!stopping && count_waiting() == 0) co_await sleep_until(ExporterClock::time_point::max());
      const auto full_at = ExporterClock::now() + options.delay;
      while (!stopping && ExporterClock::now() < full_at && count_waiting() < options.batch)
        co_await sleep_until(full_at);
      std::vector<RequestSpan> batch = take_batch();
      if (batch.empty()) continue;
      try {
        co_await send(batch);
      } catch (const std::exception& e) {  // out of memory
        lose(SpanFate::kUnreachable, batch.size(), e.what());
      }
    }
    last_call.cancel();
  }

  asio::awaitable<void> send(const std::vector<RequestSpan>& batch) {
    const std::string body = spans_json(batch, options.service, options.version);
    CollectorAnswer answer;
    milliseconds pause = options.first_pause;
    for (int attempt = 1;; ++attempt) {
      if (out_of_time) {
        answer = {.failure = "the server stops"};
      } else {
        answer = co_await client.post(body);
      }
      if (accepted(answer) || !is_temporary(answer) || attempt >= options.attempts || stopping) break;
      // Up to half as long again, so that servers that lost the collector together do not come back together.
      std::uniform_real_distribution<double> jitter(1, 1.5);
      milliseconds rest(static_cast<int64_t>(static_cast<double>(pause.count()) * jitter(random)));
      if (answer.retry_after) rest = std::max<milliseconds>(rest, *answer.retry_after);
      const auto again = ExporterClock::now() + rest;
      while (!stopping && ExporterClock::now() < again) co_await sleep_until(again);
      pause = std::min(pause * 2, kLongestBackOff);
    }
    if (!accepted(answer))
      co_return lose(answer.status != 0 && !is_temporary(answer) ? SpanFate::kRefused : SpanFate::kUnreachable,
                     batch.size(), reason_of(answer));
    const uint64_t refused = std::min<uint64_t>(static_cast<uint64_t>(refused_spans(answer.body)), batch.size());
    counts->add(SpanFate::kExported, batch.size() - refused);
    if (refused == 0) complained = false;
    lose(SpanFate::kRefused, refused, "it accepts a part of them only");
  }

  void stop() {
    stopping = true;
    wake.cancel();
    last_call.expires_after(options.last_time);
    last_call.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      out_of_time = true;
      client.abort();
    });
  }

  const SpanExporterOptions options;
  const std::shared_ptr<SpanCounts> counts;
  std::mutex mutex;
  std::deque<RequestSpan> waiting;
  std::atomic<bool> complained{false};  // since a batch was accepted

  asio::io_context io{1};
  CollectorClient client;
  asio::steady_timer wake, last_call;
  std::minstd_rand random{std::random_device{}()};
  bool stopping = false, out_of_time = false;
  std::thread thread;
};

SpanExporter::SpanExporter(SpanExporterOptions options, std::shared_ptr<SpanCounts> counts)
    : state_(std::make_unique<State>(std::move(options), std::move(counts))) {
  State& s = *state_;
  asio::co_spawn(s.io, s.run(), asio::detached);
  const BlockSignals leave_signals_to_the_caller;
  s.thread = std::thread([&s] { s.io.run(); });
}

SpanExporter::~SpanExporter() {
  asio::post(state_->io, [state = state_.get()] { state->stop(); });
  state_->thread.join();
}

void SpanExporter::add(RequestSpan span) { state_->add(std::move(span)); }

}  // namespace quire
