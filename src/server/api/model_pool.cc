#include "server/api/model_pool.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"

namespace quire {

std::string_view name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kLoaded:
      return "loaded";
    case ModelState::kUnloading:
      return "unloading";
  }
  return {};
}

namespace {

std::exception_ptr pool_ended() { return std::make_exception_ptr(no_resource("the server is stopping")); }

}  // namespace

ModelPool::ModelPool(std::vector<PooledModel> models) {
  for (PooledModel& model : models) add(std::move(model));
  thread_ = std::thread([this] { run(); });
}

void ModelPool::add(PooledModel model) {
  const std::lock_guard lock(mutex_);
  const size_t index = entries_.size();
  const ModelState state = model.loaded ? ModelState::kLoaded : ModelState::kUnloaded;
  entries_.push_back({.model = std::move(model), .index = index, .state = state});
}

ModelPool::~ModelPool() {
  if (!stopping_) stop();
  for (Entry& entry : entries_) {
    assert(entry.users == 0);
    if (entry.state == ModelState::kLoaded && entry.model.unload) entry.model.unload();
  }
}

void ModelPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Entry& entry : entries_) {
    for (const Settled& settled : std::exchange(entry.waiting, {})) settled({}, pool_ended());
  }
}

ModelState ModelPool::state(size_t model) const {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[model];
  return entry.leaving ? ModelState::kUnloading : entry.state;
}

bool ModelPool::changing() const {
  const std::lock_guard lock(mutex_);
  return !orders_.empty() || std::ranges::any_of(entries_, [](const Entry& entry) {
    return entry.state == ModelState::kLoading || entry.state == ModelState::kUnloading;
  });
}

ModelPool::Lease ModelPool::acquire_now(size_t model, bool uses) {
  Entry& entry = entries_[model];
  if (entry.state != ModelState::kLoaded || entry.leaving) return {};
  ++entry.users;
  if (uses) entry.last_used = Clock::now();
  return {*this, model, uses};
}

ModelPool::Lease ModelPool::try_acquire(size_t model) {
  const std::lock_guard lock(mutex_);
  return acquire_now(model, true);
}

ModelPool::Lease ModelPool::peek(size_t model) {
  const std::lock_guard lock(mutex_);
  return acquire_now(model, false);
}

void ModelPool::acquire(size_t model, Settled settled) {
  Lease lease;
  {
    const std::lock_guard lock(mutex_);
    lease = acquire_now(model, true);
    if (!lease && !stopping_) {
      Entry& entry = entries_[model];
      entry.waiting.push_back(std::move(settled));
      if (entry.waiting.size() == 1 && entry.state != ModelState::kLoading) orders_.push_back(model);
      changed_.notify_all();
      return;
    }
  }
  const std::exception_ptr failure = lease ? nullptr : pool_ended();
  settled(std::move(lease), failure);
}

void ModelPool::release(size_t model, bool uses) noexcept {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  assert(entry.users > 0);
  --entry.users;
  if (uses) entry.last_used = Clock::now();
  if (entry.users == 0) changed_.notify_all();
}

void ModelPool::unload(size_t model) {
  const std::lock_guard lock(mutex_);
  entries_[model].leaving = entries_[model].state == ModelState::kLoaded;
  changed_.notify_all();
}

void ModelPool::set_keep_alive(size_t model, KeepAlive keep_alive) {
  const std::lock_guard lock(mutex_);
  entries_[model].model.keep_alive = keep_alive;
  changed_.notify_all();
}

void ModelPool::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (Entry* const entry = to_unload(Clock::now())) {
      unload(lock, *entry);
    } else if (!orders_.empty()) {
      load_next(lock);
    } else if (const auto expiry = next_expiry()) {
      changed_.wait_until(lock, *expiry);
    } else {
      changed_.wait(lock);
    }
  }
}

void ModelPool::load_next(Lock& lock) {
  const size_t model = orders_.front();
  orders_.pop_front();
  Entry& entry = entries_[model];
  if (entry.state == ModelState::kLoaded) return;  // it is leaving: its order comes again when it has left
  entry.state = ModelState::kLoading;
  std::exception_ptr failure;
  for (bool again = true; again;) {
    bool short_of_memory = false;
    failure = nullptr;
    lock.unlock();
    try {
      entry.model.load();
    } catch (const Error& e) {
      failure = std::current_exception();
      short_of_memory = e.kind() == ErrorKind::kResource;
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    again = short_of_memory && make_room(lock);
  }
  entry.state = failure ? ModelState::kUnloaded : ModelState::kLoaded;
  entry.last_used = Clock::now();
  std::vector<Settled> waiting = std::exchange(entry.waiting, {});
  if (!failure) entry.users += static_cast<int>(waiting.size());  // so that it stays until all have their leases
  lock.unlock();
  for (const Settled& settled : waiting) settled(failure ? Lease() : Lease(*this, model, true), failure);
  waiting.clear();  // they may hold the leases
  lock.lock();
}

// Unloads a model. false: none can be, or the pool ends.
bool ModelPool::make_room(Lock& lock) {
  Entry* victim = nullptr;
  for (Entry& entry : entries_) {
    if (entry.state != ModelState::kLoaded || (entry.model.pinned && !entry.leaving)) continue;
    const auto rank = [](const Entry& e) { return std::pair(e.users > 0, e.last_used); };
    if (!victim || rank(entry) < rank(*victim)) victim = &entry;
  }
  if (!victim) return false;
  victim->leaving = true;
  changed_.wait(lock, [&] { return stopping_ || victim->users == 0; });
  if (stopping_) return false;
  unload(lock, *victim);
  return true;
}

void ModelPool::unload(Lock& lock, Entry& entry) {
  assert(entry.users == 0);
  entry.state = ModelState::kUnloading;
  entry.leaving = false;
  lock.unlock();
  if (entry.model.unload) entry.model.unload();
  lock.lock();
  entry.state = ModelState::kUnloaded;
  if (!entry.waiting.empty() && std::ranges::find(orders_, entry.index) == orders_.end())
    orders_.push_back(entry.index);
}

bool ModelPool::expired(const Entry& entry, Clock::time_point now) const {
  return entry.model.keep_alive && !entry.model.pinned && now >= entry.last_used + *entry.model.keep_alive;
}

// A loaded model that nobody uses and that is to leave; nullptr: none.
ModelPool::Entry* ModelPool::to_unload(Clock::time_point now) {
  const auto leaves = [&](const Entry& entry) {
    return entry.state == ModelState::kLoaded && entry.users == 0 && (entry.leaving || expired(entry, now));
  };
  const auto found = std::ranges::find_if(entries_, leaves);
  return found != entries_.end() ? &*found : nullptr;
}

std::optional<ModelPool::Clock::time_point> ModelPool::next_expiry() const {
  std::optional<Clock::time_point> next;
  for (const Entry& entry : entries_) {
    if (entry.state != ModelState::kLoaded || entry.users > 0 || entry.model.pinned || !entry.model.keep_alive)
      continue;
    const Clock::time_point expiry = entry.last_used + *entry.model.keep_alive;
    if (!next || expiry < *next) next = expiry;
  }
  return next;
}

}  // namespace quire
