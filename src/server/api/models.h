// The models of a server, each with its names and its engine. Finds the one that a request is for, and has it loaded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/definition.h"
#include "server/api/live/live_feed.h"
#include "server/api/model_pool.h"
#include "server/api/served_names.h"
#include "server/api/service.h"
#include "server/api/service_lease.h"

namespace quire {

struct ServedModel {
  // As ServiceOptions::model_names; at least one if the model is not loaded yet.
  std::vector<std::string> names = {};
  Completer* completer = nullptr;  // loaded for good; must outlive the server
  // Otherwise: loads the model, on a thread of the server. As PooledModel::load.
  std::function<std::unique_ptr<Completer>()> load = {};
  std::vector<std::string> adapters = {};  // names of those that are loaded with it
  bool pinned = false;
  KeepAlive keep_alive = {};
  int max_model_len = 0;  // as far as is known before it is loaded; 0: not at all
};

// How to serve a model of the ModelStore; `name` is what pull() returned. Never loaded for good. Throws Error if it cannot be
// served: its family is unknown, say, or it does not fit into the memory for models.
using ServeDownloaded = std::function<ServedModel(const std::string& name)>;

// What lists say of a model.
struct ListedModel {
  const ServedNames& names;
  ModelState state;
  int64_t created = 0;                    // seconds since 1970: when it was last loaded, or else when the server began
  std::shared_ptr<const ModelInfo> info;  // null: it was never loaded
  int max_model_len = 0;                  // 0: unknown
  std::vector<std::string> adapters = {};
  std::vector<std::string> aliases = {};

  std::vector<std::string> all_names() const;  // names and aliases
};

// Thrown by Models::prepare.
struct ModelNotLoaded {
  size_t model;
};

// Thread-safe. A model is named by its index, which no other model gets.
class Models {
 public:
  // At least one model; the first is the default. Throws Error if two models, or adapters of two, have the same name.
  // downloaded: nullptr: those that clients download are not served.
  Models(std::vector<ServedModel> models, const ServiceOptions& options, double read_bandwidth = 0,
         ServeDownloaded downloaded = nullptr);
  ~Models();

  std::vector<size_t> all() const;  // in the order in which they came
  // The model that has this name or alias, or an adapter of this name, with or without Ollama's tag ":latest". The default one if
  // none has, which then refuses the request, or if the name is empty. Names win over patterns ("claude-*").
  size_t find(std::string_view name) const;
  bool serves(size_t model, std::string_view name) const { return entries_[model]->names.serves(name); }

  bool serves_downloads() const { return downloaded_ != nullptr; }
  // Serves a model that was downloaded, also as `asked`. Throws Error: it cannot be served, another model has its names, or there
  // are too many models.
  void add_downloaded(const std::string& asked, const std::string& stored) const;
  // The name that add_downloaded() was given as `stored`; empty: the model came otherwise.
  const std::string& stored_as(size_t model) const { return entries_[model]->stored; }
  // Serves it no more, and returns once it is unloaded, after the last answer. check: called several times a second; if it throws,
  // the model still leaves.
  void withdraw(size_t model, const std::function<void()>& check) const;

  // The adapters of a model: those that it has now, or will have once it is loaded.
  std::vector<std::string> adapters(size_t model) const;

  // Further names of models, which clients give them until the server ends.
  std::vector<std::string> aliases(size_t model) const;
  // An alias of another model becomes this one's. Throws ApiError: a model or an adapter has the name, or there are too many.
  void add_alias(size_t model, const std::string& alias) const;
  bool remove_alias(std::string_view alias) const;  // whether there was one

  // Empty: it is not loaded. `look` does not count as use, so that it does not keep an idle model.
  ServiceLease try_acquire(size_t model) const;
  ServiceLease look(size_t model) const;
  ServiceLease look_at_first() const;  // the first that is loaded
  ServiceLease first_loaded() const;   // the same; throws ApiError if none is
  // Has it loaded, if it is not. As ModelPool::acquire.
  void acquire(size_t model, std::function<void(ServiceLease, std::exception_ptr)> settled) const;
  // Throws ApiError if the model was given as loaded for good.
  void unload(size_t model) const;
  // Ends loading, after the model under way; requests that wait for one fail.
  void stop() { pool_->stop(); }
  bool changing() const { return pool_->changing(); }

  ListedModel list(size_t model) const;
  // Of requests about any model; the names are those of all. Refers to `names` and `prefixes`.
  ApiLimits limits(std::vector<std::string>& names, std::vector<std::string>& prefixes) const;

  // POST endpoints: finds the model and lets it prepare the work, within `memory`. `lease` may have the model already, and
  // has it afterwards; if it cannot, because the model is not loaded, ModelNotLoaded is thrown. Throws ApiError; if
  // memory.exceeded(), a 413.
  Job prepare(const ApiDefinition& api, std::string_view body, const Tenant& tenant, WorkingMemory& memory,
              ServiceLease& lease) const;

  const ServiceOptions& options() const { return options_; }
  Metrics& metrics() const { return *metrics_; }
  std::string scrape() const;                      // metrics, with the engines' current values
  LiveFeed& feed() const { return *first_feed_; }  // of the first model that is loaded
  LiveFeed& feed(size_t model) const { return *entries_[model]->feed; }
  const std::shared_ptr<Admission>& admission() const { return admission_; }

 private:
  struct Entry {
    Entry(ServedNames given, bool stays) : names(std::move(given)), permanent(stays) {}

    const ServedNames names;
    const bool permanent;     // ServedModel::completer
    std::string stored = {};  // stored_as()
    std::atomic<bool> withdrawn = false;
    std::unique_ptr<LiveFeed> feed = nullptr;
    std::vector<std::string> adapters = {};  // ServedModel::adapters
    // While it is loaded; the pool's thread alone changes them.
    std::unique_ptr<Completer> owned = nullptr;
    std::unique_ptr<Service> service = nullptr;
    std::shared_ptr<ModelMetrics> metrics = nullptr;  // since it was loaded first
    // For lists, guarded by `mutex`.
    mutable std::mutex mutex;
    int64_t created = 0;
    int max_model_len = 0;
    std::shared_ptr<const ModelInfo> info = nullptr;
  };
  // Appends a model's entry, which the others see once count_ counts it. begin() has to follow for one that is loaded.
  PooledModel enter(ServedModel& model, std::string stored) const;
  void begin(Entry& entry, Completer& completer) const;
  std::unique_lock<std::mutex> claim(const Entry& model, const std::string& adapter) const;
  bool is_taken(std::string_view name) const;
  std::optional<size_t> find_alias(std::string_view name) const;
  void end(Entry& entry) const;
  ServiceLease leased(ModelPool::Lease lease, size_t model) const;

  ServiceOptions options_;  // without names
  std::unique_ptr<Metrics> metrics_;
  std::shared_ptr<Admission> admission_;
  const ServeDownloaded downloaded_;
  // Adding a model takes claims_ and never moves the entries, since room is reserved: the first count_ need no lock.
  mutable std::vector<std::unique_ptr<Entry>> entries_;
  mutable std::atomic<size_t> count_{0};
  mutable std::mutex claims_;  // held while a client adds a model, an adapter or an alias
  mutable std::mutex aliases_mutex_;
  mutable std::map<std::string, size_t, std::less<>> aliases_;  // guarded by aliases_mutex_
  std::unique_ptr<LiveFeed> first_feed_;
  std::unique_ptr<ModelPool> pool_;  // last: unloads the models
};

}  // namespace quire
