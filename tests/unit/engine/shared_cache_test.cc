// Engines that share a tier of the page store.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "engine/cache/shared_tier.h"
#include "error_of.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;

class SharedCacheTest : public ::testing::Test {
 protected:
  ~SharedCacheTest() override { std::filesystem::remove_all(folder_); }

  EngineOptions options(const std::string& model = {}) const {
    EngineOptions o = tiny_options();
    if (!model.empty()) o.model = model;
    o.shared_cache = "file://" + folder_.string();
    return o;
  }
  // Waits until the store has written all that it will.
  static void expect_written(const Engine& engine) {
    uint64_t before = 0;
    for (int same = 0, i = 0; same < 5 && i < 1000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const uint64_t now = engine.stats().shared_written_bytes;
      same = now > 0 && now == before ? same + 1 : 0;
      before = now;
    }
    EXPECT_GT(before, 0u);
  }
  // Of a new engine. A machine that stands still may miss the answer of the store, so it may try again.
  static Answer first_answer(const EngineOptions& o, const Request& r, int at_least) {
    Answer a;
    for (int i = 0; i < 5; ++i) {
      Engine engine(o);
      a = answer(engine, r);
      if (a.last.usage.cached_tokens >= at_least) {
        EXPECT_GT(engine.stats().shared_hits, 0u);
        break;
      }
    }
    return a;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("quire-shared-cache-" + std::to_string(::getpid()));
};

TEST_F(SharedCacheTest, APrefixOfOneEngineIsAHitOnAnotherForEachKindOfLayer) {
  std::vector<std::string> models{testing::tiny_model()};
  for (const std::string name : testing::kGoldenKinds) models.push_back(testing::golden_kind(name));
  for (const std::string& model : models) {
    if (!testing::is_known(model)) continue;
    const Request r = seeded_request(random_tokens(3, 100));
    Engine one(options(model));
    const Answer cold = answer(one, r);
    EXPECT_EQ(cold.last.usage.cached_tokens, 0) << model;
    expect_written(one);
    const Answer warm = first_answer(options(model), r, 96);
    EXPECT_EQ(warm.last.usage.cached_tokens, 96) << model;
    expect_same(cold, warm, model);
  }
}

TEST_F(SharedCacheTest, AnEngineThatRunsAlreadySeesWhatAnotherComputes) {
  Engine one(options()), other(options());
  int hits = 0;
  for (unsigned i = 0; i < 10; ++i) {
    const Request r = seeded_request(random_tokens(20 + i, 300));
    const Answer cold = answer(one, r);
    expect_written(one);
    const Answer warm = answer(other, r);
    hits += warm.last.usage.cached_tokens >= 288;
    expect_same(cold, warm);
  }
  EXPECT_GE(hits, 5) << "of 10; a machine that stands still may miss some";
}

TEST_F(SharedCacheTest, SharesNothingBetweenModelsRoundingsCachesTenantsAndSalts) {
  const Request r = seeded_request(random_tokens(8, 300));
  Engine one(options());
  answer(one, r);
  expect_written(one);
  const std::string usual = one.info().activations;
  std::vector<EngineOptions> others{options(testing::tiny_model(TensorType::Q8_0)), options(), options()};
  others[1].activations = usual == "bf16" ? "int8" : "bf16";
  others[2].kv_cache_dtype = "f16";
  for (const EngineOptions& o : others) {
    Engine other(o);
    EXPECT_EQ(answer(other, r).last.usage.cached_tokens, 0);
    EXPECT_EQ(other.stats().shared_hits, 0u);
  }
  Engine same(options());
  Request tenant = r, salted = r;
  tenant.tenant = "another";
  salted.cache_salt = "another";
  EXPECT_EQ(answer(same, tenant).last.usage.cached_tokens, 0);
  EXPECT_EQ(answer(same, salted).last.usage.cached_tokens, 0);
}

TEST_F(SharedCacheTest, WorksWithoutItsServer) {
  EngineOptions o = options();
  o.shared_cache = "redis://127.0.0.1:1";  // nothing listens there
  Engine engine(o);
  const Request r = seeded_request(random_tokens(8, 300));
  const Answer cold = answer(engine, r), again = answer(engine, r);
  EXPECT_GE(again.last.usage.cached_tokens, 288) << "from its own tree";
  expect_same(cold, again);
  EXPECT_GT(engine.stats().shared_errors, 0u);
}

TEST_F(SharedCacheTest, RefusesWhatItCannotShareWith) {
  EngineOptions both = options();
  both.cache_dir = folder_.string() + "-own";
  EXPECT_NE(error_of([&] { Engine engine(both); }).find("takes the place of --cache-dir"), std::string::npos);
  EngineOptions wrong = options();
  wrong.shared_cache = "s3://bucket";
  EXPECT_NE(error_of([&] { Engine engine(wrong); }).find("a shared cache is"), std::string::npos);
}

TEST(SharedCacheUrl, NamesAFolderOrAServer) {
  EXPECT_EQ(std::get<SharedFolder>(parse_shared_cache("file:///mnt/a%20b/c")).path, "/mnt/a b/c");
  EXPECT_EQ(std::get<RedisUrl>(parse_shared_cache("redis://cache:7000/2")).port, "7000");
  for (const char* const wrong : {"", "/mnt/cache", "file://cache", "http://cache", "redis:cache", "unix:///socket"})
    EXPECT_NE(error_of([&] { parse_shared_cache(wrong); }), "") << wrong;
}

}  // namespace
}  // namespace quire
