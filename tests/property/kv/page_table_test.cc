// Random sequences grow, fork, write, share pages, slide windows and shrink. The oracle has no pages: a sequence is a
// list of the values written to its positions, in each group from the first position that it still has.
#include "kv/page_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace quire {
namespace {

struct Twin {
  PageTable table;
  std::vector<int> values;
};

class PageTableWorld {
 public:
  PageTableWorld(int groups, uint32_t units, int page_tokens)
      : groups_(groups), pool_(units, page_tokens), memory_(units * page_tokens, -1) {}

  void step() {
    const int what = *rc::gen::inRange(0, 8);
    if (twins_.empty() || what == 0) {
      if (twins_.size() < 6) twins_.push_back({PageTable(groups_), {}});
      return;
    }
    const size_t who = *rc::gen::inRange<size_t>(0, twins_.size());
    Twin& twin = twins_[who];
    const int tokens = twin.table.tokens();
    if (what == 1 || what == 2) return grow(twin, *rc::gen::inRange(0, 3 * pool_.page_tokens()));
    if (what == 3 && tokens > 0) return overwrite(twin, *rc::gen::inRange(0, tokens));
    if (what == 4 && twins_.size() < 6) {
      Twin copy{twin.table.fork(pool_), twin.values};
      twins_.push_back(std::move(copy));
      return;
    }
    if (what == 5) {
      int keep = *rc::gen::inRange(0, tokens + 1);
      // A page that a group gave up cannot be the one that grows next.
      for (int g = 0; g < groups_; ++g) {
        if (keep < begin(twin, g)) keep -= keep % pool_.page_tokens();
      }
      twin.table.truncate(pool_, keep);
      twin.values.resize(keep);
      return;
    }
    if (what == 6) return share_prefix(twin);
    // The page of the next token stays.
    if (what == 7)
      twin.table.release_before(pool_, *rc::gen::inRange(0, groups_),
                                *rc::gen::inRange(0, tokens / pool_.page_tokens() + 1));
  }

  void check() const {
    std::map<UnitId, uint32_t> references;
    for (const Twin& twin : twins_) {
      RC_ASSERT(twin.table.tokens() == static_cast<int>(twin.values.size()));
      RC_ASSERT(twin.table.pages() == pool_.pages_for(twin.table.tokens()));
      int held = 0;
      for (int g = 0; g < groups_; ++g) {
        for (int page = 0; page < twin.table.pages(); ++page) {
          RC_ASSERT((twin.table.unit(g, page) == kNoUnit) == (page < twin.table.first_held(g)));
          if (page < twin.table.first_held(g)) continue;
          ++references[twin.table.unit(g, page)];
          ++held;
        }
        for (int i = begin(twin, g); i < twin.table.tokens(); ++i)
          RC_ASSERT(memory_[at(twin.table, g, i)] == twin.values[i]);
      }
      RC_ASSERT(held == twin.table.held_units());
    }
    RC_ASSERT(pool_.free_units() + references.size() == pool_.unit_count());
    for (uint32_t p = 0; p < pool_.unit_count(); ++p) {
      const auto unit = UnitId{static_cast<int32_t>(p)};
      const auto held = references.find(unit);
      RC_ASSERT(pool_.references(unit) == (held == references.end() ? 0 : held->second));
    }
  }

  void release_all() {
    for (Twin& twin : twins_) twin.table.release(pool_);
    twins_.clear();
  }

 private:
  int begin(const Twin& twin, int group) const {
    return std::min(twin.table.first_held(group) * pool_.page_tokens(), twin.table.tokens());
  }
  UnitId unit_at(const PageTable& table, int group, int position) const {
    return table.unit(group, position / pool_.page_tokens());
  }
  size_t at(const PageTable& table, int group, int position) const {
    return index(unit_at(table, group, position)) * pool_.page_tokens() + position % pool_.page_tokens();
  }

  void make_writable(Twin& twin, int group, int position) {
    if (const auto copy = twin.table.make_writable(pool_, group, position)) {
      const auto from = memory_.begin() + index(copy->from) * pool_.page_tokens();
      std::copy(from, from + pool_.page_tokens(), memory_.begin() + index(copy->to) * pool_.page_tokens());
    }
    RC_ASSERT(!pool_.shared(unit_at(twin.table, group, position)));
  }

  void grow(Twin& twin, int count) {
    const int old = twin.table.tokens();
    const int needed = twin.table.units_to_grow(pool_, count);
    const uint32_t free = pool_.free_units();
    const bool grown = twin.table.grow(pool_, count);
    RC_ASSERT(grown == (needed <= static_cast<int>(free)));
    if (!grown) return;
    for (int i = old; i < old + count; ++i) {
      twin.values.push_back(++next_);
      for (int g = 0; g < groups_; ++g) {
        make_writable(twin, g, i);
        memory_[at(twin.table, g, i)] = next_;
      }
    }
    RC_ASSERT(free - pool_.free_units() == static_cast<uint32_t>(needed));
  }

  void overwrite(Twin& twin, int position) {
    uint32_t copies = 0;
    for (int g = 0; g < groups_; ++g) {
      if (position < begin(twin, g)) return;
      copies += pool_.shared(unit_at(twin.table, g, position));
    }
    if (copies > pool_.free_units()) return;
    twin.values[position] = ++next_;
    for (int g = 0; g < groups_; ++g) {
      make_writable(twin, g, position);
      memory_[at(twin.table, g, position)] = next_;
    }
  }

  // A new sequence begins with the first full pages of another one.
  void share_prefix(const Twin& from) {
    if (twins_.size() >= 6) return;
    Twin twin{PageTable(groups_), {}};
    const int full = from.table.tokens() / pool_.page_tokens();
    for (int i = 0; i < full; ++i) {
      std::vector<UnitId> page;
      for (int g = 0; g < groups_; ++g) page.push_back(from.table.unit(g, i));
      twin.table.append_shared(pool_, page);
    }
    twin.values.assign(from.values.begin(), from.values.begin() + full * pool_.page_tokens());
    twins_.push_back(std::move(twin));
  }

  int groups_;
  UnitPool pool_;
  std::vector<int> memory_;
  std::vector<Twin> twins_;
  int next_ = 0;
};

RC_GTEST_PROP(PageTable, SharesPagesAndKeepsEverySequencesContent, ()) {
  PageTableWorld world(*rc::gen::inRange(1, 4), *rc::gen::inRange(0u, 30u), *rc::gen::inRange(1, 6));
  const int steps = *rc::gen::inRange(0, 120);
  for (int i = 0; i < steps; ++i) {
    world.step();
    world.check();
  }
  world.release_all();
  world.check();  // every unit is free again
}

}  // namespace
}  // namespace quire
