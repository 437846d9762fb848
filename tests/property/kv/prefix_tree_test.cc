// Random histories of a prefix tree of every shape, compared with a plain map of what each page holds.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kv/page_table.h"

namespace quire {
namespace {

constexpr int kPage = 2;  // tokens
const PageKey kRoot{1, 2};

struct Held {
  std::vector<UnitId> units;
  std::optional<int> checkpoint;
};

struct User {
  PageTable table;
  std::vector<TokenIds> pages;
  PrefixTree::Node last = PrefixTree::kNone;
};

class PrefixTreeWorld {
 public:
  PrefixTreeWorld(int spine_groups, int window_groups, uint32_t units)
      : spine_(spine_groups),
        groups_(spine_groups + window_groups),
        pool_(units, kPage),
        slots_(0, 3),
        tree_(pool_, spine_groups, window_groups, &slots_) {}

  void step() {
    const int what = *rc::gen::inRange(0, 8);
    if (users_.empty() || what == 0) return start();
    const size_t who = *rc::gen::inRange<size_t>(0, users_.size());
    if (what <= 3) return add_page(users_[who]);
    if (what == 4 && groups_ > spine_) return slide(users_[who]);
    if (what == 5) return checkpoint(users_[who]);
    if (what == 6) return evict_checkpoint();
    if (what == 7) return end(who);
  }
  void end_all() {
    while (!users_.empty()) end(0);
    while (evict()) {
    }
    while (slots_.free() < slots_.count()) evict_checkpoint();
    RC_ASSERT(tree_.size() == 0u);
    RC_ASSERT(twin_.empty());
    RC_ASSERT(pool_.free_units() == pool_.unit_count());
  }

  void check() const {
    RC_ASSERT(tree_.size() == twin_.size());
    std::map<UnitId, uint32_t> references;
    int checkpoints = 0;
    for (const auto& [pages, held] : twin_) {
      const auto node = find(pages);
      RC_ASSERT(node != PrefixTree::kNone);
      RC_ASSERT(tree_.checkpoint(node) == held.checkpoint);
      checkpoints += held.checkpoint.has_value();
      for (int g = 0; g < groups_; ++g) {
        const UnitId unit = held.units[static_cast<size_t>(g)];
        RC_ASSERT(tree_.unit(node, g) == unit);
        if (unit != kNoUnit) ++references[unit];
        RC_ASSERT(g >= spine_ || unit != kNoUnit);
      }
    }
    RC_ASSERT(slots_.free() == slots_.count() - checkpoints);
    for (const User& user : users_) {
      for (int g = 0; g < groups_; ++g) {
        for (int page = user.table.first_held(g); page < user.table.pages(); ++page)
          ++references[user.table.unit(g, page)];
      }
    }
    for (uint32_t p = 0; p < pool_.unit_count(); ++p) {
      const auto unit = UnitId{static_cast<int32_t>(p)};
      RC_ASSERT(pool_.references(unit) == (references.contains(unit) ? references[unit] : 0));
    }
  }

 private:
  using Path = std::vector<TokenIds>;

  static PageKey key(const Path& pages) {
    PageKey key = kRoot;
    for (const TokenIds& tokens : pages) key = chain(key, tokens);
    return key;
  }
  PrefixTree::Node find(const Path& pages) const { return tree_.find(key(pages), pages.back()); }

  void start() {
    if (users_.size() < 4) users_.push_back({PageTable(groups_), {}, PrefixTree::kNone});
  }

  // The next page, shared where the tree has all of it, otherwise computed.
  void add_page(User& user) {
    if (user.pages.size() >= 6) return;
    const TokenId token = *rc::gen::inRange(0, 2);
    user.pages.push_back({token, token});
    const auto known = find(user.pages);
    std::vector<UnitId> units;
    for (int g = 0; known != PrefixTree::kNone && g < groups_; ++g) units.push_back(tree_.unit(known, g));
    if (known != PrefixTree::kNone && std::find(units.begin(), units.end(), kNoUnit) == units.end()) {
      user.table.append_shared(pool_, units);
      tree_.touch_windows(known);
      if (spine_ > 0) user.last = known;
      return;
    }
    while (static_cast<int>(pool_.free_units()) < groups_) {
      const bool idle = pool_.idle_units() > 0;
      RC_ASSERT(evict() == idle);
      if (idle) continue;
      user.pages.pop_back();
      return;
    }
    RC_ASSERT(user.table.grow(pool_, kPage));
    register_last(user);
  }

  void register_last(User& user) {
    const int page = user.table.pages() - 1;
    auto node = find(user.pages);  // may have been evicted just now
    Held& held = twin_[user.pages];
    if (node == PrefixTree::kNone) {
      held.units.clear();
      for (int g = 0; g < groups_; ++g) held.units.push_back(user.table.unit(g, page));
      node = tree_.insert(user.last, kRoot, key(user.pages), user.pages.back(), held.units);
    }
    for (int g = 0; g < groups_; ++g) {
      UnitId& kept = held.units[static_cast<size_t>(g)];
      if (kept == kNoUnit) {
        kept = user.table.unit(g, page);
        tree_.attach(node, g, kept);
      } else if (kept != user.table.unit(g, page)) {
        user.table.replace(pool_, g, page, kept);
      }
    }
    if (spine_ > 0) user.last = node;
  }

  void slide(User& user) {
    user.table.release_before(pool_, *rc::gen::inRange(spine_, groups_), *rc::gen::inRange(0, user.table.pages() + 1));
  }

  void checkpoint(const User& user) {
    if (user.pages.empty()) return;
    auto node = find(user.pages);
    if (node != PrefixTree::kNone && tree_.checkpoint(node)) return tree_.touch_checkpoint(node);
    const auto slot = slots_.take();
    if (!slot) return;
    if (node == PrefixTree::kNone) {  // nothing else holds it, so there is no spine
      RC_ASSERT(spine_ == 0);
      const std::vector<UnitId> none(static_cast<size_t>(groups_), kNoUnit);
      node = tree_.insert(PrefixTree::kNone, kRoot, key(user.pages), user.pages.back(), none);
      twin_[user.pages].units = none;
    }
    tree_.attach_checkpoint(node, *slot);
    twin_[user.pages].checkpoint = slot;
  }

  void evict_checkpoint() {
    std::vector<Path> before;
    for (const auto& [pages, held] : twin_) {
      if (held.checkpoint) before.push_back(pages);
    }
    std::optional<PageKey> gone;
    RC_ASSERT(tree_.evict_checkpoint([&](PageKey key, int) { gone = key; }) == !before.empty());
    for (const Path& pages : before) {
      const auto node = find(pages);
      if (node != PrefixTree::kNone && tree_.checkpoint(node)) continue;
      RC_ASSERT(gone == key(pages));
      twin_[pages].checkpoint.reset();
      forget_if_empty(pages);
    }
  }

  bool evict() {
    std::map<std::pair<uint64_t, uint64_t>, Path> paths;
    for (const auto& [pages, held] : twin_) paths[{key(pages).low, key(pages).high}] = pages;
    std::optional<Path> left;
    const bool evicted = tree_.evict(
        [&](PageKey key, int group, UnitId unit) {
          left = paths.at({key.low, key.high});
          UnitId& kept = twin_.at(*left).units[static_cast<size_t>(group)];
          RC_ASSERT(kept == unit);
          RC_ASSERT(pool_.idle(unit));
          kept = kNoUnit;
        },
        [&](PageKey key, int slot) {
          RC_ASSERT(twin_.at(paths.at({key.low, key.high})).checkpoint == slot);
        });
    if (left) forget_if_empty(*left);
    return evicted;
  }

  void forget_if_empty(const Path& pages) {
    const Held& held = twin_.at(pages);
    const bool spine = spine_ > 0 && held.units[0] != kNoUnit;
    const bool any = std::any_of(held.units.begin(), held.units.end(), [](UnitId unit) { return unit != kNoUnit; });
    if (spine_ > 0 ? !spine : !any && !held.checkpoint) twin_.erase(pages);
  }

  void end(size_t who) {
    User& user = users_[who];
    if (user.last != PrefixTree::kNone) tree_.touch(user.last);
    user.table.release(pool_);
    if (who + 1 < users_.size()) std::swap(user, users_.back());
    users_.pop_back();
  }

  int spine_, groups_;
  UnitPool pool_;
  SlotPool slots_;
  PrefixTree tree_;
  std::map<Path, Held> twin_;
  std::vector<User> users_;
};

RC_GTEST_PROP(PrefixTree, HoldsWhatAPlainMapHolds, ()) {
  const int spine = *rc::gen::inRange(0, 3), windows = *rc::gen::inRange(spine == 0 ? 1 : 0, 3);
  PrefixTreeWorld world(spine, windows, *rc::gen::inRange(1u, 40u));
  const int steps = *rc::gen::inRange(0, 150);
  for (int i = 0; i < steps; ++i) {
    world.step();
    world.check();
  }
  world.end_all();
}

}  // namespace
}  // namespace quire
