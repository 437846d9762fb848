// A served model: turns requests into work for its engine. Endpoints ask it what they need to know about the model.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/working_memory.h"
#include "server/api/admission.h"
#include "server/api/answer/answer.h"
#include "server/api/answer/chat_format.h"
#include "server/api/completer.h"
#include "server/api/definition.h"
#include "server/api/keep_alive.h"
#include "server/api/metrics.h"
#include "server/api/model_store.h"
#include "server/api/served_names.h"
#include "server/batch/batch_counts.h"
#include "server/kv_events/kv_event_counts.h"
#include "server/otlp/span_counts.h"

namespace quire {

struct ServiceOptions {
  // Served names, the default first. "claude-*" stands for all that begin so. Without another name: the loaded model's.
  std::vector<std::string> model_names;
  int max_running = 64;                   // answers that the engines generate concurrently
  int max_queue = 256;                    // answers that may wait for them; further requests get a 429
  std::string metrics_prefix = "quire:";  // "vllm:" makes vLLM's dashboards work
  std::string version = "unknown";        // the program's
  std::string tool_call_parser = "auto", reasoning_parser = "auto";  // as for choose_format()
  // Log-probabilities, token ids and echo of one response, as JSON. Writing them takes five times as much memory.
  int64_t max_extra_bytes = 20'000'000;
  bool dashboard = true;                                     // serve the live page at /dashboard
  bool needs_key = false;                                    // requests need an API key
  bool loads_adapters = false;                               // clients may load and unload adapters
  bool several_tenants = false;                              // which share the queue
  std::shared_ptr<const SpanCounts> spans = nullptr;         // for metrics; nullptr: requests are not traced
  std::shared_ptr<const KvEventCounts> kv_events = nullptr;  // likewise; nullptr: KV events are not published
  std::shared_ptr<const BatchCounts> batches = nullptr;      // likewise; nullptr: the server keeps no files
  std::shared_ptr<ModelStore> model_store = nullptr;         // nullptr: clients download and delete nothing
};

// The work of one request, for an Exchange.
struct Job {
  std::unique_ptr<Answer> answer = nullptr;
  Completer* completer = nullptr;  // generates it
  std::shared_ptr<ModelMetrics> metrics = nullptr;
  std::string_view model = {};  // its served name, which the service owns
  bool stream = false;
  int choices = 0;  // choices of all requests; 0: the answer is complete
  std::vector<Request> requests = {};
  size_t prompt_bytes = 0;                   // size of what the engine delivers at once for the prompts
  Places places = {};                        // the places that Admission gave the choices
  size_t bytes = 0;                          // memory that all this takes
  std::optional<KeepAlive> keep_alive = {};  // how long the model stays loaded afterwards, if the request says
  Task task = nullptr;                       // in place of all but `stream`: ApiDefinition::task
};

// Asked before an adapter of this name is added. Throws ApiError if something of another model has the name; until the lock is
// released, nothing gets it.
using ClaimName = std::function<std::unique_lock<std::mutex>(const std::string& name)>;

// Thread-safe.
class Service {
 public:
  // Admission is shared by all models of a server.
  Service(Completer& completer, ServedNames names, ServiceOptions options, std::shared_ptr<ModelMetrics> metrics,
          std::shared_ptr<Admission> admission, ClaimName claim_name);

  // Parses, renders and tokenizes, in time that grows with the body. Throws ApiError and other exceptions.
  // aliases: further names of the model.
  Job prepare(const ApiDefinition& api, JsonField body, const Tenant& tenant,
              const std::vector<std::string>& aliases = {});

  const ServiceOptions& options() const { return options_; }
  const std::vector<std::string>& names() const { return names_.names; }  // the default first
  int64_t started() const { return started_; }                            // seconds since 1970
  const ModelInfo& model() const { return completer_.info(); }
  const ServedText& text() const { return completer_.text(); }
  EngineStats stats() const { return completer_.stats(); }
  EngineSnapshot snapshot() const { return completer_.snapshot(); }
  Explanation explain(const ExplainRequest& request) const { return completer_.explain(request); }
  double read_bandwidth() const { return completer_.read_bandwidth(); }
  double measure_multiply_rate() const { return completer_.measure_multiply_rate(); }
  const ChatFormat& format() const { return format_; }
  ApiLimits limits() const;

  std::vector<std::string> adapters() const;  // names
  // As Engine::add_adapter and remove_adapter. Throws Error; ApiError if clients may not, or the name is the model's.
  void add_adapter(const AdapterOption& adapter);
  void remove_adapter(const std::string& name);

  // The tokens of a prompt, or of the chat if the request has no prompts, which must be prepared for the template.
  TokenIds encode(const ApiRequest& request, size_t prompt) const;
  void prepare_chat(ApiRequest& request);

 private:
  void require_loading() const;
  void require_generation(const ApiRequest& request) const;
  Places admit(const std::string& tenant, int answers);
  Job generation(ApiRequest request, const Tenant& tenant);
  TokenIds encode_pair(ApiRequest& request, size_t document) const;  // sets request.second_text
  void log_once(const std::vector<std::string>& names);              // names fields without effect
  void log_notes(const std::vector<std::string>& notes);             // each of them once
  void log_described_tools();
  void log_smaller_context(int asked);

  Completer& completer_;
  const ServedNames names_;
  ServiceOptions options_;
  int64_t started_;
  const std::shared_ptr<ModelMetrics> metrics_;
  std::shared_ptr<Admission> admission_;
  const ClaimName claim_name_;
  ChatFormat format_;
  std::mutex mutex_;
  std::set<std::string> logged_;  // fields without effect, and notes
  std::once_flag described_, context_said_;
};

// The names under which a model is served if the operator says nothing: "/models/SmolLM2.Q4_1.gguf" is served as
// "SmolLM2.Q4_1" and under its full path.
std::vector<std::string> default_names(const std::string& asked);

uint64_t random_u64();
int64_t unix_seconds();

}  // namespace quire
