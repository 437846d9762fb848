#include "server/otlp/request_span.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "json/parse.h"

namespace quire {
namespace {

// Values of the protocol's enumerations.
constexpr int kServer = 2, kFailed = 2;
// The client's span is another process's; flags have that in bits 8 and 9, and "sampled" in bit 0.
constexpr int kSampled = 1, kKnownRemote = 0x100, kRemote = 0x200;
constexpr size_t kMostAnswer = 1 << 16;

template <size_t N>
std::array<uint8_t, N> random_bytes() {
  thread_local std::random_device device;
  std::array<uint8_t, N> bytes{};
  for (size_t i = 0; i < N; i += 4) {
    const uint32_t word = device();
    for (size_t j = 0; j < 4; ++j) bytes[i + j] = static_cast<uint8_t>(word >> 8 * j);
  }
  if (std::ranges::count(bytes, 0) == static_cast<std::ptrdiff_t>(N)) bytes[0] = 1;  // an id of zeros is invalid
  return bytes;
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// 64-bit numbers are strings in protobuf's JSON.
Json value(int64_t number) { return {{"intValue", std::to_string(number)}}; }
Json value(double number) { return {{"doubleValue", number}}; }
Json value(const std::string& text) { return {{"stringValue", text}}; }
Json value(const std::vector<std::string>& texts) {
  Json values = Json::array();
  for (const std::string& text : texts) values.push_back(value(text));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

class Attributes {
 public:
  template <class T>
  void add(std::string_view key, const T& it) {
    list_.push_back({{"key", key}, {"value", value(it)}});
  }
  void add(std::string_view key, int it) { add(key, int64_t{it}); }
  void add_latency(std::string_view key, double seconds) {
    if (seconds >= 0) add(key, seconds);
  }
  Json take() { return std::move(list_); }

 private:
  Json list_ = Json::array();
};

std::string_view operation_of(std::string_view route) {
  if (route.find("embed") != route.npos) return "embeddings";
  if (route.find("chat") != route.npos || route.find("messages") != route.npos || route.find("responses") != route.npos)
    return "chat";
  return "text_completion";
}

Json attributes_of(const RequestSpan& s) {
  Attributes a;
  a.add("gen_ai.operation.name", std::string(operation_of(s.route)));
  a.add("gen_ai.request.id", s.request_id);
  a.add("gen_ai.request.model", s.model);
  a.add("gen_ai.response.model", s.model);
  a.add("gen_ai.request.n", s.choices);
  a.add("gen_ai.usage.num_sequences", s.choices);
  if (s.max_tokens > 0) a.add("gen_ai.request.max_tokens", s.max_tokens);
  a.add("gen_ai.request.temperature", s.temperature);
  a.add("gen_ai.request.top_p", s.top_p);
  // vLLM's names, then those of the current conventions.
  a.add("gen_ai.usage.prompt_tokens", s.prompt_tokens);
  a.add("gen_ai.usage.completion_tokens", s.completion_tokens);
  a.add("gen_ai.usage.input_tokens", s.prompt_tokens);
  a.add("gen_ai.usage.output_tokens", s.completion_tokens);
  a.add("gen_ai.usage.cache_read.input_tokens", s.cached_tokens);
  if (s.accepted_tokens > 0) a.add("quire.usage.accepted_tokens", s.accepted_tokens);
  if (!s.finish_reasons.empty()) a.add("gen_ai.response.finish_reasons", s.finish_reasons);
  a.add_latency("gen_ai.latency.time_in_queue", s.queue);
  a.add_latency("gen_ai.latency.time_to_first_token", s.ttft);
  a.add_latency("gen_ai.latency.time_in_model_prefill", s.prefill);
  a.add_latency("gen_ai.latency.time_in_model_decode", s.decode);
  a.add_latency("gen_ai.latency.time_in_model_inference", s.inference);
  a.add_latency("gen_ai.latency.e2e", static_cast<double>(s.ended - s.began) * 1e-9);
  a.add("http.route", s.route);
  a.add("http.response.status_code", s.status);
  if (s.status >= 400) a.add("error.type", std::to_string(s.status));
  return a.take();
}

Json span_json(const RequestSpan& s) {
  Json span = {{"traceId", hex(s.trace)}, {"spanId", hex(s.id)}};
  if (s.parent) span["parentSpanId"] = hex(*s.parent);
  if (!s.state.empty()) span["traceState"] = s.state;
  span["flags"] = kSampled | kKnownRemote | (s.parent ? kRemote : 0);
  span["name"] = "llm_request";
  span["kind"] = kServer;
  span["startTimeUnixNano"] = std::to_string(s.began);
  span["endTimeUnixNano"] = std::to_string(s.ended);
  span["attributes"] = attributes_of(s);
  if (s.failed) span["status"] = {{"code", kFailed}};
  return span;
}

}  // namespace

TraceId new_trace_id() { return random_bytes<16>(); }
SpanId new_span_id() { return random_bytes<8>(); }

std::string spans_json(std::span<const RequestSpan> spans, std::string_view service, std::string_view version) {
  Attributes resource;
  resource.add("service.name", std::string(service));
  resource.add("service.version", std::string(version));
  Json list = Json::array();
  for (const RequestSpan& span : spans) list.push_back(span_json(span));
  Json scope = {{"scope", {{"name", "quire.server"}, {"version", version}}}, {"spans", std::move(list)}};
  Json all = {{"resource", {{"attributes", resource.take()}}}, {"scopeSpans", Json::array({std::move(scope)})}};
  const Json body = {{"resourceSpans", Json::array({std::move(all)})}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t refused_spans(std::string_view answer) {
  if (answer.size() > kMostAnswer) return 0;
  try {
    const Json json = parse_json(answer, "the collector's answer");
    if (!json.is_object() || !json.contains("partialSuccess")) return 0;
    const Json& partial = json["partialSuccess"];
    if (!partial.is_object() || !partial.contains("rejectedSpans")) return 0;
    const Json& refused = partial["rejectedSpans"];
    const int64_t count = refused.is_string() ? std::stoll(refused.get<std::string>()) : refused.get<int64_t>();
    return std::max<int64_t>(count, 0);
  } catch (const std::exception&) {  // no JSON, or no number: it was accepted
    return 0;
  }
}

}  // namespace quire
