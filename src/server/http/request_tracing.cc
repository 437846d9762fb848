#include "server/http/request_tracing.h"

#include <algorithm>
#include <chrono>

#include "server/api/metrics.h"
#include "server/http/current_request.h"
#include "server/otlp/span_exporter.h"

namespace quire {
namespace {

using std::chrono::duration_cast;
using Nanoseconds = std::chrono::nanoseconds;

int64_t now_since_1970() {
  return duration_cast<Nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::unique_ptr<RequestSpan> begin_span(const HttpRequest& header) {
  auto span = std::make_unique<RequestSpan>();
  // More than one header is malformed, too.
  const auto parent =
      header.count("traceparent") == 1 ? parse_traceparent(header["traceparent"]) : std::optional<TraceContext>();
  if (parent && !parent->sampled) return nullptr;
  span->began = now_since_1970();
  span->trace = parent ? parent->trace : new_trace_id();
  span->id = new_span_id();
  if (!parent) return span;
  span->parent = parent->parent;
  if (const std::string_view state = header["tracestate"]; header.count("tracestate") == 1 && is_tracestate(state))
    span->state = state;
  return span;
}

void describe(RequestSpan& span, std::span<const Request> requests, std::string_view model) {
  span.model = model;
  for (const Request& request : requests) {
    const SamplingParams& sampling = request.sampling;
    span.choices += sampling.n;
    span.max_tokens = sampling.max_tokens.value_or(0);
    span.temperature = static_cast<double>(sampling.temperature);
    span.top_p = static_cast<double>(sampling.top_p);
  }
}

void note_end(RequestSpan& span, const Output& output) {
  const Usage& usage = output.usage;
  span.accepted_tokens += usage.accepted_tokens;
  span.failed |= output.finish == FinishReason::kError || output.finish == FinishReason::kLost ||
                 output.finish == FinishReason::kTimeout;
  if (span.finish_reasons.size() < RequestSpan::kMostReasons)
    span.finish_reasons.emplace_back(finished_reason(output.finish));
  // Of several choices, the latest counts: the request waits for it.
  span.queue = std::max(span.queue, usage.queue_seconds);
  if (usage.completion_tokens == 0) return;
  span.prefill = std::max(span.prefill, usage.ttft_seconds - usage.queue_seconds);
  span.decode = std::max(span.decode, usage.seconds - usage.ttft_seconds);
  span.inference = std::max(span.inference, usage.seconds - usage.queue_seconds);
}

void export_span(CurrentRequest& request, const ConnectionContext& context) {
  if (!request.span || !request.exchange) return;
  RequestSpan& span = *request.span;
  // Wall clocks jump; the duration is the steady one's.
  span.ended = span.began + duration_cast<Nanoseconds>(CurrentRequest::Clock::now() - request.started).count();
  span.request_id = request.id;
  span.route = request.route;
  span.prompt_tokens = request.prompt_tokens;
  span.cached_tokens = request.cached_tokens;
  span.completion_tokens = request.completion_tokens;
  if (request.first_token) span.ttft = std::chrono::duration<double>(*request.first_token - request.started).count();
  span.status = logged_status(request);
  // A client that left in the middle of a stream has seen a status, but no end.
  if (span.finish_reasons.empty()) span.finish_reasons.emplace_back(finished_reason(FinishReason::kCancelled));
  span.failed |= request.status == 0 || request.status >= 500;
  context.spans->add(std::move(span));
  request.span.reset();
}

}  // namespace quire
