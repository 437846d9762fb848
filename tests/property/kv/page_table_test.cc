// Random sequences grow, fork, write, share pages and shrink. The oracle has no pages: a sequence is a list of the values
// written to its positions.
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

class World {
 public:
  World(uint32_t pages, int page_tokens) : pool_(pages, page_tokens), memory_(pages * page_tokens, -1) {}

  void step() {
    const int what = *rc::gen::inRange(0, 7);
    if (twins_.empty() || what == 0) {
      if (twins_.size() < 6) twins_.emplace_back();
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
      const int keep = *rc::gen::inRange(0, tokens + 1);
      twin.table.truncate(pool_, keep);
      twin.values.resize(keep);
      return;
    }
    if (what == 6) return share_prefix(twin);
  }

  void check() const {
    std::map<PageId, uint32_t> references;
    for (const Twin& twin : twins_) {
      RC_ASSERT(twin.table.tokens() == static_cast<int>(twin.values.size()));
      RC_ASSERT(static_cast<int>(twin.table.pages().size()) == pool_.pages_for(twin.table.tokens()));
      for (const PageId page : twin.table.pages()) ++references[page];
      for (int i = 0; i < twin.table.tokens(); ++i) RC_ASSERT(memory_[at(twin.table, i)] == twin.values[i]);
    }
    RC_ASSERT(pool_.free_pages() + references.size() == pool_.page_count());
    for (uint32_t p = 0; p < pool_.page_count(); ++p) {
      const auto held = references.find(PageId{p});
      RC_ASSERT(pool_.references(PageId{p}) == (held == references.end() ? 0 : held->second));
    }
  }

  void release_all() {
    for (Twin& twin : twins_) twin.table.release(pool_);
    twins_.clear();
  }

 private:
  PageId page_at(const PageTable& table, int position) const {
    return table.pages()[static_cast<size_t>(position / pool_.page_tokens())];
  }
  size_t at(const PageTable& table, int position) const {
    return index(page_at(table, position)) * pool_.page_tokens() + position % pool_.page_tokens();
  }

  void make_writable(Twin& twin, int position) {
    if (const auto copy = twin.table.make_writable(pool_, position)) {
      const auto from = memory_.begin() + index(copy->from) * pool_.page_tokens();
      std::copy(from, from + pool_.page_tokens(), memory_.begin() + index(copy->to) * pool_.page_tokens());
    }
    RC_ASSERT(!pool_.shared(page_at(twin.table, position)));
  }

  void grow(Twin& twin, int count) {
    const int old = twin.table.tokens();
    const int needed = twin.table.pages_to_grow(pool_, count);
    const uint32_t free = pool_.free_pages();
    const bool grown = twin.table.grow(pool_, count);
    RC_ASSERT(grown == (needed <= static_cast<int>(free)));
    if (!grown) return;
    for (int i = old; i < old + count; ++i) {
      make_writable(twin, i);
      twin.values.push_back(memory_[at(twin.table, i)] = ++next_);
    }
    RC_ASSERT(free - pool_.free_pages() == static_cast<uint32_t>(needed));
  }

  void overwrite(Twin& twin, int position) {
    if (pool_.shared(page_at(twin.table, position)) && pool_.free_pages() == 0) return;
    make_writable(twin, position);
    twin.values[position] = memory_[at(twin.table, position)] = ++next_;
  }

  // A new sequence begins with the first full pages of another one.
  void share_prefix(const Twin& from) {
    if (twins_.size() >= 6) return;
    Twin twin;
    const int full = from.table.tokens() / pool_.page_tokens();
    for (int i = 0; i < full; ++i) twin.table.append_shared(pool_, from.table.pages()[i]);
    twin.values.assign(from.values.begin(), from.values.begin() + full * pool_.page_tokens());
    twins_.push_back(std::move(twin));
  }

  PagePool pool_;
  std::vector<int> memory_;
  std::vector<Twin> twins_;
  int next_ = 0;
};

RC_GTEST_PROP(PageTable, SharesPagesAndKeepsEverySequencesContent, ()) {
  World world(*rc::gen::inRange(0u, 12u), *rc::gen::inRange(1, 6));
  const int steps = *rc::gen::inRange(0, 120);
  for (int i = 0; i < steps; ++i) {
    world.step();
    world.check();
  }
  world.release_all();
  world.check();  // every page is free again
}

}  // namespace
}  // namespace quire
