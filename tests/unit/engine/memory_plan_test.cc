#include "engine/memory_plan.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include "base/error.h"
#include "engine/loaded_model.h"
#include "engine/option_names.h"
#include "error_of.h"
#include "kernels/kernels.h"
#include "sanitizers.h"
#include "unit/engine/drafters.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::golden;
using testing::tiny_model;
using testing::undrafted_options;
using testing::use_mtp;

constexpr size_t kOneGiB = size_t{1} << 30;

EngineOptions options_of(const std::string& model) {
  EngineOptions o = undrafted_options(4, 0);
  o.model = model;
  return o;
}
ModelFacts facts_of(const EngineOptions& o) { return read_model_facts(Checkpoint::open(o.model), o); }
MemoryPlan plan_of(const EngineOptions& o, size_t memory = kOneGiB) {
  return plan_memory(facts_of(o), o, {.memory = memory, .threads = 2});
}

size_t sum(const MemoryPlan& plan) {
  size_t bytes = 0;
  for (const MemoryRow& row : plan.rows()) bytes += row.bytes;
  return bytes;
}

TEST(MemoryPlan, IsThatOfTheLoadedModel) {
  for (const char* name : {"models/llama", "models/gemma2", "models/phimoe", "models/deepseek_v3", "models/qwen3_next",
                           "models/mamba2", "models/lfm2", "models/gpt_oss", "encoders/bert"}) {
    SCOPED_TRACE(name);
    EngineOptions o = options_of(golden(name));
    o.memory_bytes = kOneGiB;
    const LoadedModel model(o);
    const MemoryPlan plan =
        plan_memory(facts_of(o), o,
                    {.memory = kOneGiB, .threads = 2, .activations = model.runtime.backend().default_activations()});
    // Sanitizers make loading take more than any plan.
    EXPECT_EQ(plan.without_cache(), model.plan.without_cache() - model.plan.unplanned);
    if (model.plan.unplanned == 0) {
      EXPECT_EQ(plan.total(), model.plan.total());
    }
    for (const MemoryPlan& p : {plan, model.plan}) {
      EXPECT_EQ(sum(p), p.total());
      EXPECT_LE(p.total(), kOneGiB);
    }
    EXPECT_EQ(model.plan.cache.units, model.cache.units);
    EXPECT_EQ(model.plan.cache.states, model.cache.states);
    EXPECT_EQ(model.plan.cache.max_model_len, model.info.max_model_len);
    EXPECT_EQ(plan.activation_type, model.plan.activation_type);
    EXPECT_GE(plan.weights, model.info.weight_bytes);
    EXPECT_LE(plan.weights, model.info.weight_bytes + model.info.parameters * sizeof(float)) << "and vectors";
  }
}

TEST(MemoryPlan, CountsWhatDraftersTake) {
  struct Case {
    std::string name;
    std::function<void(EngineOptions&)> change;
    bool has_layers;
  };
  const Case cases[] = {
      {"draft", [](EngineOptions& o) { o.draft_model = golden("models/llama"); }, true},
      {"eagle", [](EngineOptions& o) { o.eagle_head = golden("drafters/eagle"); }, true},
      {"medusa", [](EngineOptions& o) { o.medusa_heads = golden("drafters/medusa"); }, false},
      {"mtp", [](EngineOptions& o) { use_mtp(o, "deepseek_v3"); }, true},
      {"early-exit", [](EngineOptions&) {}, false},
      {"ngram", [](EngineOptions&) {}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EngineOptions o = options_of(golden("models/llama"));
    c.change(o);
    o.speculative = Speculation::kOff;
    const MemoryPlan without = plan_of(o);
    o.speculative = *find_value(kSpeculationNames, c.name);
    const ModelFacts facts = facts_of(o);
    const MemoryPlan plan = plan_memory(facts, o, {.memory = kOneGiB, .threads = 2});
    EXPECT_EQ(without.drafters, 0u);
    EXPECT_EQ(plan.drafters > 0, c.name != "early-exit");
    EXPECT_EQ(facts.drafters.layers.has_value(), c.has_layers);
    EXPECT_EQ(plan.layout.layers().size() - without.layout.layers().size(),
              c.has_layers ? facts.drafters.layers->layers.size() : 0u);
    EXPECT_EQ(sum(plan), plan.total());

    o.memory_bytes = kOneGiB;
    const LoadedModel model(o);
    EXPECT_EQ(model.plan.drafters, plan.drafters);
    EXPECT_EQ(model.cache.layout.identity(), plan.layout.identity());
    if (model.draft_model) {
      EXPECT_EQ(model.draft_model->kind(), facts.drafters.named.model);
    }
  }
}

TEST(MemoryPlan, GrowsWithTheOptions) {
  EngineOptions o = options_of(golden("models/llama"));
  o.max_model_len = 128;
  const MemoryPlan base = plan_of(o);
  const auto changed = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions more = o;
    change(more);
    return plan_of(more);
  };
  EXPECT_GT(changed([](auto& m) { m.max_num_seqs = 8; }).activations, base.activations);
  EXPECT_GT(changed([](auto& m) { m.max_num_seqs = 8; }).cache.bytes, base.cache.bytes);
  EXPECT_GT(changed([](auto& m) { m.max_num_batched_tokens = 1024; }).activations, base.activations);
  EXPECT_GT(changed([](auto& m) { m.max_model_len = 256; }).cache.bytes, base.cache.bytes);
  EXPECT_GT(changed([](auto& m) { m.kv_cache_dtype = "f32"; }).cache.bytes, base.cache.bytes);
  size_t larger = base.cache.bytes;
  for (const char* type : {"int8", "fp8", "int4"}) {
    const size_t bytes = changed([&](auto& m) { m.kv_cache_dtype = type; }).cache.bytes;
    EXPECT_LT(bytes, larger) << type;
    larger = bytes;
  }
  EXPECT_GT(changed([](auto& m) { m.host_cache_bytes = 64 * kMiB; }).page_store, base.page_store);
  EXPECT_EQ(changed([](auto& m) { m.reserved_bytes = 200 * kMiB; }).requests, 200 * kMiB);
  EXPECT_GT(plan_memory(facts_of(o), o, {.memory = kOneGiB, .threads = 8}).activations, base.activations);
}

TEST(MemoryPlan, GivesTheCacheWhatTheOthersLeave) {
  EngineOptions o = options_of(golden("models/llama"));
  o.max_num_seqs = 256;
  o.memory_bytes = 1;  // that there is a limit; the machine has it
  ModelFacts facts = facts_of(o);
  const auto plan_in = [&](size_t memory) { return plan_memory(facts, o, {.memory = memory, .threads = 2}); };
  const MemoryPlan whole = plan_in(4 * kOneGiB);
  const size_t tight = whole.total() - whole.cache.bytes / 2;
  const MemoryPlan half = plan_in(tight);
  EXPECT_EQ(half.without_cache(), whole.without_cache());
  EXPECT_LE(half.total(), tight);
  EXPECT_GT(half.total(), tight - 2 * half.layout.unit_bytes());
  facts.unplanned = kMiB;  // as when a vocabulary turns out to be larger
  const MemoryPlan after = plan_in(tight);
  EXPECT_EQ(after.without_cache(), half.without_cache() + kMiB);
  EXPECT_LE(after.total(), tight);
}

// A corpus with a token for each byte takes twice what the plan supposes.
TEST(MemoryPlan, GivesTheCacheLessIfLoadingTakesMoreThanPlanned) {
  if (testing::kAddressSanitizer || testing::kThreadSanitizer) GTEST_SKIP() << "sanitizers keep memory that was freed";
  const fs::path corpus = fs::temp_directory_path() / ("quire-corpus-" + std::to_string(::getpid()));
  {
    std::mt19937 random(3);
    std::string text(size_t{6} << 20, ' ');
    for (char& c : text) c = static_cast<char>('!' + random() % 90);
    std::ofstream(corpus) << text;
  }
  EngineOptions o = options_of(tiny_model());
  o.speculative = Speculation::kCorpus;
  o.speculative_corpus = corpus.string();
  o.max_num_seqs = 512;
  o.memory_bytes = 1;  // that there is a limit
  const MemoryPlan before = plan_of(o, 200 * kMiB);
  o.memory_bytes = 200 * kMiB;
  ::malloc_trim(0);  // what other tests have freed would hide what loading takes
  const LoadedModel model(o);
  fs::remove(corpus);
  EXPECT_GT(model.plan.unplanned, 0u);
  EXPECT_EQ(model.plan.without_cache(), before.without_cache() + model.plan.unplanned);
  EXPECT_LT(model.plan.cache.bytes, before.cache.bytes);
  EXPECT_LE(model.plan.total(), 200 * kMiB);
  EXPECT_EQ(model.memory_share.bytes(), model.plan.total());
  EXPECT_EQ(model.cache.units, model.plan.cache.units);
}

TEST(MemoryPlan, RefusesWhatDoesNotFitWithTheNumbers) {
  EngineOptions o = options_of(golden("models/llama"));
  const ModelFacts facts = facts_of(o);
  const auto error_in = [&](size_t memory) {
    return error_of([&] { plan_memory(facts, o, {.memory = memory, .threads = 2}); });
  };
  const std::string small = error_in(2 * kMiB);
  EXPECT_TRUE(small.starts_with("2 MiB of memory are available, but " + o.model + " needs at least ")) << small;
  EXPECT_NE(small.find("(weights 1, activations "), std::string::npos) << small;
  EXPECT_TRUE(small.ends_with("free some, or lower --max-num-seqs")) << small;
  o.memory_bytes = 2 * kMiB;
  EXPECT_TRUE(error_in(2 * kMiB).ends_with("raise --memory, or lower --max-num-seqs"));
  EXPECT_TRUE(error_in(1000).ends_with("choose a smaller model or weights of fewer bits, or raise --memory"));
  const MemoryPlan least = plan_memory(facts, o, {.memory = kOneGiB, .threads = 2});
  EXPECT_EQ(error_in(least.without_cache() + least.layout.unit_bytes()), "");
  EXPECT_NE(error_in(least.without_cache() + least.layout.unit_bytes() - 1), "");
  o.max_model_len = 1 << 20;
  EXPECT_NE(error_in(kOneGiB).find("was trained for at most"), std::string::npos);
}

TEST(MemoryPlan, RefusesAModelBeforeItsWeightsAreRead) {
  // No weight is a number, which reading them would find.
  const fs::path path = fs::temp_directory_path() / ("quire-damaged-" + std::to_string(::getpid()) + ".gguf");
  fs::copy_file(tiny_model(TensorType::F32), path, fs::copy_options::overwrite_existing);
  {
    const auto bytes = static_cast<std::streamoff>(fs::file_size(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(bytes / 4);
    file << std::string(static_cast<size_t>(bytes - bytes / 4), '\xff');
  }
  EngineOptions o = options_of(path.string());
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("the file is damaged"), std::string::npos);
  o.memory_bytes = plan_of(o).without_cache();
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("needs at least"), std::string::npos);
  fs::remove(path);
}

}  // namespace
}  // namespace quire
