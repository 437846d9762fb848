#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <mutex>

namespace quire {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// vLLM's bucket boundaries, so that its dashboards and alerts fit.
const Buckets kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                             1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Buckets kNextToken = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                            0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kWholeRequest = {0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                               30.0, 40.0, 50.0, 60.0, 120., 240.0, 480.0, 960.0, 1920.0, 7680.0};

Buckets one_two_five(int most) {
  Buckets buckets;
  for (double decade = 1;; decade *= 10) {
    for (const double mantissa : {1, 2, 5}) {
      if (mantissa * decade > most) return buckets;
      buckets.push_back(mantissa * decade);
    }
  }
}

std::string_view finished_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
    default:
      return "abort";
  }
}

}  // namespace

struct Metrics::Series {
  Series(const std::string& model, int max_model_len, const std::string& prefix) : labels{{"model_name", model}} {
    const auto counter = [&](const char* name, const char* help) -> prometheus::Counter& {
      return prometheus::BuildCounter().Name(prefix + name).Help(help).Labels(labels).Register(registry).Add({});
    };
    const auto gauge = [&](const char* name, const char* help) -> prometheus::Gauge& {
      return prometheus::BuildGauge().Name(prefix + name).Help(help).Labels(labels).Register(registry).Add({});
    };
    const auto histogram = [&](const char* name, const char* help, const Buckets& buckets) -> prometheus::Histogram& {
      return prometheus::BuildHistogram()
          .Name(prefix + name)
          .Help(help)
          .Labels(labels)
          .Register(registry)
          .Add({}, buckets);
    };
    prompt_tokens = &counter("prompt_tokens_total", "Prompt tokens of admitted requests.");
    generation_tokens = &counter("generation_tokens_total", "Generated tokens.");
    preemptions = &counter("num_preemptions_total", "Sequences that gave up their pages to others.");
    rejected = &counter("request_rejected_total", "Requests refused because the queue was full.");
    running = &gauge("num_requests_running", "Sequences in the running batch.");
    waiting = &gauge("num_requests_waiting", "Sequences that wait to run.");
    kv_usage = &gauge("kv_cache_usage_perc", "Used part of the KV cache; 1 is full.");
    first_token = &histogram("time_to_first_token_seconds", "From submit to the first token.", kFirstToken);
    next_token = &histogram("inter_token_latency_seconds", "Between tokens of one answer.", kNextToken);
    per_token = &histogram("request_time_per_output_token_seconds",
                           "Mean time per token after the first, of each answer.", kNextToken);
    whole = &histogram("e2e_request_latency_seconds", "From submit to the last token.", kWholeRequest);
    prompt_length = &histogram("request_prompt_tokens", "Prompt tokens of each answer.", one_two_five(max_model_len));
    answer_length =
        &histogram("request_generation_tokens", "Generated tokens of each answer.", one_two_five(max_model_len));
    success = &prometheus::BuildCounter()
                   .Name(prefix + "request_success_total")
                   .Help("Ended answers.")
                   .Labels(labels)
                   .Register(registry);
    for (const auto reason :
         {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled, FinishReason::kError}) {
      success->Add({{"finished_reason", std::string(finished_reason(reason))}});
    }
    http = &prometheus::BuildCounter()
                .Name(prefix + "http_requests_total")
                .Help("Answered HTTP requests.")
                .Register(registry);
  }

  prometheus::Labels labels;
  prometheus::Registry registry;
  prometheus::Counter *prompt_tokens, *generation_tokens, *preemptions, *rejected;
  prometheus::Gauge *running, *waiting, *kv_usage;
  prometheus::Histogram *first_token, *next_token, *per_token, *whole, *prompt_length, *answer_length;
  prometheus::Family<prometheus::Counter>*success, *http;
  std::mutex scraping;
};

Metrics::Metrics(const std::string& model, int max_model_len, const std::string& prefix)
    : series_(std::make_unique<Series>(model, max_model_len, prefix)) {}
Metrics::~Metrics() = default;

void Metrics::prompt_admitted(int tokens) { series_->prompt_tokens->Increment(tokens); }

void Metrics::tokens_generated(int tokens, double since_previous) {
  if (tokens <= 0) return;
  series_->generation_tokens->Increment(tokens);
  if (since_previous < 0) return;
  for (int i = 0; i < tokens; ++i) series_->next_token->Observe(since_previous / tokens);
}

void Metrics::choice_finished(const Output& output) {
  const Usage& usage = output.usage;
  series_->success->Add({{"finished_reason", std::string(finished_reason(output.finish))}}).Increment();
  if (output.finish != FinishReason::kStop && output.finish != FinishReason::kLength) return;
  series_->whole->Observe(usage.seconds);
  series_->first_token->Observe(usage.ttft_seconds);
  series_->prompt_length->Observe(usage.prompt_tokens);
  series_->answer_length->Observe(usage.completion_tokens);
  if (usage.completion_tokens > 1) {
    series_->per_token->Observe((usage.seconds - usage.ttft_seconds) / (usage.completion_tokens - 1));
  }
}

void Metrics::http_answered(std::string_view route, int status) {
  series_->http->Add({{"handler", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::request_rejected() { series_->rejected->Increment(); }

std::string Metrics::scrape(const EngineStats& engine) {
  const std::lock_guard lock(series_->scraping);
  series_->running->Set(engine.running);
  series_->waiting->Set(engine.waiting);
  series_->kv_usage->Set(engine.kv_pages > 0 ? static_cast<double>(engine.kv_pages_used) / engine.kv_pages : 0);
  const double new_preemptions = static_cast<double>(engine.preemptions) - series_->preemptions->Value();
  if (new_preemptions > 0) series_->preemptions->Increment(new_preemptions);
  return prometheus::TextSerializer().Serialize(series_->registry.Collect());
}

}  // namespace quire
