#include "server/api/models.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <thread>
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

std::vector<std::string> names_of(const std::vector<AdapterInfo>& adapters) {
  std::vector<std::string> names;
  for (const AdapterInfo& adapter : adapters) names.push_back(adapter.name);
  return names;
}

// Throws Error if a model has a name of another model, or an adapter that of a model or of another model's adapter.
void check_distinct(const ServedNames& names, const std::vector<std::string>& adapters, const ServedNames& others,
                    const std::vector<std::string>& other_adapters) {
  const bool itself = &names == &others;
  const auto is_among = [](const std::vector<std::string>& all) {
    return [&all](const std::string& name) { return std::ranges::find(all, name) != all.end(); };
  };
  if (const auto taken = std::ranges::find_if(names.names, is_among(others.names));
      !itself && taken != names.names.end())
    throw invalid("two models have the name {}; give each its own (--served-model-name)", quote(*taken));
  for (const auto& [some, all] : {std::pair(&adapters, &others.names),
                                  {&names.names, &other_adapters},
                                  {&adapters, itself ? nullptr : &other_adapters}}) {
    if (!all) continue;
    if (const auto taken = std::ranges::find_if(*some, is_among(*all)); taken != some->end())
      throw invalid(
          "an adapter has the name {}, as a model or another model's adapter has; choose another (--lora "
          "NAME=PATH)",
          quote(*taken));
  }
}

constexpr size_t kMostDownloaded = 1024;  // also those that were withdrawn

}  // namespace

Models::Models(std::vector<ServedModel> models, const ServiceOptions& options, double read_bandwidth,
               ServeDownloaded downloaded)
    : options_(options),
      metrics_(std::make_unique<Metrics>(options.metrics_prefix, read_bandwidth, options.spans, options.kv_events,
                                         options.batches)),
      admission_(std::make_shared<Admission>(options.max_running + options.max_queue, options.several_tenants)),
      downloaded_(std::move(downloaded)),
      first_feed_(std::make_unique<LiveFeed>([this] { return look_at_first(); })) {
  assert(!models.empty());
  options_.model_names.clear();
  entries_.reserve(models.size() + kMostDownloaded);
  std::vector<PooledModel> pooled;
  for (ServedModel& model : models) {
    assert(model.completer || (model.load && !model.names.empty()));
    pooled.push_back(enter(model, {}));
    count_ = entries_.size();
    if (model.completer) begin(*entries_.back(), *model.completer);
  }
  pool_ = std::make_unique<ModelPool>(std::move(pooled));
}

Models::~Models() = default;

PooledModel Models::enter(ServedModel& model, std::string stored) const {
  std::vector<std::string> fallback;
  if (model.completer) fallback = default_names(model.completer->info().name);
  auto owner = std::make_unique<Entry>(ServedNames::parse(model.names, fallback), model.completer != nullptr);
  Entry& entry = *owner;
  entry.adapters = model.completer ? names_of(model.completer->adapters()) : std::move(model.adapters);
  check_distinct(entry.names, entry.adapters, entry.names, entry.adapters);
  for (const size_t other : all())
    check_distinct(entry.names, entry.adapters, entries_[other]->names, entries_[other]->adapters);
  entry.stored = std::move(stored);
  entry.created = unix_seconds();
  entry.max_model_len = model.max_model_len;
  entry.feed = std::make_unique<LiveFeed>([this, index = entries_.size()] { return look(index); });
  entries_.push_back(std::move(owner));
  PooledModel pooled{
      .loaded = model.completer != nullptr, .pinned = model.pinned || model.completer, .keep_alive = model.keep_alive};
  if (model.completer) return pooled;
  pooled.load = [this, &entry, load = std::move(model.load)] {
    if (entry.withdrawn) throw not_found("{} is not served any more", quote(entry.names.names.front()));
    entry.owned = load();
    begin(entry, *entry.owned);
  };
  pooled.unload = [this, &entry] { end(entry); };
  return pooled;
}

std::vector<size_t> Models::all() const {
  std::vector<size_t> models;
  for (size_t model = 0; model < count_; ++model) {
    if (!entries_[model]->withdrawn) models.push_back(model);
  }
  return models;
}

void Models::add_downloaded(const std::string& asked, const std::string& stored) const {
  ServedModel model = downloaded_(stored);
  model.names.emplace_back(untagged(asked));
  const std::lock_guard claimed(claims_);
  std::vector<std::string> names;
  for (const std::string& name : model.names) {
    if (!is_taken(name) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  if (names.empty()) return;  // another client's pull was first
  if (count_ == entries_.capacity())
    throw no_resource("this server has had {} models; restart it to serve more", count_.load());
  model.names = std::move(names);
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(count_), entries_.end());  // of one that failed below
  PooledModel pooled = enter(model, stored);
  pool_->add(std::move(pooled));
  count_ = entries_.size();
}

void Models::withdraw(size_t model, const std::function<void()>& check) const {
  constexpr std::chrono::milliseconds kPause{20};
  entries_[model]->withdrawn = true;
  {
    const std::lock_guard lock(aliases_mutex_);
    std::erase_if(aliases_, [&](const auto& alias) { return alias.second == model; });
  }
  while (pool_->state(model) != ModelState::kUnloaded) {
    pool_->unload(model);  // again, because it may have been loading
    check();
    std::this_thread::sleep_for(kPause);
  }
}

void Models::begin(Entry& entry, Completer& completer) const {
  const ModelInfo& info = completer.info();
  if (!entry.metrics) entry.metrics = metrics_->add_model(entry.names.names.front(), info);
  entry.service = std::make_unique<Service>(completer, entry.names, options_, entry.metrics, admission_,
                                            [this, &entry](const std::string& name) { return claim(entry, name); });
  auto known = std::make_shared<const ModelInfo>(info);
  const std::lock_guard lock(entry.mutex);
  entry.created = entry.service->started();
  entry.max_model_len = info.max_model_len;
  entry.info = std::move(known);
}

std::unique_lock<std::mutex> Models::claim(const Entry& model, const std::string& adapter) const {
  std::unique_lock lock(claims_);
  if (find_alias(adapter))
    throw bad_request("lora_name", "{} is an alias of a model; choose another", describe(Json(adapter)));
  for (const size_t other : all()) {
    if (entries_[other].get() == &model) continue;
    const std::vector<std::string> taken = adapters(other);
    if (entries_[other]->names.has(adapter) || std::ranges::find(taken, adapter) != taken.end())
      throw bad_request("lora_name", "{} is the name of the model {} or of one of its adapters; choose another",
                        describe(Json(adapter)), describe(Json(entries_[other]->names.names.front())));
  }
  return lock;
}

void Models::end(Entry& entry) const {
  entry.metrics->set(entry.service->stats());
  entry.metrics->unloaded();
  entry.service.reset();
  entry.owned.reset();
}

size_t Models::find(std::string_view name) const {
  const std::vector<size_t> models = all();
  const auto first = [&](const auto& has) -> std::optional<size_t> {
    for (const std::string_view asked : {name, untagged(name)}) {
      for (const size_t model : models)
        if (has(model, asked)) return model;
    }
    return std::nullopt;
  };
  const auto has_name = [&](size_t model, std::string_view asked) { return entries_[model]->names.has(asked); };
  const auto has_adapter = [&](size_t model, std::string_view asked) {
    const std::vector<std::string> names = adapters(model);
    return std::ranges::find(names, asked) != names.end();
  };
  const auto has_alias = [&](size_t model, std::string_view asked) { return find_alias(asked) == model; };
  const auto serves_name = [&](size_t model, std::string_view asked) { return serves(model, asked); };
  std::optional<size_t> found = first(has_name);
  if (!found) found = first(has_alias);
  if (!found) found = first(has_adapter);
  if (!found) found = first(serves_name);
  return found.value_or(0);
}

std::vector<std::string> Models::adapters(size_t model) const {
  const ServiceLease loaded = look(model);
  return loaded ? loaded->adapters() : entries_[model]->adapters;
}

std::vector<std::string> ListedModel::all_names() const {
  std::vector<std::string> all = names.names;
  all.insert(all.end(), aliases.begin(), aliases.end());
  return all;
}

std::vector<std::string> Models::aliases(size_t model) const {
  std::vector<std::string> found;
  const std::lock_guard lock(aliases_mutex_);
  for (const auto& [alias, of] : aliases_) {
    if (of == model) found.push_back(alias);
  }
  return found;
}

std::optional<size_t> Models::find_alias(std::string_view name) const {
  const std::lock_guard lock(aliases_mutex_);
  const auto found = aliases_.find(name);
  return found == aliases_.end() ? std::nullopt : std::optional(found->second);
}

// Whether it is the name of a model or of an adapter.
bool Models::is_taken(std::string_view name) const {
  return std::ranges::any_of(all(), [&](size_t model) {
    const std::vector<std::string> taken = adapters(model);
    return entries_[model]->names.has(name) || std::ranges::find(taken, name) != taken.end();
  });
}

void Models::add_alias(size_t model, const std::string& alias) const {
  constexpr size_t kMostAliases = 256;
  const std::lock_guard claimed(claims_);
  if (is_taken(alias))
    throw bad_request("destination", "{} is the name of a served model or of an adapter; choose another",
                      describe(Json(alias)));
  const std::lock_guard lock(aliases_mutex_);
  if (aliases_.size() >= kMostAliases && !aliases_.contains(alias))
    throw bad_request("destination", "the server has {} aliases already; delete one of them", kMostAliases);
  aliases_[alias] = model;
}

bool Models::remove_alias(std::string_view alias) const {
  const std::lock_guard lock(aliases_mutex_);
  const auto found = aliases_.find(alias);
  if (found == aliases_.end()) return false;
  aliases_.erase(found);
  return true;
}

ServiceLease Models::leased(ModelPool::Lease lease, size_t model) const {
  if (!lease) return {};
  return {std::move(lease), entries_[model]->service.get(), model};
}

ServiceLease Models::try_acquire(size_t model) const { return leased(pool_->try_acquire(model), model); }

ServiceLease Models::look(size_t model) const { return leased(pool_->peek(model), model); }

ServiceLease Models::look_at_first() const {
  for (const size_t model : all()) {
    if (ServiceLease lease = look(model)) return lease;
  }
  return {};
}

ServiceLease Models::first_loaded() const {
  ServiceLease first = look_at_first();
  if (!first) {
    throw ApiError(503, "no model is loaded; the first request for one loads it", "server_error", {},
                   "no_model_loaded");
  }
  return first;
}

void Models::acquire(size_t model, std::function<void(ServiceLease, std::exception_ptr)> settled) const {
  pool_->acquire(model,
                 [this, model, settled = std::move(settled)](ModelPool::Lease lease, std::exception_ptr failure) {
                   settled(leased(std::move(lease), model), std::move(failure));
                 });
}

void Models::unload(size_t model) const {
  const Entry& entry = *entries_[model];
  if (entry.permanent) {
    throw bad_request(
        "model", "{} stays loaded, because this server has no other model; start it with --keep-alive to unload it",
        describe(Json(entry.names.names.front())));
  }
  pool_->unload(model);
}

ListedModel Models::list(size_t model) const {
  const Entry& entry = *entries_[model];
  const ModelState state = pool_->state(model);
  std::vector<std::string> adapters = this->adapters(model), aliases = this->aliases(model);
  const std::lock_guard lock(entry.mutex);
  return {.names = entry.names,
          .state = state,
          .created = entry.created,
          .info = entry.info,
          .max_model_len = entry.max_model_len,
          .adapters = std::move(adapters),
          .aliases = std::move(aliases)};
}

ApiLimits Models::limits(std::vector<std::string>& names, std::vector<std::string>& prefixes) const {
  const ServiceLease first = look_at_first();
  ApiLimits limits = first ? first->limits() : ApiLimits{};
  for (const size_t model : all()) {
    const auto& entry = entries_[model];
    names.insert(names.end(), entry->names.names.begin(), entry->names.names.end());
    for (const auto& of_model : {aliases(model), adapters(model)})
      names.insert(names.end(), of_model.begin(), of_model.end());
    prefixes.insert(prefixes.end(), entry->names.prefixes.begin(), entry->names.prefixes.end());
  }
  limits.models = names;
  limits.model_prefixes = prefixes;
  return limits;
}

std::string Models::scrape() const {
  for (const size_t model : all()) {
    if (const ServiceLease lease = look(model)) entries_[model]->metrics->set(lease->stats(), lease->adapters());
  }
  return metrics_->text();
}

Job Models::prepare(const ApiDefinition& api, std::string_view body, const Tenant& tenant, WorkingMemory& memory,
                    ServiceLease& lease) const {
  try {
    const WorkingIn counted(&memory);
    note_work("reading the body");
    JsonField document = parse_body(body);
    if (api.manage) {
      std::vector<std::string> names, prefixes;
      ApiRequest request = parse_api_request(api, document, limits(names, prefixes));
      if (Task task = api.task ? api.task(*this, request) : nullptr)
        return {.stream = request.stream, .task = std::move(task)};
      return {.answer = ready_answer(api.manage(*this, request))};
    }
    const size_t model = find(model_of(document));
    if (!lease || lease.model != model) lease = try_acquire(model);
    if (!lease) throw ModelNotLoaded{model};
    Job job = lease->prepare(api, std::move(document), tenant, aliases(model));
    job.bytes = memory.held();
    if (job.keep_alive) pool_->set_keep_alive(model, *job.keep_alive);
    return job;
  } catch (const ModelNotLoaded&) {
    throw;
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
