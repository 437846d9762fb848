// From a request's bytes to what the engine is to do: routes, requests, and everything about them that is not HTTP.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/admission.h"
#include "server/api/answer.h"
#include "server/api/completer.h"
#include "server/api/exchange.h"
#include "server/api/metrics.h"

namespace quire {

struct ServiceOptions {
  std::vector<std::string> model_names;   // served names, the first leads; empty: after what the engine loaded
  int max_running = 64;                   // answers the engine works on at the same time
  int max_queue = 256;                    // answers that may wait behind them; more: 429
  std::string metrics_prefix = "quire:";  // "vllm:" makes its dashboards work
  std::string version = "unknown";        // of the program
  bool needs_key = false;                 // what /openapi.json says; Connection asks for the key
};

// A whole answer to a simple request.
struct Reply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Reply error_reply(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);

enum class Endpoint : uint8_t {
  kHome,
  kHealth,
  kReady,
  kVersion,
  kOpenApi,
  kTokenizerInfo,
  kMetrics,
  kModels,
  kModel,
  kApi
};

struct Route {
  Endpoint endpoint = Endpoint::kHealth;
  Api api = Api::kChat;   // with kApi
  std::string_view name;  // of metrics: "/v1/models/{id}"
  std::string argument;   // kModel: the id; kHome: the server's URL
};

// For probes, Prometheus and people who look what runs here. Every other path, known or not, needs a key if any does.
bool needs_no_key(std::string_view path);

// The path of a request's target, decoded: of "/v1/models?x", and of "http://host/v1/models", as proxies are asked.
std::string path_of_target(std::string_view target);
// What the errors of a path look like.
ErrorShape error_shape_of(std::string_view path);

// What an Exchange is to do.
struct Job {
  std::unique_ptr<Answer> answer = nullptr;
  bool stream = false;
  int choices = 0;  // of all requests; none: the answer is there already
  std::vector<Request> requests = {};
  size_t prompt_bytes = 0;  // that the engine gives of the prompts at once
  Places places = {};       // of the choices
};

// Thread-safe.
class Service {
 public:
  Service(Completer& completer, ServiceOptions options);

  // Throws ApiError: 404, or 405 with the allowed methods in `allow`.
  Route route(std::string_view method, std::string_view path, std::string& allow) const;

  // GET endpoints. Throws ApiError.
  Reply reply(const Route& route, bool stopping) const;

  // POST endpoints: parses, renders, tokenizes. Takes time that grows with the body. Throws ApiError.
  Job prepare(Api api, std::string_view body);

  Completer& completer() const { return completer_; }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  const std::shared_ptr<Admission>& admission() const { return admission_; }

 private:
  ApiLimits limits() const;
  Places admit(int choices);
  Job generation(const ApiRequest& request);
  Job tokenization(const ApiRequest& request) const;
  Job detokenization(const ApiRequest& request) const;
  TokenIds encode(const ApiRequest& request, size_t prompt) const;
  TokenIds fitting_prompt(const ApiRequest& request, size_t prompt, std::vector<std::string>& echo) const;
  void log_once(const std::vector<std::string>& names);
  Json model_json(const std::string& name) const;

  Completer& completer_;
  ServiceOptions options_;
  int64_t started_;
  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<Admission> admission_;
  std::mutex mutex_;
  std::set<std::string> logged_;  // fields without effect
};

uint64_t random_u64();
int64_t unix_seconds();

}  // namespace quire
