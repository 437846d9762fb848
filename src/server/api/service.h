// The API without HTTP: turns requests into work for the engine, and answers the GET endpoints.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/working_memory.h"
#include "server/api/admission.h"
#include "server/api/answer.h"
#include "server/api/chat_format.h"
#include "server/api/completer.h"
#include "server/api/exchange.h"
#include "server/api/metrics.h"
#include "server/api/routes.h"
#include "server/endpoints/llama.h"
#include "server/endpoints/ollama.h"

namespace quire {

struct ServiceOptions {
  // Served names, the default first. "claude-*" stands for all that begin so. Without another name: the loaded model's.
  std::vector<std::string> model_names;
  int max_running = 64;                   // answers that the engine generates concurrently
  int max_queue = 256;                    // answers that may wait for it; further requests get a 429
  std::string metrics_prefix = "quire:";  // "vllm:" makes vLLM's dashboards work
  std::string version = "unknown";        // of the program
  std::string tool_call_parser = "auto", reasoning_parser = "auto";  // as for choose_format()
  // Log-probabilities, token ids and echo of one response, as JSON. Writing them takes five times as much memory.
  int64_t max_extra_bytes = 20'000'000;
  bool needs_key = false;        // requests need an API key
  bool several_tenants = false;  // which share the queue
};

// The whole response to a simple request.
struct Reply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Reply error_reply(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);

// The work of one request, for an Exchange.
struct Job {
  std::unique_ptr<Answer> answer = nullptr;
  bool stream = false;
  int choices = 0;  // of all requests; 0: the answer is complete
  std::vector<Request> requests = {};
  size_t prompt_bytes = 0;  // of the outputs that the engine delivers in one piece for the prompts
  Places places = {};       // of the choices
  size_t bytes = 0;         // of all this in memory
};

// Thread-safe.
class Service {
 public:
  Service(Completer& completer, ServiceOptions options);

  // GET endpoints. Throws ApiError.
  Reply reply(const Route& route, bool stopping) const;

  // POST endpoints: parses, renders and tokenizes, in time that grows with the body, and within `memory`. Throws ApiError;
  // if memory.exceeded(), a 413.
  Job prepare(Api api, std::string_view body, const Tenant& tenant, WorkingMemory& memory);

  Completer& completer() const { return completer_; }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  const std::shared_ptr<Admission>& admission() const { return admission_; }

 private:
  Job prepare(Api api, std::string_view body, const Tenant& tenant);
  ApiLimits limits() const;
  OllamaModel ollama_model() const;
  LlamaServer llama_server() const;
  void settle_for_model(ApiRequest& request) const;
  Places admit(const std::string& tenant, int answers);
  Job generation(ApiRequest request, const Tenant& tenant);
  std::string plain_tokens(const TokenIds& ids, bool with_pieces) const;
  Job tokenization(const ApiRequest& request) const;
  Job detokenization(const ApiRequest& request) const;
  TokenIds encode(const ApiRequest& request, size_t prompt) const;
  TokenIds encode_pair(ApiRequest& request, size_t document) const;  // sets request.second_text
  void log_once(const std::vector<std::string>& names);              // of fields without effect
  void log_notes(const std::vector<std::string>& notes);             // each of them once
  void log_described_tools();
  void log_smaller_context(int asked);
  Json model_json(const std::string& name) const;
  Json codex_model_json(const std::string& name) const;
  Json models_json() const;

  Completer& completer_;
  ServiceOptions options_;
  std::vector<std::string> model_prefixes_;  // of names that are served besides options_.model_names
  int64_t started_;
  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<Admission> admission_;
  ChatFormat format_;
  std::mutex mutex_;
  std::set<std::string> logged_;  // fields without effect, and notes
  std::once_flag described_, context_said_;
};

uint64_t random_u64();
int64_t unix_seconds();

}  // namespace quire
