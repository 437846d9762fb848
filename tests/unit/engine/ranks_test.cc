// Any number of ranks gives the bits of one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/ranks/rank_group.h"
#include "engine/step/replay.h"
#include "error_of.h"
#include "kernels/kernels.h"
#include "model/registry.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/drafters.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/several_ranks.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::all_logits;
using testing::answers_together;
using testing::expect_same;
using testing::random_tokens;
using testing::same_bits;

EngineOptions rank_options(std::string model, int ranks, int threads = 2) {
  EngineOptions o = testing::small_options(std::move(model));
  o.tensor_parallel_size = ranks;
  o.threads = threads;
  return o;
}

class RankKinds : public ::testing::TestWithParam<const char*> {};

// Heads, KV heads, experts and widths of tiny models are few, so that shares are uneven, and some are empty.
TEST_P(RankKinds, HaveTheLogitsOfOne) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 40);
  LoadedModel one(rank_options(path, 1), 64);
  const auto expected = all_logits(one, ids, 20);
  for (const int ranks : {2, 3, 5}) {
    LoadedModel several(rank_options(path, ranks, ranks == 2 ? 4 : 3), 64);
    EXPECT_TRUE(same_bits(expected, all_logits(several, ids, 40))) << ranks << " ranks";
    if (ranks == 5) continue;
    EXPECT_TRUE(same_bits(expected, all_logits(several, ids, 7))) << ranks << " ranks, in chunks";
  }
}
INSTANTIATE_TEST_SUITE_P(All, RankKinds, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

TEST(Ranks, HaveTheLogitsOfOneWithAnyWeightsAndRounding) {
  const TokenIds ids = random_tokens(2, 40);
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q6_K, TensorType::IQ4_XS, TensorType::BF16}) {
    for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
      EngineOptions o = rank_options(testing::tiny_model(type), 1);
      o.activations = activations;
      LoadedModel one(o, 64);
      o.tensor_parallel_size = 3;
      LoadedModel several(o, 64);
      EXPECT_TRUE(same_bits(all_logits(one, ids, 40), all_logits(several, ids, 17)))
          << name(type) << " " << activations;
    }
  }
}

TEST(Ranks, HaveTheLogitsOfOneOnEveryKernelSet) {
  const TokenIds ids = random_tokens(3, 30);
  for (const KernelSet* set : available_kernels()) {
    EngineOptions o = rank_options(testing::tiny_model(), 1);
    o.kernels = set->name;
    LoadedModel one(o, 64);
    o.tensor_parallel_size = 2;
    LoadedModel several(o, 64);
    EXPECT_TRUE(same_bits(all_logits(one, ids, 30), all_logits(several, ids, 7))) << set->name;
  }
}

// A unit's bytes do not depend on the number of ranks, as a whole or in parts, with any type of numbers.
TEST(Ranks, KeepUnitsInOneLayout) {
  const TokenIds ids = random_tokens(4, 16);
  for (const char* kv : {"f32", "f16", "bf16", "int8", "int4", "fp8"}) {
    for (const char* kind : {"mistral", "gemma3_text", "deepseek_v3", "qwen3_next"}) {
      EngineOptions o = rank_options(testing::golden_kind(kind), 1);
      o.kv_cache_dtype = kv;
      LoadedModel one(o, 64);
      o.tensor_parallel_size = 2;
      LoadedModel several(o, 64);
      all_logits(one, ids, 16);
      all_logits(several, ids, 16);
      const CacheLayout& layout = one.cache.layout;
      for (int group = 0; group < static_cast<int>(layout.groups().size()); ++group) {
        size_t used = 0;  // of the unit, by the group's layers
        for (const int layer : layout.groups()[static_cast<size_t>(group)].layers)
          used += page_bytes(layout.type(), layout.layers()[static_cast<size_t>(layer)]);
        const CachePlace whole{.group = group, .index = group, .offset = 0, .size = used};
        const std::vector<std::byte> expected = testing::bytes_at(one.executor(), whole);
        const auto same = [&](const CachePlace& place) {
          return std::ranges::equal(testing::bytes_at(several.executor(), place),
                                    std::span(expected).subspan(place.offset, place.size));
        };
        EXPECT_TRUE(same(whole)) << kind << " " << kv;
        EXPECT_TRUE(same({.group = group, .index = group, .offset = 24, .size = used - 40})) << kind << " " << kv;
        // And back, to another unit.
        CachePlace other = whole;
        other.index += static_cast<int>(layout.groups().size());
        several.executor().write(other, expected);
        EXPECT_TRUE(same(other)) << kind << " " << kv;
      }
      if (layout.state_bytes() == 0) continue;
      const CachePlace state{.of_state = true, .index = 0, .offset = 0, .size = layout.state_bytes()};
      EXPECT_EQ(testing::bytes_at(several.executor(), state), testing::bytes_at(one.executor(), state))
          << kind << " " << kv;
    }
  }
}

TEST(Ranks, AnswerAsOneWithEveryDrafter) {
  for (EngineOptions o : testing::options_of_all_drafters()) {
    const EngineOptions one = o;
    o.tensor_parallel_size = 3;
    testing::expect_same_answers(one, o, o.model + " drafter " + std::to_string(static_cast<int>(o.speculative)));
  }
}

// Pages that one rank has kept on disk serve several, and the other way round.
TEST(Ranks, ReadTheKeptPagesOfAnyNumber) {
  const fs::path folder = fs::temp_directory_path() / ("quire-ranks-" + std::to_string(::getpid()));
  EngineOptions o = rank_options(testing::golden_kind("mistral"), 1);
  o.cache_dir = folder.string();
  const Request request = seeded_request(random_tokens(9, 70), 8);
  const auto run = [&](int ranks) {
    o.tensor_parallel_size = ranks;
    Engine engine(o);
    const testing::Answer answer = testing::answer(engine, request);
    return std::pair{answer, answer.last.usage.cached_tokens};
  };
  const auto [cold, none] = run(2);
  EXPECT_EQ(none, 0);
  for (const int ranks : {1, 2, 3}) {
    const auto [warm, cached] = run(ranks);
    expect_same(cold, warm, std::to_string(ranks) + " ranks");
    EXPECT_GE(cached, 64) << ranks;
  }
  fs::remove_all(folder);
}

TEST(Ranks, ReplayARecordingOfAnyNumber) {
  const fs::path file = fs::temp_directory_path() / ("quire-ranks-" + std::to_string(::getpid()) + ".jsonl");
  EngineOptions o = rank_options(testing::golden_kind("qwen3_next"), 3);
  o.record = file.string();
  {
    Engine engine(o);
    answers_together(engine, testing::mixed_requests());
  }
  for (const int ranks : {1, 2}) {
    Runtime runtime(o);
    RecordingReader reader(file.string());
    const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.model));
    Model model = read_model(checkpoint);
    model.weights =
        load_weights(checkpoint, model.config, runtime.backend(), runtime.team, {.memory = runtime.memory.left()});
    Replay replay(reader.header(), model, runtime, ranks);
    while (const auto step = reader.next()) EXPECT_FALSE(replay.run(*step)) << ranks << " ranks";
    EXPECT_GT(replay.logits(), 20u);
  }
  fs::remove(file);
}

TEST(Ranks, TakeThePlannedMemory) {
  for (const char* kind : {"mistral", "gemma3_text", "deepseek_v3", "qwen3_next"}) {
    const LoadedModel model(rank_options(testing::golden_kind(kind), 3), 64);
    size_t cache = 0;
    for (int rank = 0; rank < 3; ++rank) cache += model.ranks->rank(rank).cache().bytes();
    EXPECT_EQ(cache, model.plan.cache.bytes) << kind;
    EXPECT_EQ(model.info.ranks, 3);
  }
}

TEST(Ranks, CountWhatTheyGather) {
  LoadedModel model(rank_options(testing::golden_kind("mistral"), 2), 64);
  all_logits(model, random_tokens(1, 8), 8);
  const GatherCounts eight = model.ranks->gathered();
  EXPECT_GT(eight.gathers, 0u);
  all_logits(model, random_tokens(1, 16), 16);
  const GatherCounts sixteen = model.ranks->gathered() - eight;
  EXPECT_EQ(sixteen.gathers, eight.gathers);
  EXPECT_EQ(sixteen.bytes, 2 * eight.bytes);
}

TEST(RankGroup, ThrowsWhatOneRankHasThrownAndGoesOn) {
  Team team(1);
  const CpuBackend cpu("auto", team);
  RankGroup group(cpu, 3, 3);
  std::vector<std::vector<float>> memory(3, std::vector<float>(3));
  const auto gather = [&](int rank) {
    std::vector<float>& mine = memory[static_cast<size_t>(rank)];
    mine.assign(3, -1);
    mine[static_cast<size_t>(rank)] = static_cast<float>(rank);
    const SharedColumns parts[] = {{Rows{mine.data(), 3, 3}, 3, 1}};
    group.communicator(rank).gather(parts, 1);
  };
  for (int failing = 0; failing < 3; ++failing) {
    try {
      group.run([&](int rank) {
        gather(rank);
        if (rank == failing) throw std::runtime_error("rank " + std::to_string(rank));
        gather(rank);
      });
      ADD_FAILURE();
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "rank " + std::to_string(failing));
    }
    group.run(gather);
    for (const auto& mine : memory) EXPECT_EQ(mine, (std::vector<float>{0, 1, 2}));
  }
}

TEST(Ranks, AreRefusedWhereTheyCannotWork) {
  EngineOptions o = rank_options(testing::tiny_model(), 65);
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("--tensor-parallel-size must be between 1 and 64"),
            std::string::npos);
  o.tensor_parallel_size = 0;
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("not 0"), std::string::npos);
}

}  // namespace
}  // namespace quire
