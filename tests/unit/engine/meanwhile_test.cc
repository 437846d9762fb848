// Where passes run apart, as on a GPU: what the engine's thread does while one runs.

#include "engine/answer/outbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "ops/forwarding.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::random_tokens;

// The CPU as a device: operations count as running from start() to finish().
class ApartBackend final : public ForwardingBackend {
 public:
  explicit ApartBackend(Backend& inner) : ForwardingBackend(inner) {}
  bool picks_logits() const override { return true; }
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;

  void read(std::byte* from, std::span<std::byte> to) override {
    reads_meanwhile += runs;
    ForwardingBackend::read(from, to);
  }
  void upload(std::span<const std::byte> from, std::byte* to) override {
    uploads_meanwhile += runs;
    ForwardingBackend::upload(from, to);
  }

  bool runs = false;
  int reads_meanwhile = 0, uploads_meanwhile = 0;
};

class ApartOperations final : public ForwardingOperations {
 public:
  ApartOperations(ApartBackend& backend, std::unique_ptr<Operations> inner)
      : ForwardingOperations(std::move(inner)), backend_(backend) {}
  using Operations::project;
  void start() override { backend_.runs = ++passes_ > 0; }
  void finish_first() override { backend_.runs = --passes_ > 0; }
  void finish() override { backend_.runs = (passes_ = 0) > 0; }

 private:
  ApartBackend& backend_;
  int passes_ = 0;  // that run
};

std::unique_ptr<Operations> ApartBackend::operations(Activations activations, const OperationLimits& limits) {
  return std::make_unique<ApartOperations>(*this, inner().operations(activations, limits));
}

// A model whose passes run apart.
struct Apart {
  std::shared_ptr<Runtime> runtime;
  ApartBackend& backend;
  LoadedModel model;
  EngineLoop loop;

  explicit Apart(const EngineOptions& options = testing::tiny_options())
      : runtime(std::make_shared<Runtime>(options)),
        backend(device(*runtime)),
        model(options, 0, runtime),
        loop(model) {}

  static ApartBackend& device(Runtime& runtime) {
    auto made = std::make_unique<ApartBackend>(runtime.cpu);
    ApartBackend& backend = *made;
    runtime.device = std::move(made);
    return backend;
  }
  void add(Request request, Engine::Callback callback) {
    testing::submit(loop, model, std::move(request), std::move(callback));
  }
};

TEST(Meanwhile, ClientsHearOfAStepWhileTheNextOneIsComputed) {
  Apart apart;
  const std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 12),
                                         seeded_request(random_tokens(2, 40), 7)};
  LoadedModel plain(testing::tiny_options());
  EngineLoop alone(plain);
  const std::vector<Answer> expected = testing::loop_answers(alone, plain, requests);

  std::vector<Answer> answers(2);
  std::vector<bool> while_running;
  for (size_t i = 0; i < requests.size(); ++i)
    apart.add(requests[i], [&, i](const Output& out) {
      answers[i].add(out);
      while_running.push_back(apart.backend.runs);
    });
  while (!apart.loop.idle()) apart.loop.step();
  for (size_t i = 0; i < requests.size(); ++i)
    testing::expect_same(expected[i], answers[i], "request " + std::to_string(i));
  ASSERT_EQ(while_running.size(), 19u);
  EXPECT_FALSE(while_running.back());  // nothing is left to compute
  while_running.pop_back();
  EXPECT_EQ(std::ranges::count(while_running, true), 18);
}

// Also while the pass runs that computes its next token.
TEST(Meanwhile, AClientThatCannotBeToldEndsAlone) {
  Apart apart;
  Answer good, bad;
  apart.add(seeded_request(random_tokens(1, 20), 12), [&](const Output& out) { good.add(out); });
  apart.add(seeded_request(random_tokens(2, 20), 12), [&](const Output& out) {
    if (bad.tokens.size() == 4 && out.finish == FinishReason::kNone) throw std::bad_alloc();
    bad.add(out);
  });
  while (!apart.loop.idle()) apart.loop.step();
  EXPECT_EQ(good.tokens.size(), 12u);
  EXPECT_EQ(good.last.finish, FinishReason::kLength);
  EXPECT_EQ(bad.tokens.size(), 4u);
  EXPECT_EQ(bad.last.finish, FinishReason::kError);
  EXPECT_EQ(bad.last.error, kOutOfMemory);
  EXPECT_EQ(bad.ends, 1);
  EngineStats stats;
  apart.loop.write_stats(stats);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.finished_requests, 2u);
}

// Sends the same prompts `count` times through a cache that has no room for all of them, each together with a shorter one.
std::vector<Answer> rounds(EngineLoop& loop, const LoadedModel& model, int count, unsigned prompts, int tokens) {
  std::vector<Answer> all;
  for (int round = 0; round < count; ++round) {
    for (unsigned seed = 0; seed < prompts; ++seed) {
      const std::vector<Request> requests = {seeded_request(random_tokens(seed, tokens), 4),
                                             seeded_request(random_tokens(100 + seed, 10), 8)};
      for (Answer& answer : testing::loop_answers(loop, model, requests)) all.push_back(std::move(answer));
    }
  }
  return all;
}

EngineOptions small_cache(size_t pages) {
  EngineOptions o = testing::tiny_options();
  o.threads = 1;
  o.max_num_batched_tokens = 64;
  o.kv_cache_bytes = pages * testing::kTinyPageBytes;
  o.host_cache_bytes = 100 * testing::kTinyPageBytes;
  return o;
}

// Pages leave the cache before they have to, and come back, while passes run; the answers stay.
TEST(Meanwhile, PagesAreCopied) {
  const EngineOptions o = small_cache(24);
  LoadedModel plain(o);
  EngineLoop alone(plain);
  Apart apart(o);
  const std::vector<Answer> expected = rounds(alone, plain, 3, 6, 100),
                            answers = rounds(apart.loop, apart.model, 3, 6, 100);
  for (size_t i = 0; i < answers.size(); ++i) testing::expect_same(expected[i], answers[i], std::to_string(i));
  EngineStats stats;
  apart.loop.write_stats(stats);
  EXPECT_GT(stats.pages_evicted, 30u);
  EXPECT_GT(stats.pages_stored_ahead, 0u);
  EXPECT_GT(stats.pages_loaded, 0u);
  EXPECT_GE(apart.backend.reads_meanwhile, static_cast<int>(stats.pages_stored_ahead));
  EXPECT_GT(apart.backend.uploads_meanwhile, 0);
}

// The emulated GPU fails if a copy touches what a pass that has not ended uses. QUIRE_TEST_DEVICE may name another device.
TEST(Meanwhile, PagesAreCopiedBesideADevicesPass) {
  EngineOptions o = small_cache(7);
  const char* const device = std::getenv("QUIRE_TEST_DEVICE");
  o.device = device ? device : "emulated";
  std::vector<Answer> expected;
  {
    EngineOptions alone = o;
    alone.host_cache_bytes = 0;
    LoadedModel model(alone);
    EngineLoop loop(model);
    expected = rounds(loop, model, 2, 3, 40);
  }
  LoadedModel model(o);
  EngineLoop loop(model);
  const std::vector<Answer> answers = rounds(loop, model, 2, 3, 40);
  for (size_t i = 0; i < answers.size(); ++i) testing::expect_same(expected[i], answers[i], std::to_string(i));
  EngineStats stats;
  loop.write_stats(stats);
  EXPECT_GT(stats.pages_stored_ahead, 0u);
  EXPECT_GT(stats.pages_loaded, 0u);
}

// With a folder, pages are read while the next pass runs, or when nothing is left to compute: all of them get there.
TEST(Meanwhile, FinishedPagesAreKept) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-meanwhile-" + std::to_string(::getpid()));
  EngineOptions o = testing::tiny_options();
  o.cache_dir = folder.string();
  std::vector<Answer> expected, answers;
  {
    Apart apart(o);
    expected = testing::loop_answers(apart.loop, apart.model, {seeded_request(random_tokens(1, 100), 40)});
    EXPECT_GT(apart.backend.reads_meanwhile, 0);
  }
  {
    Apart apart(o);
    answers = testing::loop_answers(apart.loop, apart.model, {seeded_request(random_tokens(1, 100), 40)});
    EngineStats stats;
    apart.loop.write_stats(stats);
    EXPECT_EQ(stats.store_disk_pages, 8u);  // all full pages of 139 computed tokens
    EXPECT_EQ(stats.pages_loaded, 6u);
  }
  testing::expect_same(expected[0], answers[0]);
  std::filesystem::remove_all(folder);
}

// Clients get their outputs in order, also when the outbox is full.
TEST(Outbox, ToldInOrder) {
  Request request = seeded_request(random_tokens(1, 4), 8);
  std::string told;
  const auto state = prepare(
      request, [&](const Output& out) { told += out.text; }, {}, 64);
  const Sequence s(state, 0, request.prompt, nullptr);
  Outbox outbox(3, [](SequenceId) { FAIL(); });
  for (const char* text : {"a", "b", "c", "d"}) {
    Output out;
    out.text = text;
    outbox.add(s, std::move(out));
  }
  EXPECT_EQ(told, "abc");
  outbox.tell();
  EXPECT_EQ(told, "abcd");
  outbox.tell();
  EXPECT_EQ(told, "abcd");
}

}  // namespace
}  // namespace quire
