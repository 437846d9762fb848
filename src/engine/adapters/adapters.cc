#include "engine/adapters/adapters.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kMaxAdapterName = 256;

size_t kib(size_t bytes) { return (bytes + 1023) / 1024; }

}  // namespace

void Adapters::set_limits(size_t bytes, int max_rank) {
  const std::lock_guard lock(mutex_);
  most_bytes_ = bytes;
  max_rank_ = max_rank;
}

size_t Adapters::bytes_in_use() const {
  size_t bytes = 0;
  for (const auto& number : numbers_)
    if (const AdapterLease used = number.lock()) bytes += used->bytes;
  return bytes;
}

void Adapters::check(std::string_view name, const AdapterFacts& facts) const {
  const std::lock_guard lock(mutex_);
  if (name.empty() || name.size() > kMaxAdapterName)
    throw invalid("the name of an adapter must have 1 to {} bytes, not {}", kMaxAdapterName, name.size());
  if (std::ranges::any_of(named_, [&](const AdapterLease& a) { return a->name == name; }))
    throw invalid("there is an adapter {} already; remove it first, or choose another name", quote(name));
  if (facts.rank > max_rank_)
    throw invalid("the adapter {} has rank {}, but there is only room for rank {} (--max-lora-rank)", quote(name),
                  facts.rank, max_rank_);
  if (const size_t used = bytes_in_use(); used + facts.bytes > most_bytes_)
    throw no_resource(
        "the adapter {} needs {} KiB of memory, but only {} KiB of {} are free (--lora-memory, --max-loras)",
        quote(name), kib(facts.bytes), (most_bytes_ - std::min(used, most_bytes_)) / 1024, most_bytes_ / 1024);
}

AdapterLease Adapters::add(LoadedAdapter adapter) {
  const std::lock_guard lock(mutex_);
  auto free = std::ranges::find_if(numbers_, [](const auto& number) { return number.expired(); });
  if (free == numbers_.end()) free = numbers_.emplace(numbers_.end());
  adapter.number = static_cast<int>(free - numbers_.begin());
  auto lease = std::make_shared<const LoadedAdapter>(std::move(adapter));
  *free = lease;
  return named_.emplace_back(std::move(lease));
}

void Adapters::remove(std::string_view name) {
  AdapterLease last;  // its memory is freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(named_, [&](const AdapterLease& a) { return a->name == name; });
  if (found == named_.end()) throw not_found("there is no adapter {}", quote(name));
  last = std::move(*found);
  named_.erase(found);
}

AdapterLease Adapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(named_, [&](const AdapterLease& a) { return a->name == name; });
  if (found != named_.end()) return *found;
  std::string names;
  for (const AdapterLease& a : named_) names += (names.empty() ? "" : ", ") + quote(a->name);
  throw not_found("there is no adapter {}; the model has {}", quote(name), names.empty() ? "none" : names);
}

std::vector<AdapterInfo> Adapters::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> all;
  for (const AdapterLease& a : named_) all.push_back({a->name, a->path, a->by_rank[0].rank, a->bytes});
  return all;
}

}  // namespace quire
