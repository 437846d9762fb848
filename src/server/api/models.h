// The models of a server, each with its names and its engine. Finds the one that a request is for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/definition.h"
#include "server/api/live/live_feed.h"
#include "server/api/service.h"

namespace quire {

struct ServedModel {
  Completer& completer;                 // must outlive the server
  std::vector<std::string> names = {};  // as ServiceOptions::model_names
};

// Thread-safe.
class Models {
 public:
  // At least one model; the first is the default. Throws Error if two models have the same name.
  Models(std::span<const ServedModel> models, const ServiceOptions& options);

  // The model of this name, with or without Ollama's tag ":latest"; the default one if no model has it, which then refuses
  // the request, or if the name is empty. Names win over patterns ("claude-*").
  Service& find(std::string_view name) const;
  Service& first() const { return *services_.front(); }
  std::span<const std::unique_ptr<Service>> all() const { return services_; }

  // POST endpoints: finds the model and lets it prepare the work, within `memory`. Throws ApiError; if memory.exceeded(), a
  // 413.
  Job prepare(const ApiDefinition& api, std::string_view body, const Tenant& tenant, WorkingMemory& memory) const;

  const ServiceOptions& options() const { return options_; }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  LiveFeed& feed() const { return *feed_; }  // of the first model
  const std::shared_ptr<Admission>& admission() const { return admission_; }

 private:
  ServiceOptions options_;  // without names
  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<Admission> admission_;
  std::vector<std::unique_ptr<Service>> services_;
  std::unique_ptr<LiveFeed> feed_;
};

}  // namespace quire
