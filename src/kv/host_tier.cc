#include "kv/host_tier.h"

#include <cassert>
#include <iterator>
#include <utility>

namespace quire {

HostTier::HostTier(size_t page_bytes, size_t kept_pages, size_t queued_pages)
    : page_bytes_(page_bytes),
      kept_pages_(kept_pages),
      queued_pages_(queued_pages),
      memory_(page_bytes * (kept_pages + queued_pages)) {
  const size_t slots = kept_pages + queued_pages;
  index_.reserve(slots);
  spare_nodes_.reserve(slots);
  for (size_t i = 0; i < slots; ++i) {
    free_.push_back({{i, 0}, memory_.data() + i * page_bytes, false});
    index_.emplace(PageKey{i, 0}, free_.begin());
  }
  // Map nodes are allocated once and reused.
  while (!index_.empty()) spare_nodes_.push_back(index_.extract(index_.begin()));
}

std::optional<std::span<const std::byte>> HostTier::find(PageKey key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  const auto slot = found->second;
  if (!slot->queued) kept_.splice(kept_.begin(), kept_, slot);
  return std::span<const std::byte>(slot->memory, page_bytes_);
}

bool HostTier::put(PageKey key, const Fill& fill, bool queue) {
  const bool room = queued_.size() < queued_pages_;
  if (const auto found = index_.find(key); found != index_.end()) {
    const auto slot = found->second;
    if (slot->queued) return true;
    kept_.splice(kept_.begin(), kept_, slot);
    if (queue && room) {
      slot->queued = true;
      queued_.splice(queued_.end(), kept_, slot);
    }
    return room || !queue;
  }
  const bool queues = queue && room;
  if (!queues && kept_pages_ == 0) return !queue;
  if (!queues && kept_.size() == kept_pages_) drop_oldest();

  const auto slot = free_.begin();  // exists, because both lists are within their bounds
  if (!fill({slot->memory, page_bytes_})) return true;
  slot->key = key;
  slot->queued = queues;
  Index::node_type node = std::move(spare_nodes_.back());
  spare_nodes_.pop_back();
  node.key() = key;
  node.mapped() = slot;
  index_.insert(std::move(node));
  if (queues)
    queued_.splice(queued_.end(), free_, slot);
  else
    kept_.splice(kept_.begin(), free_, slot);
  return queues || !queue;
}

std::optional<HostTier::Queued> HostTier::first_queued() const {
  if (queued_.empty()) return std::nullopt;
  return Queued{queued_.front().key, {queued_.front().memory, page_bytes_}};
}

void HostTier::written() {
  assert(!queued_.empty());
  queued_.front().queued = false;
  kept_.splice(kept_.begin(), queued_, queued_.begin());
  if (kept_.size() > kept_pages_) drop_oldest();
}

void HostTier::drop_oldest() {
  const auto slot = std::prev(kept_.end());
  spare_nodes_.push_back(index_.extract(slot->key));
  free_.splice(free_.begin(), kept_, slot);
}

}  // namespace quire
