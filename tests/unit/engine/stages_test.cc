// Any number of stages, and any cut of steps into micro-batches, gives the bits of one.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/ranks/stage_group.h"
#include "error_of.h"
#include "model/stages/cut_layers.h"
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
using testing::expect_same;
using testing::random_tokens;
using testing::same_bits;

EngineOptions stage_options(std::string model, int stages, int micro_batch_rows = 1) {
  EngineOptions o = testing::small_options(std::move(model));
  o.pipeline_parallel_size = stages;
  o.micro_batch_rows = micro_batch_rows;
  return o;
}

// The most stages that a model can be cut into.
int most_stages(const LoadedModel& model) {
  WeightTotals even;
  even.layer_bytes.assign(model.target.config.layers.size(), 1);
  int stages = 1;
  while (stages < 5 && error_of([&] { cut_layers(model.target.config, even, stages + 1); }).empty()) ++stages;
  return stages;
}

class StageKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(StageKinds, HaveTheLogitsOfOne) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 40);
  LoadedModel one(stage_options(path, 1), 64);
  const auto expected = all_logits(one, ids, 20);
  const int most = most_stages(one);
  for (const int stages : {2, 3, 5}) {
    if (stages > most) continue;
    LoadedModel several(stage_options(path, stages, stages == 2 ? 3 : 1), 64);
    EXPECT_TRUE(same_bits(expected, all_logits(several, ids, 40))) << stages << " stages";
    EXPECT_TRUE(same_bits(expected, all_logits(several, ids, 7))) << stages << " stages, in chunks";
  }
}
INSTANTIATE_TEST_SUITE_P(All, StageKinds, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

TEST(Stages, HaveTheLogitsOfOneWithAnyWeightsAndRounding) {
  const TokenIds ids = random_tokens(2, 40);
  for (const TensorType type : {TensorType::Q4_1, TensorType::IQ4_XS, TensorType::BF16}) {
    for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
      EngineOptions o = stage_options(testing::tiny_model(type), 1);
      o.activations = activations;
      LoadedModel one(o, 64);
      o.pipeline_parallel_size = 2;
      LoadedModel several(o, 64);
      EXPECT_TRUE(same_bits(all_logits(one, ids, 40), all_logits(several, ids, 17)))
          << name(type) << " " << activations;
    }
  }
}

// A unit's and a state's bytes do not depend on the number of stages, as a whole or in parts, with any type of numbers.
TEST(Stages, KeepUnitsInOneLayout) {
  const TokenIds ids = random_tokens(4, 16);
  for (const char* kv : {"f32", "f16", "bf16", "int8", "int4", "fp8"}) {
    for (const char* kind : {"mistral", "gemma3_text", "deepseek_v3", "qwen3_next"}) {
      EngineOptions o = stage_options(testing::golden_kind(kind), 1);
      o.kv_cache_dtype = kv;
      LoadedModel one(o, 64);
      o.pipeline_parallel_size = 2;
      LoadedModel several(o, 64);
      all_logits(one, ids, 16);
      all_logits(several, ids, 16);
      const CacheLayout& layout = one.cache.layout;
      std::vector<CachePlace> places;
      for (int group = 0; group < static_cast<int>(layout.groups().size()); ++group) {
        size_t used = 0;  // of the unit, by the group's layers
        for (const int layer : layout.groups()[static_cast<size_t>(group)].layers)
          used += page_bytes(layout.type(), layout.layers()[static_cast<size_t>(layer)]);
        places.push_back({.group = group, .index = group, .offset = 0, .size = used});
      }
      if (layout.state_bytes() > 0)
        places.push_back({.of_state = true, .index = 0, .offset = 0, .size = layout.state_bytes()});
      for (CachePlace place : places) {
        const std::vector<std::byte> expected = testing::bytes_at(one.executor(), place);
        EXPECT_TRUE(std::ranges::any_of(expected, [](std::byte b) { return b != std::byte{0}; })) << kind << " " << kv;
        EXPECT_EQ(testing::bytes_at(several.executor(), place), expected) << kind << " " << kv;
        CachePlace part = place;
        part.offset = 24;
        part.size = place.size - 40;
        EXPECT_TRUE(
            std::ranges::equal(testing::bytes_at(several.executor(), part), std::span(expected).subspan(24, part.size)))
            << kind << " " << kv;
        // And back, to another unit or state.
        place.index += place.of_state ? 1 : static_cast<int>(layout.groups().size());
        several.executor().write(place, expected);
        EXPECT_EQ(testing::bytes_at(several.executor(), place), expected) << kind << " " << kv;
      }
    }
  }
}

TEST(Stages, AnswerAsOneWithAnyMicroBatches) {
  for (const char* kind : {"mistral", "qwen3_next", "gemma3n_text"}) {
    const std::string path = testing::golden_kind(kind);
    for (const int rows : {1, 4, 1000})
      testing::expect_same_answers(stage_options(path, 1), stage_options(path, 2, rows), kind + std::to_string(rows));
  }
}

TEST(Stages, AnswerAsOneWithEveryDrafter) {
  EngineOptions recurrent = stage_options(testing::golden_kind("qwen3_next"), 1);
  recurrent.speculate_always = true;
  recurrent.speculative = Speculation::kNgram;  // so that states take in drafts that were right
  const EngineOptions choices[] = {
      recurrent,
      testing::drafted_options([](EngineOptions& o) { o.speculative = Speculation::kNgram; }),
      testing::drafted_options([](EngineOptions& o) {
        o.speculative = Speculation::kDraft;
        o.draft_model = o.model;
      }),
      testing::drafted_options([](EngineOptions& o) { testing::use_mtp(o, "deepseek_v3"); }),
  };
  for (EngineOptions o : choices) {
    const EngineOptions one = o;
    o.pipeline_parallel_size = 2;
    o.micro_batch_rows = 2;
    testing::expect_same_answers(one, o, o.model + " drafter " + std::to_string(static_cast<int>(o.speculative)));
  }
}

// Pages that one executor has kept on disk serve stages, and the other way round.
TEST(Stages, ReadTheKeptPagesOfAnyNumber) {
  const fs::path folder = fs::temp_directory_path() / ("quire-stages-" + std::to_string(::getpid()));
  for (const char* kind : {"mistral", "qwen3_next"}) {
    EngineOptions o = stage_options(testing::golden_kind(kind), 1);
    o.cache_dir = folder.string();
    const Request request = seeded_request(random_tokens(9, 70), 8);
    const auto run = [&](int stages) {
      o.pipeline_parallel_size = stages;
      Engine engine(o);
      const testing::Answer answer = testing::answer(engine, request);
      return std::pair{answer, answer.last.usage.cached_tokens};
    };
    const auto [cold, none] = run(2);
    EXPECT_EQ(none, 0);
    for (const int stages : {1, 2}) {
      const auto [warm, cached] = run(stages);
      expect_same(cold, warm, kind + std::to_string(stages));
      EXPECT_GE(cached, 64) << kind << stages;
    }
    fs::remove_all(folder);
  }
}

TEST(Stages, TakeThePlannedMemory) {
  for (const char* kind : {"mistral", "gemma3_text", "deepseek_v3", "qwen3_next"}) {
    const LoadedModel model(stage_options(testing::golden_kind(kind), 2), 64);
    size_t cache = 0;
    for (int stage = 0; stage < 2; ++stage) {
      const size_t own = model.stages->stage(stage).cache().bytes();
      EXPECT_EQ(own, model.plan.stages[static_cast<size_t>(stage)].cache) << kind;
      cache += own;
    }
    EXPECT_EQ(cache, model.plan.cache.bytes) << kind;
    EXPECT_EQ(model.info.stages, 2);
  }
}

TEST(Stages, SendEachRowOnceOverEachBorder) {
  LoadedModel model(stage_options(testing::golden_kind("mistral"), 2), 64);
  const size_t row = model.plan.stages[0].sent_bytes;
  EXPECT_EQ(row, static_cast<size_t>(model.info.hidden) * sizeof(float));
  all_logits(model, random_tokens(1, 24), 24);
  EXPECT_EQ(model.stage_bytes(), 24 * row);
}

TEST(StageGroup, ThrowsWhatOneStageHasThrownAndGoesOn) {
  Team team(1);
  const CpuBackend cpu("auto", team);
  const int widths[] = {2, 2};
  StageGroup group(cpu, 3, widths, 4);
  const auto pass = [&](int stage) {
    std::vector<float> row = {1, 2};
    const Rows rows{row.data(), 2, 2};
    for (int part = 0; part < 4; ++part) {
      if (stage > 0) group.link(stage).receive({&rows, 1}, part, 1);
      for (float& x : row) x += static_cast<float>(part);
      if (stage < 2) group.link(stage).send({&rows, 1}, part, 1);
    }
    return row[0];
  };
  for (int failing = 0; failing < 3; ++failing) {
    try {
      group.run([&](int stage) {
        if (stage == failing) throw std::runtime_error("stage " + std::to_string(stage));
        pass(stage);
      });
      ADD_FAILURE();
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "stage " + std::to_string(failing));
    }
    std::vector<float> results(3);
    group.run([&](int stage) { results[static_cast<size_t>(stage)] = pass(stage); });
    EXPECT_EQ(results, (std::vector<float>{7, 10, 13}));  // what the stage before had, and its own 3
  }
}

TEST(Stages, AreRefusedWhereTheyCannotWork) {
  const auto error_with = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions o = stage_options(testing::golden_kind("mistral"), 2);
    change(o);
    return error_of([&] { LoadedModel model(o); });
  };
  EXPECT_EQ(error_with([](EngineOptions&) {}), "");
  EXPECT_NE(error_with([](EngineOptions& o) { o.pipeline_parallel_size = 0; }).find("between 1 and 64, not 0"),
            std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.pipeline_parallel_size = 64; }).find("layers; use at most"),
            std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.tensor_parallel_size = 2; }).find("cannot be combined"),
            std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.micro_batch_rows = 0; }).find("at least 1, not 0"), std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.speculative = Speculation::kEarlyExit; }).find("early-exit"),
            std::string::npos);
}

}  // namespace
}  // namespace quire
