#include "server/api/models.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

// The name in a body; empty: it has none that could be a model's.
std::string_view model_of(const JsonField& body) {
  const auto found = body.json().find("model");
  return found != body.json().end() && found->is_string() ? found->get_ref<const std::string&>() : std::string_view();
}

}  // namespace

Models::Models(std::span<const ServedModel> models, const ServiceOptions& options) : options_(options) {
  assert(!models.empty());
  const ModelInfo& info = models.front().completer.info();
  const auto& names = models.front().names;
  const auto name = std::ranges::find_if(names, [](const std::string& n) { return !n.ends_with('*'); });
  metrics_ =
      std::make_shared<Metrics>(name != names.end() ? *name : default_names(info.name).front(), info,
                                options.metrics_prefix, models.front().completer.read_bandwidth(), options.spans);
  admission_ = std::make_shared<Admission>(options.max_running + options.max_queue, options.several_tenants);
  for (const ServedModel& model : models) {
    options_.model_names = model.names;
    auto service = std::make_unique<Service>(model.completer, options_, metrics_, admission_);
    for (const auto& other : services_) {
      for (const std::string& taken : service->names()) {
        if (other->serves(taken, true))
          throw invalid("two models have the name {}; give each its own (--served-model-name)", quote(taken));
      }
    }
    services_.push_back(std::move(service));
  }
  options_.model_names.clear();
  feed_ = std::make_unique<LiveFeed>(first());
}

Service& Models::find(std::string_view name) const {
  constexpr std::string_view kTag = ":latest";
  const std::string_view untagged = name.ends_with(kTag) ? name.substr(0, name.size() - kTag.size()) : name;
  for (const bool exactly : {true, false}) {
    for (const std::string_view asked : {name, untagged}) {
      for (const auto& service : services_) {
        if (service->serves(asked, exactly)) return *service;
      }
    }
  }
  return first();
}

Job Models::prepare(const ApiDefinition& api, std::string_view body, const Tenant& tenant,
                    WorkingMemory& memory) const {
  try {
    const WorkingIn counted(&memory);
    note_work("reading the body");
    JsonField document = parse_body(body);
    Service& service = find(model_of(document));
    Job job = service.prepare(api, std::move(document), tenant);
    job.bytes = memory.held();
    return job;
  } catch (const WorkingMemoryExceeded&) {
    throw ApiError(413,
                   fmt::format("{} takes more than {} KiB of memory; send less in one request, or raise "
                               "--request-memory",
                               memory.doing(), memory.limit() >> 10),
                   "invalid_request_error", {}, "request_too_large");
  } catch (...) {
    throw current_api_error();
  }
}

}  // namespace quire
