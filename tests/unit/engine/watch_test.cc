// Snapshots: what they show, that they are bounded, and that nobody waits for them.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "engine/watch/pool_map.h"
#include "engine/watch/prefix_shape.h"
#include "engine/watch/snapshot.h"
#include "engine/watch/step_history.h"
#include "engine/watch/triple_buffer.h"
#include "unit/engine/tiny_cache.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::numbers;
using testing::TinyCache;

// ---- the buffer ----

TEST(TripleBuffer, GivesTheNewestValueAndReusesMemory) {
  TripleBuffer<std::vector<int>> buffer;
  const auto newest = [&] { return buffer.read([](const std::vector<int>& v) { return v; }); };
  EXPECT_TRUE(newest().empty());
  for (int i = 1; i <= 9; ++i) {
    buffer.back().assign(3, i);
    buffer.publish();
    if (i % 3 != 1) continue;
    EXPECT_EQ(newest(), std::vector<int>(3, i));
    EXPECT_EQ(newest(), std::vector<int>(3, i)) << "read again";
  }
  EXPECT_EQ(newest(), std::vector<int>(3, 9));
  EXPECT_EQ(buffer.back().capacity(), 3u) << "an older value's memory";
}

TEST(TripleBuffer, NeverShowsAValueThatIsBeingWritten) {
  struct Pair {
    uint64_t a = 0;
    std::array<uint64_t, 64> rest{};
  };
  TripleBuffer<Pair> buffer;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  std::atomic<int> torn{0}, backwards{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!done) {
        const Pair seen = buffer.read([](const Pair& p) { return p; });
        torn += std::ranges::any_of(seen.rest, [&](uint64_t x) { return x != seen.a; });
        backwards += seen.a < last;
        last = seen.a;
      }
    });
  }
  for (uint64_t i = 1; i <= 20'000; ++i) {
    buffer.back().a = i;
    buffer.back().rest.fill(i);
    buffer.publish();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(buffer.read([](const Pair& p) { return p.a; }), 20'000u);
}

// ---- steps ----

Chunk decode_of(uint64_t id, int first, int drafts = 0) {
  return {.id = SequenceId{id}, .first = first, .rows = 1, .drafts = drafts, .wants_logits = true, .decodes = true};
}

TEST(StepHistory, SaysWhatEachSequenceDidAndGot) {
  TinyCache cache(16, 0);
  const auto a = cache.waiting(numbers(0, 1)), b = cache.waiting(numbers(100, 2)),
             fork = cache.waiting(numbers(100, 2));
  const auto id = [](const Sequence& s) { return static_cast<uint64_t>(s.id); };
  const std::array chunks{decode_of(id(*a), 20, 3),
                          Chunk{.id = SequenceId{77}, .first = 0, .rows = 10},  // wants no logits
                          Chunk{.id = b->id, .first = 16, .rows = 17, .wants_logits = true}};
  const std::array samplings{Sampling{.sequence = a.get(), .position = 20, .decodes = true, .tokens = 2},
                             Sampling{.sequence = b.get(), .position = 32, .tokens = 1},
                             Sampling{.sequence = nullptr, .position = 32, .tokens = 1},  // dropped
                             Sampling{.sequence = fork.get(), .position = 32, .tokens = 1}};
  StepHistory history;
  history.add_parts(chunks, samplings);
  history.end_step({.began = 1, .duration = 0.5});
  EngineSnapshot shown;
  history.copy_to(shown);
  ASSERT_EQ(shown.steps.size(), 1u);
  const StepSnapshot& step = shown.steps[0];
  EXPECT_EQ(step.number, 1u);
  EXPECT_EQ(step.decode_rows, 4);
  EXPECT_EQ(step.prompt_rows, 27);
  ASSERT_EQ(step.parts, 4u);
  const auto expect_part = [&](size_t i, StepPart p) {
    const StepPart& got = shown.parts[i];
    EXPECT_EQ(std::tuple(got.sequence, got.first, got.rows, got.drafts, got.tokens, got.decodes),
              std::tuple(p.sequence, p.first, p.rows, p.drafts, p.tokens, p.decodes))
        << i;
  };
  expect_part(0, {.sequence = id(*a), .first = 20, .rows = 1, .drafts = 3, .tokens = 2, .decodes = true});
  expect_part(1, {.sequence = 77, .first = 0, .rows = 10});
  expect_part(2, {.sequence = id(*b), .first = 16, .rows = 17, .tokens = 1});
  expect_part(3, {.sequence = id(*fork), .first = 33, .tokens = 1});
}

TEST(StepHistory, KeepsTheLastStepsAndNoPartsThatWereOverwritten) {
  StepHistory history;
  constexpr size_t kWide = 100;  // so wide that parts run out before steps
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < kWide; ++i) chunks.push_back(decode_of(i + 1, 5));
  constexpr uint64_t kSteps = 3 * EngineSnapshot::kMostSteps + 7;
  for (uint64_t n = 1; n <= kSteps; ++n) {
    for (Chunk& c : chunks) c.first = static_cast<int>(n);
    history.add_parts(chunks, {});
    history.end_step({});
  }
  history.add_parts(chunks, {});  // of a step under way
  EngineSnapshot shown;
  history.copy_to(shown);
  ASSERT_EQ(shown.steps.size(), EngineSnapshot::kMostSteps);
  size_t with_parts = 0;
  for (size_t i = 0; i < shown.steps.size(); ++i) {
    const StepSnapshot& step = shown.steps[i];
    EXPECT_EQ(step.number, kSteps - EngineSnapshot::kMostSteps + 1 + i);
    if (step.parts == 0) continue;
    ++with_parts;
    ASSERT_EQ(step.parts, kWide);
    for (size_t p = 0; p < kWide; ++p) {
      EXPECT_EQ(shown.parts[step.first_part + p].sequence, p + 1);
      EXPECT_EQ(shown.parts[step.first_part + p].first, static_cast<int>(step.number));
    }
  }
  EXPECT_EQ(with_parts, EngineSnapshot::kMostParts / kWide - 1);
}

TEST(StepHistory, LeavesOutThePartsOfAStepWithTooMany) {
  StepHistory history;
  history.add_parts(std::vector(EngineSnapshot::kMostParts + 1, decode_of(1, 1)), {});
  history.end_step({.duration = 0.5});
  EngineSnapshot shown;
  history.copy_to(shown);
  ASSERT_EQ(shown.steps.size(), 1u);
  EXPECT_EQ(shown.steps[0].parts, 0u);
  EXPECT_EQ(shown.steps[0].duration, 0.5);
}

// ---- pages ----

TEST(PoolMap, TellsFreeCachedOwnedAndSharedUnitsApart) {
  TinyCache cache(8, 0);
  cache.run_and_end(numbers(0, 1));  // leaves a cached page
  const auto a = cache.waiting(numbers(100, 2)), b = cache.waiting(numbers(100, 2));
  cache.run(*a);  // two full pages, and one with a token
  cache.look_up(*b);
  cache.cache.adopt(*b);  // shares the two
  PoolMap map;
  draw_units(cache.cache.shared().pool(), map);
  draw_owner(a->pages, 0, map);
  draw_owner(b->pages, 1, map);
  EXPECT_EQ(map.units, 8u);
  EXPECT_EQ(map.units_per_cell, 1u);
  ASSERT_EQ(map.cells.size(), 8u);
  const auto cell = [&](const Sequence& s, int page) { return map.cells[index(s.pages.unit(0, page))]; };
  const PoolCell shared{.use = UnitUse::kShared, .owner = 0, .users = 2};
  EXPECT_EQ(cell(*a, 0), shared);
  EXPECT_EQ(cell(*b, 1), shared);
  EXPECT_EQ(cell(*a, 2), (PoolCell{.use = UnitUse::kOwned, .owner = 0, .users = 1}));
  const auto count = [&](UnitUse use) {
    return std::ranges::count_if(map.cells, [&](const PoolCell& c) { return c.use == use; });
  };
  EXPECT_EQ(count(UnitUse::kCached), 1);
  EXPECT_EQ(count(UnitUse::kShared), 2);
  EXPECT_EQ(count(UnitUse::kFree), 8 - 1 - 2 - a->pages.held_units() - b->pages.held_units() + 2 * 2);
  cache.cache.release(*a);
  cache.cache.release(*b);
}

TEST(PoolMap, ShowsTheMostUsedUnitOfACellOfSeveral) {
  UnitPool pool(10);
  PageTable pages;
  ASSERT_TRUE(pages.grow(pool, 4 * 16));  // units 0 to 3
  PageTable other = pages.fork(pool);
  other.truncate(pool, 16);
  PoolMap map;
  draw_units(pool, map, 4);
  EXPECT_EQ(map.units_per_cell, 3u);
  ASSERT_EQ(map.cells.size(), 4u);
  draw_owner(other, 7, map);
  draw_owner(pages, 5, map);
  EXPECT_EQ(map.cells[0], (PoolCell{.use = UnitUse::kShared, .owner = 7, .users = 2}));
  EXPECT_EQ(map.cells[1], (PoolCell{.use = UnitUse::kOwned, .owner = 5, .users = 1}));
  EXPECT_EQ(map.cells[2], PoolCell{});
  pages.release(pool);
  other.release(pool);
}

// ---- prefixes ----

TEST(PrefixShape, JoinsPagesWithoutForksAndSplitsWhereUsersDiffer) {
  TinyCache cache(32, 0);
  const TokenIds stem = numbers(0, 2);
  TokenIds left = numbers(0, 4), right = numbers(0, 2);
  for (int i = 0; i < 32; ++i) right.push_back(1000 + i);
  cache.run_and_end(left);
  cache.run_and_end(right);
  const auto shape = [&](size_t most_branches = PrefixShape::kMostBranches,
                         size_t most_pages = PrefixShape::kMostPages) {
    PrefixShape s;
    draw_prefixes(cache.cache.shared().tree(), cache.cache.shared().pool(), cache.cache.shared().groups(), s,
                  most_branches, most_pages);
    return s;
  };
  // The stem; its last page ends with a token that differs, so the forks are after two pages.
  const PrefixShape idle = shape();
  EXPECT_TRUE(idle.complete);
  EXPECT_EQ(idle.pages, cache.cache.shared().tree().size());
  ASSERT_EQ(idle.branches.size(), 3u);
  EXPECT_EQ(idle.branches[0], (PrefixBranch{.parent = -1, .pages = 2, .users = 0}));
  for (size_t i : {1, 2}) {
    EXPECT_EQ(idle.branches[i].parent, 0);
    EXPECT_EQ(idle.branches[i].pages, 2u);
  }
  const auto user = cache.waiting(numbers(0, 3));
  cache.look_up(*user);
  cache.cache.adopt(*user);  // three pages of the left one
  const PrefixShape used = shape();
  ASSERT_EQ(used.branches.size(), 4u);
  EXPECT_EQ(used.branches[0].users, 1u);
  uint32_t pages_in_use = 0;
  for (const PrefixBranch& b : used.branches) pages_in_use += b.users == 1 ? b.pages : 0;
  EXPECT_EQ(pages_in_use, 3u);
  cache.cache.release(*user);

  EXPECT_FALSE(shape(2).complete);
  EXPECT_EQ(shape(2).branches.size(), 2u);
  const PrefixShape few = shape(100, 3);
  EXPECT_FALSE(few.complete);
  uint32_t pages = 0;
  for (const PrefixBranch& b : few.branches) pages += b.pages;
  EXPECT_EQ(pages, 3u);
}

// ---- the engine ----

// Asks until a snapshot fits.
EngineSnapshot snapshot_with(const Engine& engine, const std::function<bool(const EngineSnapshot&)>& fits) {
  EngineSnapshot s;
  for (int i = 0; i < 6000; ++i) {
    s = engine.snapshot();
    if (s.number > 0 && fits(s)) return s;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "no such snapshot";
  return s;
}

Request long_request(unsigned seed, int tokens) {
  Request r;
  r.prompt = testing::random_tokens(seed, 40);
  r.sampling.max_tokens = tokens;
  r.sampling.temperature = 0;
  r.sampling.ignore_eos = true;
  return r;
}

TEST(EngineWatch, PublishesOnlyWhenAsked) {
  Engine engine(testing::tiny_options());
  testing::answer(engine, long_request(1, 8));
  EXPECT_EQ(engine.snapshot().number, 0u) << "nobody has asked before";
  const EngineSnapshot idle = snapshot_with(engine, [](const EngineSnapshot&) { return true; });
  EXPECT_EQ(idle.running + idle.waiting, 0);
  EXPECT_EQ(idle.steps.size(), engine.stats().steps);
  EXPECT_GT(idle.steps.front().multiply_adds, 0);
  EXPECT_EQ(idle.steps.front().prompt_rows, 40);
  EXPECT_EQ(idle.steps.front().bytes, 0) << "not counted for prompts";
  EXPECT_EQ(idle.steps.back().decode_rows, 1);
  EXPECT_GT(idle.steps.back().bytes, 0);
  int tokens = 0;
  for (const StepPart& part : idle.parts) tokens += part.tokens;
  EXPECT_EQ(tokens, 8);
  EXPECT_EQ(idle.pool.units, static_cast<uint32_t>(engine.info().kv_pages));
  EXPECT_GT(idle.prefixes.pages, 0u);
}

TEST(EngineWatch, ShowsTheProgressOfRequests) {
  EngineOptions o = testing::tiny_options();
  o.max_num_seqs = 2;
  Engine engine(o);
  std::atomic<int> ended{0};
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < 4; ++i) {
    ids.push_back(engine.submit(long_request(i, 400), [&](const Output& out) {
      ended += out.finish != FinishReason::kNone;
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // so that they are seen
    }));
  }
  const EngineSnapshot busy = snapshot_with(engine, [](const EngineSnapshot& s) {
    return s.running == 2 && s.sequences.size() == 4 && s.sequences[1].generated > 3;
  });
  EXPECT_EQ(busy.waiting, 2);
  for (size_t i = 0; i < 2; ++i) {
    const SequenceSnapshot& s = busy.sequences[i];
    EXPECT_EQ(s.phase, SequenceSnapshot::Phase::kDecode);
    EXPECT_EQ(s.prompt_tokens, 40);
    EXPECT_EQ(s.max_new_tokens, 400);
    EXPECT_EQ(s.computed, 40 + s.generated - 1);
    EXPECT_GE(s.units * 16, s.computed);
    EXPECT_LE(s.submitted, s.started);
    EXPECT_LE(s.started, s.first_token);
    EXPECT_LE(s.first_token, busy.time);
  }
  for (size_t i = 2; i < 4; ++i) {
    EXPECT_EQ(busy.sequences[i].phase, SequenceSnapshot::Phase::kWaiting);
    EXPECT_EQ(busy.sequences[i].started, -1);
    EXPECT_EQ(busy.sequences[i].first_token, -1);
    EXPECT_EQ(busy.sequences[i].request, static_cast<uint64_t>(ids[i]));
  }
  int owned = 0;
  for (const PoolCell& cell : busy.pool.cells) owned += cell.owner != PoolCell::kNobody;
  EXPECT_EQ(owned, busy.sequences[0].units + busy.sequences[1].units);
  for (const RequestId id : ids) engine.cancel(id);
  snapshot_with(engine, [](const EngineSnapshot& s) { return s.running + s.waiting == 0; });
  EXPECT_EQ(ended, 4);
}

TEST(EngineWatch, DoesNotChangeAnswers) {
  const auto tokens = [](bool watched) {
    Engine engine(testing::tiny_options());
    std::atomic<bool> done{false};
    std::thread watcher([&] {
      while (watched && !done) engine.snapshot();
    });
    std::vector<Request> requests;
    for (unsigned i = 0; i < 6; ++i) requests.push_back(long_request(i, 60));
    requests[3].sampling.n = 3;
    std::vector<TokenIds> all;
    for (const auto& answers : testing::answers_together(engine, requests)) {
      for (const testing::Answer& a : answers) all.push_back(a.tokens);
    }
    done = true;
    watcher.join();
    return all;
  };
  EXPECT_EQ(tokens(true), tokens(false));
}

}  // namespace
}  // namespace quire
