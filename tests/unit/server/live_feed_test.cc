// The dashboard's stream: what events say, that readers share them, and that memory and rate are bounded.
#include "server/api/live/live_feed.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "server/api/live/snapshot_json.h"
#include "server/api/models.h"
#include "unit/server/scripted_completer.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

// Two sequences, three steps, a pool of six pages and a tree.
EngineSnapshot busy_snapshot(uint64_t number) {
  EngineSnapshot s;
  s.number = number;
  s.time = 2.5;
  s.step_target = 0.05;
  s.running = 1;
  s.waiting = 1;
  s.sequences = {{.id = 11,
                  .request = 5,
                  .choice = 1,
                  .phase = SequenceSnapshot::Phase::kDecode,
                  .prompt_tokens = 40,
                  .cached_tokens = 16,
                  .computed = 43,
                  .generated = 4,
                  .max_new_tokens = 100,
                  .units = 3,
                  .drafted = 6,
                  .accepted = 2,
                  .submitted = 1,
                  .started = 1.25,
                  .first_token = 1.5},
                 {.id = 12, .request = 6, .prompt_tokens = 7, .max_new_tokens = 9, .submitted = 2}};
  for (uint64_t i = 0; i < 3; ++i) {
    s.steps.push_back({.number = number + i,
                       .began = 2,
                       .duration = 0.0125,
                       .decode_rows = 4,
                       .bytes = 1e8,
                       .multiply_adds = 5e8,
                       .first_part = static_cast<uint32_t>(i),
                       .parts = 1});
    s.parts.push_back({.sequence = 11, .first = 42, .rows = 1, .drafts = 3, .tokens = 2, .decodes = true});
  }
  s.pool = {.units = 12,
            .units_per_cell = 2,
            .cells = {{.use = UnitUse::kOwned, .owner = 0, .users = 1},
                      {.use = UnitUse::kOwned, .owner = 0, .users = 1},
                      {.use = UnitUse::kShared, .users = 3},
                      {.use = UnitUse::kCached},
                      {},
                      {}},
            .host_pages = 8,
            .disk_pages = 9};
  s.prefixes = {
      .pages = 5, .branches = {{.parent = -1, .pages = 3, .users = 1}, {.parent = 0, .pages = 2}}, .complete = false};
  return s;
}

TEST(SnapshotJson, HasWhatThePageShows) {
  ModelInfo info;
  info.architecture = "llama";
  info.page_tokens = 16;
  const std::string name = "<b>\"quoted\"</b>\n";
  const WatchedModel model{.name = name, .info = info, .max_running = 8, .read_bandwidth = 2e10, .multiply_rate = 0};
  const std::string text = snapshot_json(busy_snapshot(7), {.steps = 9}, model, 0);
  EXPECT_EQ(text.find('\n'), text.npos) << "one line, as events need it";
  const Json json = Json::parse(text);
  EXPECT_EQ(json["model"]["name"], name);
  EXPECT_EQ(json["limits"], Json::parse(R"({"read_bytes": 2e10, "multiply_adds": 0})"));
  EXPECT_EQ(json["counters"]["steps"], 9);
  EXPECT_EQ(json["counters"]["waiting"], 1);
  EXPECT_EQ(json["sequences"][0],
            Json::parse(R"({"id": 11, "request": 5, "choice": 1, "phase": "decode", "prompt": 40, "cached": 16,
              "computed": 43, "generated": 4, "most": 100, "units": 3, "drafted": 6, "accepted": 2, "submitted": 1.0,
              "started": 1.25, "first_token": 1.5})"));
  EXPECT_EQ(json["sequences"][1]["phase"], "waiting");
  EXPECT_EQ(json["sequences"][1]["started"], -1);
  EXPECT_EQ(json["steps"].size(), 3u);
  EXPECT_EQ(json["steps"][2], Json::parse(R"({"n": 9, "at": 2.0, "s": 0.0125, "decode": 4, "prompt": 0,
              "bytes": 100000000, "macs": 500000000, "parts": [[11, 42, 1, 3, 2, 1]]})"));
  EXPECT_EQ(json["pool"]["runs"], Json::parse("[2,2,0,1, 1,3,-1,3, 1,1,-1,0, 2,0,-1,0]"));
  EXPECT_EQ(json["pool"]["units_per_cell"], 2);
  EXPECT_EQ(json["pool"]["disk_pages"], 9);
  EXPECT_EQ(json["prefixes"], Json::parse(R"({"pages": 5, "complete": false, "branches": [[-1, 3, 1], [0, 2, 0]]})"));

  const Json later = Json::parse(snapshot_json(busy_snapshot(7), {}, model, 8));
  EXPECT_FALSE(later.contains("model"));
  ASSERT_EQ(later["steps"].size(), 1u);
  EXPECT_EQ(later["steps"][0]["n"], 9);
}

// A feed whose engine publishes a snapshot each time that it is asked, and a clock of its own.
struct FeedFixture {
  ScriptedCompleter model;
  Models models{{{.names = {"tiny"}, .completer = &model}}, ServiceOptions{}};
  int asked = 0;
  uint64_t published = 0;
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();

  FeedFixture() {
    model.on_snapshot = [this] {
      ++asked;
      return busy_snapshot(published++);  // what was asked for comes with the next call
    };
  }
  LiveFeed make(LiveFeedLimits limits = {}) const {
    return LiveFeed([this] { return models.look_at_first(); }, limits);
  }

  // The next event that a reader gets, after the time that it is told to wait.
  std::shared_ptr<const LiveEvent> event(LiveFeed& feed, uint64_t seen) {
    for (int i = 0; i < 100; ++i) {
      const LiveFeed::Next next = feed.next(seen, now);
      if (next.event) return next.event;
      now = std::max(next.again, now + 1ms);
    }
    return nullptr;
  }
};

Json json_of(const LiveEvent& event) {
  const std::string_view text = event.event();
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n"));
  return Json::parse(text.substr(6));
}

TEST(LiveFeed, AsksTheEngineOnlyForReadersAndAtABoundedRate) {
  FeedFixture f;
  LiveFeed feed = f.make();
  EXPECT_EQ(f.asked, 0);
  const auto reader = feed.join();
  ASSERT_TRUE(reader);
  uint64_t seen = f.event(feed, 0)->number();
  const int before = f.asked;
  const auto begin = f.now;
  int events = 0;
  for (; f.now < begin + 2s; f.now += 1ms) {  // an eager reader
    const LiveFeed::Next next = feed.next(seen, f.now);
    if (!next.event) continue;
    seen = next.event->number();
    ++events;
  }
  EXPECT_NEAR(events, 10, 1);
  EXPECT_NEAR(f.asked - before, 10, 1);
}

TEST(LiveFeed, SharesEventsAndSendsOnlyChangesToThoseWhoHadTheLastOne) {
  FeedFixture f;
  LiveFeed feed = f.make();
  const auto one = feed.join(), two = feed.join();
  const auto first = f.event(feed, 0);
  EXPECT_EQ(feed.next(0, f.now).event, first) << "the same object";
  EXPECT_TRUE(json_of(*first).contains("model"));
  EXPECT_EQ(json_of(*first)["steps"].size(), 3u);
  const auto second = f.event(feed, first->number());
  EXPECT_FALSE(json_of(*second).contains("model"));
  EXPECT_EQ(json_of(*second)["steps"].size(), 1u) << "the others were in the first event";
  EXPECT_EQ(feed.next(second->number(), f.now).event, nullptr);
  // A reader that has missed one, and a new one.
  const auto whole = feed.next(0, f.now).event;
  EXPECT_TRUE(json_of(*whole).contains("model"));
  const auto third = f.event(feed, second->number());
  EXPECT_NE(third, nullptr);
  EXPECT_TRUE(json_of(*feed.next(first->number(), f.now).event).contains("model"));
}

TEST(LiveFeed, FramesEventsForChunkedBodies) {
  const LiveEvent event("{}", 3);
  EXPECT_EQ(event.event(), "data: {}\n\n");
  EXPECT_EQ(event.chunk(), "a\r\ndata: {}\n\n\r\n");
}

TEST(LiveFeed, IgnoresWhatTheEngineDidBeforeTheFirstReader) {
  FeedFixture f;
  f.published = 40;
  LiveFeed feed = f.make();
  const auto reader = feed.join();
  EXPECT_GT(f.event(feed, 0)->number(), 40u);
}

TEST(LiveFeed, SlowsDownForManyReadersAndWhileIdle) {
  FeedFixture f;
  LiveFeed feed = f.make({.most_bytes_per_second = 1e5});
  const auto events_in = [&](std::chrono::seconds time) {
    uint64_t seen = 0;
    int events = 0;
    for (const auto begin = f.now; f.now < begin + time; f.now += 5ms) {
      if (const auto next = feed.next(seen, f.now); next.event) seen = next.event->number(), ++events;
    }
    return events;
  };
  std::vector<LiveFeed::Reader> readers;
  readers.push_back(*feed.join());
  const int alone = events_in(10s);
  EXPECT_GE(alone, 40);
  while (readers.size() < 200) readers.push_back(*feed.join());
  EXPECT_LT(events_in(10s), alone / 5) << "200 readers of about 900 bytes share 100 kB a second";
  readers.erase(readers.begin() + 1, readers.end());
  f.model.on_snapshot = [&] {
    EngineSnapshot s;
    s.number = ++f.published;
    return s;
  };
  EXPECT_NEAR(events_in(10s), 20, 2) << "idle";
}

TEST(LiveFeed, MeasuresTheMultiplyRateOnceAndOnlyWhenIdle) {
  FeedFixture f;
  LiveFeed feed = f.make();
  const auto reader = feed.join();
  EXPECT_FALSE(feed.wants_measurement()) << "nothing is known of the engine";
  uint64_t seen = f.event(feed, 0)->number();
  EXPECT_FALSE(feed.wants_measurement()) << "busy";
  f.model.on_snapshot = [&] {
    EngineSnapshot s;
    s.number = ++f.published;
    return s;
  };
  seen = f.event(feed, seen)->number();
  seen = f.event(feed, seen)->number();  // no steps since the last
  EXPECT_TRUE(feed.wants_measurement());
  EXPECT_FALSE(feed.wants_measurement());
  feed.measure();
  EXPECT_EQ(json_of(*f.event(feed, seen))["limits"]["multiply_adds"], 3e11);
}

TEST(LiveFeed, LeavesALimitUnknownThatCannotBeMeasured) {
  FeedFixture f;
  f.model.on_measure = [] { throw std::bad_alloc(); };
  LiveFeed feed = f.make();
  const auto reader = feed.join();
  feed.measure();
  EXPECT_EQ(json_of(*f.event(feed, 0))["limits"]["multiply_adds"], 0);
}

TEST(LiveFeed, HoldsOnlySoManyReadersAndBytes) {
  FeedFixture f;
  LiveFeed feed = f.make({.most_readers = 2, .most_bytes = 4000});
  auto one = feed.join();
  {
    const auto two = feed.join();
    EXPECT_TRUE(two);
    EXPECT_FALSE(feed.join());
  }
  EXPECT_EQ(feed.readers(), 1u);
  EXPECT_TRUE(feed.join());
  // Readers that never finish sending keep their events, until there is no room for another.
  std::vector<std::shared_ptr<const LiveEvent>> kept;
  size_t bytes = 0;
  while (const auto event = f.event(feed, kept.empty() ? 0 : kept.back()->number())) {
    kept.push_back(event);
    bytes += event->chunk().size();
    ASSERT_LE(bytes, 4000u);
  }
  EXPECT_GE(kept.size(), 2u);
  const uint64_t seen = kept.back()->number();
  kept.clear();
  EXPECT_NE(f.event(feed, seen), nullptr) << "there is room again";
}

}  // namespace
}  // namespace quire
