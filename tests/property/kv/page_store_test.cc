// Compares the tiers of the page store with plain models: random puts, finds and writes; damage, removals, restarts.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "kv/disk_tier.h"
#include "kv/host_tier.h"
#include "unit/kv/page_samples.h"

namespace quire {
namespace {

constexpr size_t kBytes = 64;

// RapidCheck starts with small ranges; this uses the whole range from the start.
template <class T = int>
T any(T from, T to) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(from, to));
}

// A model of HostTier: two bounded lists of numbers.
struct HostTwin {
  size_t kept_pages, queued_pages;
  std::deque<int> kept, queued;  // kept: the last used first

  bool find(int page) {
    if (std::ranges::count(queued, page)) return true;
    const auto found = std::ranges::find(kept, page);
    if (found == kept.end()) return false;
    kept.erase(found);
    kept.push_front(page);
    return true;
  }
  bool put(int page, bool queue) {
    if (std::ranges::count(queued, page)) return true;
    std::erase(kept, page);
    if (queue && queued.size() < queued_pages) {
      queued.push_back(page);
      return true;
    }
    keep(page);
    return !queue;
  }
  void written() {
    keep(queued.front());
    queued.pop_front();
  }
  void keep(int page) {
    kept.push_front(page);
    if (kept.size() > kept_pages) kept.pop_back();
  }
};

RC_GTEST_PROP(HostTier, AgreesWithItsModel, ()) {
  HostTwin twin{any<size_t>(0, 5), any<size_t>(0, 4), {}, {}};
  HostTier tier(kBytes, twin.kept_pages, twin.queued_pages);
  const int steps = any(0, 200);
  for (int i = 0; i < steps; ++i) {
    const int page = any(0, 12);
    switch (any(0, 4)) {
      case 0: {
        const auto found = tier.find(sample_key(page));
        RC_ASSERT(found.has_value() == twin.find(page));
        if (found) RC_ASSERT(std::ranges::equal(*found, sample_page(page, kBytes)));
        break;
      }
      case 1:
        if (twin.queued.empty()) break;
        RC_ASSERT(tier.first_queued()->key == sample_key(twin.queued.front()));
        RC_ASSERT(std::ranges::equal(tier.first_queued()->page, sample_page(twin.queued.front(), kBytes)));
        tier.written();
        twin.written();
        break;
      default: {
        const bool queue = *rc::gen::arbitrary<bool>();
        const Bytes bytes = sample_page(page, kBytes);
        RC_ASSERT(tier.put(sample_key(page), fill_with(bytes), queue) == twin.put(page, queue));
      }
    }
    RC_ASSERT(tier.pages() == twin.kept.size() + twin.queued.size());
    RC_ASSERT(tier.queue_length() == twin.queued.size());
  }
}

RC_GTEST_PROP(DiskTier, ReturnsTheRightPageOrNone, ()) {
  const TemporaryFolder folder;
  const auto limit = any<size_t>(2, 10);
  const auto open = [&] {
    return std::make_unique<DiskTier>(DiskTierOptions{folder.path().string(), limit * 4096, kBytes, "model", {}});
  };
  std::unique_ptr<DiskTier> tiers[] = {open(), open()};  // two servers on one folder
  std::map<int, bool> whole;                             // whether a page's file, if it exists, is intact
  const int steps = any(0, 100);
  for (int i = 0; i < steps; ++i) {
    auto& tier = tiers[any(0, 2)];
    const int number = any(0, 15);
    const PageKey key = sample_key(number);
    const auto path = folder.path() / text({page_file_identity("model", kBytes), key});
    switch (any(0, 7)) {
      case 0:
      case 1:
        if (!tier->find(key)) whole[number] = true;  // otherwise it believes that the page is stored
        RC_ASSERT(tier->write(key, sample_page(number, kBytes)));
        break;
      case 2: {
        Bytes page(kBytes);
        const bool right = std::filesystem::exists(path) && whole[number];
        RC_ASSERT(tier->read(key, page) == right);
        if (right) RC_ASSERT(page == sample_page(number, kBytes));
        break;
      }
      case 3:
        tier = open();
        break;
      case 4:
        tier->refresh();
        RC_ASSERT(tier->stats().pages == folder.files().size());
        break;
      case 5:
        std::filesystem::remove(path);
        break;
      default: {
        if (!std::filesystem::exists(path)) break;
        Bytes content = file_content(path);
        const auto at = any<size_t>(0, content.size());
        content[at] ^= static_cast<std::byte>(any(1, 256));
        if (any(0, 3) == 0) content.resize(at);
        write_content(path, content);
        whole[number] = false;
      }
    }
    RC_ASSERT(folder.files().size() <= limit);
  }
}

}  // namespace
}  // namespace quire
