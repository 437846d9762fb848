#include "server/api/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace quire {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// vLLM's bucket boundaries, so that its dashboards and alerts work.
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

// A value from EngineStats, exported when Prometheus scrapes.
struct EngineMetric {
  std::string name, help;
  bool counts;  // a counter; otherwise a gauge
  double (*value)(const EngineStats&);
  std::string label = {}, label_value = {};
};
constexpr const char* kLostPages =
    "Pages lost by the page store's disk: the writer fell behind, a write failed, or a file was damaged.";
const EngineMetric kEngineMetrics[] = {
    {"num_requests_running", "Sequences in the running batch.", false,
     [](const EngineStats& s) -> double { return s.running; }},
    {"num_requests_waiting", "Sequences waiting to run.", false,
     [](const EngineStats& s) -> double { return s.waiting; }},
    {"kv_cache_usage_perc", "Fraction of the KV cache used by running sequences; 1 is full.", false,
     [](const EngineStats& s) { return s.kv_pages > 0 ? static_cast<double>(s.kv_pages_used) / s.kv_pages : 0; }},
    {"kv_cache_idle_perc", "Fraction of the KV cache kept for future prompts and evicted when needed.", false,
     [](const EngineStats& s) { return s.kv_pages > 0 ? static_cast<double>(s.kv_pages_idle) / s.kv_pages : 0; }},
    {"num_preemptions_total", "Preempted sequences.", true,
     [](const EngineStats& s) { return static_cast<double>(s.preemptions); }},
    {"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", true,
     [](const EngineStats& s) { return static_cast<double>(s.prefix_query_tokens); }},
    {"prefix_cache_hits_total", "Prompt tokens found in the prefix cache or the page store.", true,
     [](const EngineStats& s) { return static_cast<double>(s.prefix_hit_tokens); }},
    {"prefix_cache_evicted_pages_total", "Evicted idle pages.", true,
     [](const EngineStats& s) { return static_cast<double>(s.pages_evicted); }},
    {"prefix_cache_stored_ahead_pages_total", "Idle pages stored while a step ran, before they had to be evicted.",
     true, [](const EngineStats& s) { return static_cast<double>(s.pages_stored_ahead); }},
    {"page_store_loaded_pages_total", "Pages read back from the page store.", true,
     [](const EngineStats& s) { return static_cast<double>(s.pages_loaded); }},
    {"page_store_pages", "Pages in the page store.", false,
     [](const EngineStats& s) { return static_cast<double>(s.store_host_pages); }, "tier", "host"},
    {"page_store_pages", "Pages in the page store.", false,
     [](const EngineStats& s) { return static_cast<double>(s.store_disk_pages); }, "tier", "disk"},
    {"page_store_lost_pages_total", kLostPages, true,
     [](const EngineStats& s) { return static_cast<double>(s.store_dropped); }, "reason", "dropped"},
    {"page_store_lost_pages_total", kLostPages, true,
     [](const EngineStats& s) { return static_cast<double>(s.store_write_failures); }, "reason", "write_failure"},
    {"page_store_lost_pages_total", kLostPages, true,
     [](const EngineStats& s) { return static_cast<double>(s.store_damaged); }, "reason", "damaged"},
    {"shared_cache_hits_total", "Pages read from the shared cache.", true,
     [](const EngineStats& s) { return static_cast<double>(s.shared_hits); }},
    {"shared_cache_misses_total", "Pages that the shared cache was asked for and did not have.", true,
     [](const EngineStats& s) { return static_cast<double>(s.shared_misses); }},
    {"shared_cache_read_bytes_total", "Bytes of pages read from the shared cache.", true,
     [](const EngineStats& s) { return static_cast<double>(s.shared_read_bytes); }},
    {"shared_cache_written_bytes_total", "Bytes of pages written to the shared cache.", true,
     [](const EngineStats& s) { return static_cast<double>(s.shared_written_bytes); }},
    {"shared_cache_errors_total", "Failures of the shared cache: time-outs, lost connections, refused pages.", true,
     [](const EngineStats& s) { return static_cast<double>(s.shared_errors); }},
    {"engine_steps_total", "Steps: that only decode, and with prompt chunks.", true,
     [](const EngineStats& s) { return static_cast<double>(s.decode_steps); }, "phase", "decode"},
    {"engine_steps_total", "Steps: that only decode, and with prompt chunks.", true,
     [](const EngineStats& s) { return static_cast<double>(s.prompt_steps); }, "phase", "prompt"},
    {"engine_step_seconds_total", "Time spent in steps.", true, [](const EngineStats& s) { return s.decode_seconds; },
     "phase", "decode"},
    {"engine_step_seconds_total", "Time spent in steps.", true, [](const EngineStats& s) { return s.prompt_seconds; },
     "phase", "prompt"},
    {"forced_tokens_total", "Generated tokens that structured output left no choice about, so they were not sampled.",
     true, [](const EngineStats& s) { return static_cast<double>(s.forced_tokens); }},
    {"expert_hits_total", "Experts that a layer's step found in memory, if not all are there.", true,
     [](const EngineStats& s) { return static_cast<double>(s.expert_hits); }},
    {"expert_reads_total", "Experts that a layer's step had to read from the file of experts.", true,
     [](const EngineStats& s) { return static_cast<double>(s.expert_reads); }},
    {"expert_read_bytes_total", "Bytes of them.", true,
     [](const EngineStats& s) { return static_cast<double>(s.expert_read_bytes); }},
    {"expert_read_seconds_total", "Time during which at least one of them was being read.", true,
     [](const EngineStats& s) { return s.expert_read_seconds; }},
    {"expert_wait_seconds_total", "Time that steps waited for them.", true,
     [](const EngineStats& s) { return s.expert_wait_seconds; }},
    {"rank_gathered_bytes_total", "Bytes of results that the first rank received from the others.", true,
     [](const EngineStats& s) { return static_cast<double>(s.gathered_bytes); }},
    {"stage_sent_bytes_total", "Bytes of rows that the pipeline stages of this process sent to the next ones.", true,
     [](const EngineStats& s) { return static_cast<double>(s.stage_bytes); }},
    {"moved_expert_bytes_total", "Bytes of rows that went from the GPU to experts on the CPU, and back.", true,
     [](const EngineStats& s) { return static_cast<double>(s.moved_expert_bytes); }},
    {"engine_ahead_steps_total", "Steps that were started on a GPU while the last one ran.", true,
     [](const EngineStats& s) { return static_cast<double>(s.ahead_steps); }},
    {"logits_downloaded_bytes_total", "Bytes of logits that steps brought from the GPU to the host, which samples.",
     true, [](const EngineStats& s) { return static_cast<double>(s.logits_bytes); }},
    {"decode_read_bytes_total", "Bytes of weights, keys and values read by steps that only decode.", true,
     [](const EngineStats& s) { return s.decode_bytes; }},
};

// Of one drafter. Most have vLLM's names.
struct DrafterMetric {
  std::string name, help;
  double (*value)(const DrafterStats&);
};
double sum(std::span<const uint64_t> counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
}
const DrafterMetric kDrafterMetrics[] = {
    {"spec_decode_num_drafts_total", "Verified drafts.",
     [](const DrafterStats& d) { return static_cast<double>(d.drafted[0]); }},
    {"spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.",
     [](const DrafterStats& d) { return sum(d.drafted); }},
    {"spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.",
     [](const DrafterStats& d) { return sum(d.accepted); }},
    {"spec_decode_draft_seconds_total", "Time spent drafting, whether the drafts were verified or not.",
     [](const DrafterStats& d) { return d.seconds; }},
    {"spec_decode_drafter_errors_total", "Times that a drafter failed; the answers went on without its drafts.",
     [](const DrafterStats& d) { return static_cast<double>(d.errors); }},
};

constexpr std::string_view kDefaultPrefix = "quire:";

// Kubernetes' Gateway API inference extension and llm-d look for these under vLLM's names, unless told otherwise
// (gateway-api-inference-extension, proposal 003: model server protocol).
void add_router_names(std::vector<prometheus::MetricFamily>& families) {
  for (const std::string_view name : {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                                      "cache_config_info", "lora_requests_info"}) {
    const auto ours =
        std::ranges::find(families, fmt::format("{}{}", kDefaultPrefix, name), &prometheus::MetricFamily::name);
    if (ours == families.end()) continue;
    prometheus::MetricFamily theirs = *ours;
    theirs.name = fmt::format("vllm:{}", name);
    families.push_back(std::move(theirs));
  }
}

}  // namespace

std::string_view finished_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kDeadEnd:
      return "dead_end";
    case FinishReason::kRefused:
      return "refused";
    case FinishReason::kError:
    case FinishReason::kLost:
      return "error";
    case FinishReason::kTimeout:
      return "timeout";
    default:
      return "abort";
  }
}

namespace {

using prometheus::Labels;

// A counter that follows one of an engine, which starts at 0 again when its model is loaded again.
struct FollowingCounter {
  prometheus::Counter* counter;
  double before = 0;  // counted by earlier engines

  void follow(double value) {
    if (const double more = before + value - counter->Value(); more > 0) counter->Increment(more);
  }
  void keep() { before = counter->Value(); }
};

}  // namespace

struct ModelMetrics::Series {
  Series(std::shared_ptr<prometheus::Registry> all, std::string given_prefix, const std::string& model,
         const ModelInfo& info)
      : registry(std::move(all)), prefix(std::move(given_prefix)), labels{{"model_name", model}} {
    prompt_tokens = &counter("prompt_tokens_total", "Prompt tokens of admitted requests.");
    generation_tokens = &counter("generation_tokens_total", "Generated tokens.");
    rejected = &counter("request_rejected_total", "Requests refused because the queue was full.");
    first_token = &histogram("time_to_first_token_seconds", "From submit to the first token.", kFirstToken);
    next_token = &histogram("inter_token_latency_seconds", "Between tokens of one answer.", kNextToken);
    per_token = &histogram("request_time_per_output_token_seconds",
                           "Mean time per token after the first, of each answer.", kNextToken);
    queue = &histogram("request_queue_time_seconds", "From submit to the first step.", kWholeRequest);
    prefill = &histogram("request_prefill_time_seconds", "From the first step to the first token.", kWholeRequest);
    decode = &histogram("request_decode_time_seconds", "From the first token to the last.", kWholeRequest);
    inference = &histogram("request_inference_time_seconds", "From the first step to the last token.", kWholeRequest);
    whole = &histogram("e2e_request_latency_seconds", "From submit to the last token.", kWholeRequest);
    prompt_length =
        &histogram("request_prompt_tokens", "Prompt tokens of each answer.", one_two_five(info.max_model_len));
    answer_length =
        &histogram("request_generation_tokens", "Generated tokens of each answer.", one_two_five(info.max_model_len));
    for (const auto reason :
         {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled, FinishReason::kTimeout,
          FinishReason::kDeadEnd, FinishReason::kRefused, FinishReason::kError, FinishReason::kLost}) {
      ended[static_cast<size_t>(reason)] = &counter("request_success_total", "Ended answers.",
                                                    {{"finished_reason", std::string(finished_reason(reason))}});
    }
    for (const EngineMetric& metric : kEngineMetrics) {
      Labels more;
      if (!metric.label.empty()) more.emplace(metric.label, metric.label_value);
      if (metric.counts) {
        counted.emplace_back(&metric, FollowingCounter{&counter(metric.name, metric.help, more)});
      } else {
        gauged.emplace_back(&metric, &gauge(metric.name, metric.help, more));
      }
    }
    loaded = &gauge("model_loaded", "1 while the model is loaded, 0 otherwise.");
    gauge("cache_config_info", "The KV cache: data type, tokens per page, pages, bytes per token; always 1.",
          {{"cache_dtype", info.kv_cache_dtype},
           {"block_size", std::to_string(info.page_tokens)},
           {"num_gpu_blocks", std::to_string(info.kv_pages / std::max(1, info.kv_groups))},
           {"bytes_per_token", std::to_string(info.kv_bytes_per_token)}})
        .Set(1);
    max_adapters = info.max_adapters;
    adapters_info = &prometheus::BuildGauge()
                         .Name(prefix + "lora_requests_info")
                         .Help("The adapters in memory, and how many there may be; the value is the time.")
                         .Register(*registry);
  }

  Labels with(const Labels& more) const {
    Labels all = labels;
    all.insert(more.begin(), more.end());
    return all;
  }
  prometheus::Counter& counter(const std::string& name, const std::string& help, const Labels& more = {}) {
    return prometheus::BuildCounter().Name(prefix + name).Help(help).Register(*registry).Add(with(more));
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help, const Labels& more = {}) {
    return prometheus::BuildGauge().Name(prefix + name).Help(help).Register(*registry).Add(with(more));
  }
  prometheus::Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(prefix + name).Help(help).Register(*registry).Add(labels, buckets);
  }
  // By name and labels, so that the counters of a drafter are there once it has drafted.
  FollowingCounter& drafted(const std::string& name, const std::string& help, const Labels& more) {
    prometheus::Counter& wanted = counter(name, help, more);
    const auto known = std::ranges::find(drafters, &wanted, &FollowingCounter::counter);
    if (known != drafters.end()) return *known;
    drafters.push_back({&wanted});
    return drafters.back();
  }

  void set(const DrafterStats& drafter);
  void set(std::span<const std::string> adapters);

  const std::shared_ptr<prometheus::Registry> registry;
  const std::string prefix;
  const Labels labels;
  prometheus::Counter *prompt_tokens, *generation_tokens, *rejected;
  std::array<prometheus::Counter*, static_cast<size_t>(FinishReason::kLost) + 1> ended{};  // none for kNone
  prometheus::Histogram *first_token, *next_token, *per_token, *whole, *queue, *prefill, *decode, *inference,
      *prompt_length, *answer_length;
  prometheus::Gauge* loaded;
  int max_adapters;
  prometheus::Family<prometheus::Gauge>* adapters_info;  // of all models
  std::mutex setting;                                    // guards the following
  prometheus::Gauge* adapters = nullptr;                 // this model's, with the adapters of now
  std::vector<std::pair<const EngineMetric*, FollowingCounter>> counted;
  std::vector<std::pair<const EngineMetric*, prometheus::Gauge*>> gauged;
  std::vector<FollowingCounter> drafters;
};

ModelMetrics::ModelMetrics(std::unique_ptr<Series> series) : series_(std::move(series)) {}
ModelMetrics::~ModelMetrics() = default;

void ModelMetrics::prompt_admitted(int tokens) { series_->prompt_tokens->Increment(tokens); }

void ModelMetrics::tokens_generated(int tokens, double since_previous) {
  if (tokens <= 0) return;
  series_->generation_tokens->Increment(tokens);
  if (since_previous < 0) return;
  for (int i = 0; i < tokens; ++i) series_->next_token->Observe(since_previous / tokens);
}

void ModelMetrics::choice_finished(const Output& output) {
  const Usage& usage = output.usage;
  series_->ended[static_cast<size_t>(output.finish)]->Increment();
  if (output.finish != FinishReason::kStop && output.finish != FinishReason::kLength) return;
  series_->prompt_length->Observe(usage.prompt_tokens);
  series_->whole->Observe(usage.seconds);
  series_->queue->Observe(usage.queue_seconds);
  series_->inference->Observe(usage.seconds - usage.queue_seconds);
  if (usage.completion_tokens == 0) return;  // an embedding, or log-probabilities of the prompt only
  series_->first_token->Observe(usage.ttft_seconds);
  series_->prefill->Observe(usage.ttft_seconds - usage.queue_seconds);
  series_->decode->Observe(usage.seconds - usage.ttft_seconds);
  series_->answer_length->Observe(usage.completion_tokens);
  if (usage.completion_tokens > 1) {
    series_->per_token->Observe((usage.seconds - usage.ttft_seconds) / (usage.completion_tokens - 1));
  }
}

void ModelMetrics::request_rejected() { series_->rejected->Increment(); }

void ModelMetrics::Series::set(const DrafterStats& drafter) {
  const std::string name(drafter.name);
  for (const DrafterMetric& metric : kDrafterMetrics)
    drafted(metric.name, metric.help, {{"drafter", name}}).follow(metric.value(drafter));
  for (size_t i = 0; i < drafter.drafted.size() && drafter.drafted[i] > 0; ++i) {
    drafted("spec_decode_num_accepted_tokens_per_pos_total",
            "Drafted tokens that were right, by their place in the draft.",
            {{"drafter", name}, {"position", std::to_string(i)}})
        .follow(static_cast<double>(drafter.accepted[i]));
  }
}

// A change of the adapters changes the labels, so the gauge is replaced. None waits: a request for an adapter that is not in
// memory is refused.
void ModelMetrics::Series::set(std::span<const std::string> names) {
  const auto most = std::max(max_adapters, static_cast<int>(names.size()));
  prometheus::Gauge& now = adapters_info->Add(with({{"max_lora", std::to_string(most)},
                                                    {"running_lora_adapters", fmt::format("{}", fmt::join(names, ","))},
                                                    {"waiting_lora_adapters", ""}}));
  if (adapters && adapters != &now) adapters_info->Remove(adapters);
  adapters = &now;
  adapters->SetToCurrentTime();
}

void ModelMetrics::set(const EngineStats& engine, std::span<const std::string> adapters) {
  const std::lock_guard lock(series_->setting);
  series_->loaded->Set(1);
  series_->set(adapters);
  for (const auto& [metric, gauge] : series_->gauged) gauge->Set(metric->value(engine));
  for (auto& [metric, counter] : series_->counted) counter.follow(metric->value(engine));
  for (const DrafterStats& drafter : engine.drafters) series_->set(drafter);
}

void ModelMetrics::unloaded() {
  const std::lock_guard lock(series_->setting);
  series_->loaded->Set(0);
  series_->set(std::span<const std::string>());
  for (const auto& [metric, gauge] : series_->gauged) gauge->Set(0);
  for (auto& [metric, counter] : series_->counted) counter.keep();
  for (FollowingCounter& counter : series_->drafters) counter.keep();
}

namespace {

// Of the batches of a server.
class BatchSeries {
 public:
  BatchSeries(prometheus::Registry& registry, const std::string& prefix, std::shared_ptr<const BatchCounts> counts)
      : counts_(std::move(counts)) {
    auto& open = prometheus::BuildGauge()
                     .Name(prefix + "batches")
                     .Help("Batches that have not ended, by their status.")
                     .Register(registry);
    for (const std::string_view state : kOpenBatchStates) open_.push_back(&open.Add({{"status", std::string(state)}}));
    auto& ended = prometheus::BuildCounter()
                      .Name(prefix + "batches_ended_total")
                      .Help("Batches that have ended, by their status.")
                      .Register(registry);
    for (const std::string_view state : kEndedBatchStates)
      ended_.push_back({&ended.Add({{"status", std::string(state)}})});
    const auto gauge = [&](const char* name, const char* help) {
      return &prometheus::BuildGauge().Name(prefix + name).Help(help).Register(registry).Add({});
    };
    running_ = gauge("batch_requests_running", "Requests of batches that are being answered.");
    waiting_ = gauge("batch_requests_waiting", "Requests of checked batches that wait to be answered.");
    auto& requests = prometheus::BuildCounter()
                         .Name(prefix + "batch_requests_total")
                         .Help("Requests of batches that have a result, by its kind.")
                         .Register(registry);
    completed_.counter = &requests.Add({{"result", "completed"}});
    failed_.counter = &requests.Add({{"result", "failed"}});
  }

  void update() {
    for (size_t state = 0; state < open_.size(); ++state) open_[state]->Set(static_cast<double>(counts_->open[state]));
    for (size_t state = 0; state < ended_.size(); ++state)
      ended_[state].follow(static_cast<double>(counts_->ended[state]));
    running_->Set(static_cast<double>(counts_->running));
    waiting_->Set(static_cast<double>(counts_->waiting));
    completed_.follow(static_cast<double>(counts_->completed));
    failed_.follow(static_cast<double>(counts_->failed));
  }

 private:
  const std::shared_ptr<const BatchCounts> counts_;
  std::vector<prometheus::Gauge*> open_;
  std::vector<FollowingCounter> ended_;
  prometheus::Gauge *running_, *waiting_;
  FollowingCounter completed_{nullptr}, failed_{nullptr};
};

}  // namespace

struct Metrics::Series {
  Series(const std::string& given_prefix, double bandwidth, std::shared_ptr<const SpanCounts> span_counts,
         std::shared_ptr<const KvEventCounts> event_counts, std::shared_ptr<const BatchCounts> batch_counts)
      : prefix(given_prefix),
        read_bandwidth(bandwidth),
        spans(std::move(span_counts)),
        events(std::move(event_counts)) {
    if (events) {
      const auto counter = [&](const char* name, const char* help) {
        return &prometheus::BuildCounter().Name(prefix + name).Help(help).Register(*registry).Add({});
      };
      event_batches.counter = counter("kv_event_batches_total", "Messages with KV events.");
      lost_events.counter =
          counter("kv_events_lost_total", "Times that KV events were dropped and subscribers told to forget.");
    }
    if (batch_counts) batches.emplace(*registry, prefix, std::move(batch_counts));
    if (spans) {
      auto& family = prometheus::BuildCounter()
                         .Name(prefix + "otlp_spans_total")
                         .Help("Spans of requests, by what became of them.")
                         .Register(*registry);
      for (const std::string_view fate : kSpanFateNames)
        exported.push_back({&family.Add({{"result", std::string(fate)}})});
    }
    http = &prometheus::BuildCounter()
                .Name(prefix + "http_requests_total")
                .Help("Answered HTTP requests.")
                .Register(*registry);
  }

  const std::string prefix;
  const double read_bandwidth;
  const std::shared_ptr<const SpanCounts> spans;
  const std::shared_ptr<const KvEventCounts> events;
  const std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  prometheus::Family<prometheus::Counter>* http;
  std::mutex exporting;
  std::vector<FollowingCounter> exported;                         // one for each SpanFate, if spans are counted
  FollowingCounter event_batches{nullptr}, lost_events{nullptr};  // set if KV events are counted
  std::optional<BatchSeries> batches;
};

Metrics::Metrics(const std::string& prefix, double read_bandwidth, std::shared_ptr<const SpanCounts> spans,
                 std::shared_ptr<const KvEventCounts> kv_events, std::shared_ptr<const BatchCounts> batches)
    : series_(std::make_unique<Series>(prefix, read_bandwidth, std::move(spans), std::move(kv_events),
                                       std::move(batches))) {}
Metrics::~Metrics() = default;

std::shared_ptr<ModelMetrics> Metrics::add_model(const std::string& model, const ModelInfo& info) {
  auto series = std::make_unique<ModelMetrics::Series>(series_->registry, series_->prefix, model, info);
  if (series_->read_bandwidth > 0) {
    series->gauge("read_bandwidth_limit_bytes_per_second", "Memory read bandwidth of this machine, measured at start.")
        .Set(series_->read_bandwidth);
  }
  return std::make_shared<ModelMetrics>(std::move(series));
}

void Metrics::http_answered(std::string_view route, int status) {
  series_->http->Add({{"handler", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

std::string Metrics::text() {
  const std::lock_guard lock(series_->exporting);
  if (series_->events) {
    series_->event_batches.follow(static_cast<double>(series_->events->batches));
    series_->lost_events.follow(static_cast<double>(series_->events->lost));
  }
  if (series_->batches) series_->batches->update();
  for (size_t fate = 0; fate < series_->exported.size(); ++fate)
    series_->exported[fate].follow(static_cast<double>(series_->spans->of(static_cast<SpanFate>(fate))));
  std::vector<prometheus::MetricFamily> families = series_->registry->Collect();
  if (series_->prefix == kDefaultPrefix) add_router_names(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire
