// Mixtures of which the CPU has the first layers, and the experts of some of the emulated GPU's.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/loaded_model.h"
#include "error_of.h"
#include "model/stages/cut_layers.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/beside_a_device.h"
#include "unit/engine/drafters.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/several_ranks.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::all_logits;
using testing::Answer;
using testing::answers_together;
using testing::expect_same;
using testing::golden_kind;
using testing::random_tokens;
using testing::same_bits;
using testing::shared_options;

class SplitMixtures : public ::testing::TestWithParam<const char*> {};

// Within what the golden tests allow between Quire and transformers, wherever the model is cut; and in chunks, to the bit.
TEST_P(SplitMixtures, HaveTheLogitsOfTheCpu) {
  const std::string path = golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const double tolerance = testing::golden_tolerance(path);
  const TokenIds ids = random_tokens(1, 20);
  EngineOptions o = testing::small_options(path);
  o.activations = "f32";
  LoadedModel cpu(o, 64);
  const auto expected = all_logits(cpu, ids, 20);
  for (int on_cpu = 1; on_cpu < cpu.info.layers; ++on_cpu) {
    if (!can_cut_before(cpu.target.config, on_cpu)) continue;
    for (const int with_experts : {on_cpu + 1, kAllCpuMoeLayers}) {
      o = shared_options(path, cpu.info.layers - on_cpu, with_experts);
      o.activations = "f32";
      o.micro_batch_rows = 5;
      LoadedModel shared(o, 64);
      EXPECT_LE(testing::largest_difference(expected, all_logits(shared, ids, 20)), tolerance) << on_cpu << " layers";
    }
  }
  LoadedModel rounded(shared_options(path, 1, kAllCpuMoeLayers), 64);
  EXPECT_TRUE(same_bits(all_logits(rounded, ids, 20), all_logits(rounded, ids, 7)));
}
INSTANTIATE_TEST_SUITE_P(All, SplitMixtures, ::testing::Values("gpt_oss", "deepseek_v3", "olmoe", "gemma4_moe"),
                         [](const auto& info) { return std::string(info.param); });

// The experts of the CPU's own layers are there with any N.
TEST(SplitMixturesOf, TheCpusLayersAreAsWithoutExpertsOnTheCpu) {
  const std::string path = golden_kind("olmoe");
  const TokenIds ids = random_tokens(1, 20);
  LoadedModel split(shared_options(path, 1, 0), 64);
  const int on_cpu = split.info.layers - 1;
  LoadedModel same(shared_options(path, 1, on_cpu), 64), more(shared_options(path, 1, on_cpu + 1), 64);
  EXPECT_EQ(same.info.cpu_moe_layers, 0);
  EXPECT_EQ(same.cache_identity, split.cache_identity);
  EXPECT_EQ(same.host_experts, nullptr);
  EXPECT_TRUE(same_bits(all_logits(split, ids, 20), all_logits(same, ids, 20)));
  EXPECT_EQ(more.info.cpu_moe_layers, on_cpu + 1);
  EXPECT_EQ(more.info.gpu_layers, 1);
  EXPECT_NE(more.cache_identity, split.cache_identity);
  all_logits(more, ids, 20);
  EXPECT_GT(more.host_experts->moved_bytes(), 0u);
}

TEST(SplitMixturesOf, TwoPlacesAnswerAloneAsInABatch) {
  for (const char* kind : {"deepseek_v3", "qwen3_5_moe_nested"})
    testing::expect_the_same_alone_and_together(shared_options(golden_kind(kind), 2, kAllCpuMoeLayers), kind);
}

// The drafter's own experts stay on the device.
TEST(SplitMixturesOf, TwoPlacesAnswerAlikeWithEveryDrafter) {
  for (const std::string drafter : {"draft", "mtp"}) {
    EngineOptions drafted = testing::drafted_options([&](EngineOptions& o) {
      o.model = golden_kind("deepseek_v3");
      if (drafter == "draft") o.speculative = Speculation::kDraft, o.draft_model = o.model;
      if (drafter == "mtp") testing::use_mtp(o, "deepseek_v3");
      o.device = "emulated";
      o.gpu_layers = 1;
      o.cpu_moe_layers = kAllCpuMoeLayers;
    });
    EngineOptions plain = drafted;
    plain.speculative = Speculation::kOff;
    const std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 8),
                                           seeded_request(random_tokens(2, 33), 8)};
    Engine one(plain), other(drafted);
    const auto expected = answers_together(one, requests), got = answers_together(other, requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same(expected[i][0], got[i][0], drafter + std::to_string(i));
    EXPECT_GT(other.stats().drafters.at(0).drafted.at(0), 0u) << drafter;
    EXPECT_GT(other.stats().moved_expert_bytes, 0u);
  }
}

TEST(SplitMixturesOf, TwoPlacesTakeThePlannedMemory) {
  for (const char* kind : {"gpt_oss", "deepseek_v3", "gemma4_moe"}) {
    const std::string path = golden_kind(kind);
    const WeightTotals totals = check_weights(Checkpoint::open(path), read_model_config(Checkpoint::open(path)));
    const auto layers = static_cast<int>(totals.layer_bytes.size());
    const LoadedModel model(shared_options(path, 1, kAllCpuMoeLayers), 64), without(shared_options(path, 1, 0), 64);
    const MemoryPlan& plan = model.plan;
    const Weights& weights = model.target.weights;
    EXPECT_EQ(plan.host_expert_layers(), (LayerRange{layers - 1, layers})) << kind;
    // What leaves the device comes to the host.
    EXPECT_EQ(plan.weights + plan.host->weights, without.plan.weights + without.plan.host->weights) << kind;
    EXPECT_EQ(without.plan.weights - plan.weights, totals.expert_bytes.back()) << kind;
    EXPECT_GT(weights.host_bytes, 0u) << kind;
    EXPECT_LE(weights.host_bytes, totals.expert_bytes.back()) << kind;
    EXPECT_EQ(weights.matrix_bytes + weights.host_bytes, without.target.weights.matrix_bytes) << kind;
    EXPECT_EQ(model.cpu_layers->weights.matrix_bytes, plan.stages[0].weights) << kind;
    EXPECT_EQ(model.cpu_layers->weights.host_bytes, 0u) << kind;
    EXPECT_GT(plan.host->activations, without.plan.host->activations) << kind;
    const size_t device_memory = size_t{1} << 30, taken = device_memory - *model.runtime.device->own_memory();
    EXPECT_LE(taken, plan.total()) << kind;
    EXPECT_GT(taken, plan.total() - plan.total() / 8) << kind;
    EXPECT_EQ(model.host_share.bytes(), plan.host->total()) << kind;
    EXPECT_LE(plan.host->total(), plan.host->budget) << kind;
    EXPECT_EQ(model.info.weight_bytes, without.info.weight_bytes) << kind;
    EXPECT_EQ(model.info.kv_cache_bytes, plan.cache.bytes + plan.host->cache) << kind;
  }
}

TEST(SplitMixturesOf, TwoPlacesAreMappedFromPacksOfTheirOwn) {
  const fs::path folder = fs::temp_directory_path() / ("quire-split-packs-" + std::to_string(::getpid()));
  EngineOptions o = shared_options(golden_kind("gpt_oss"), 1, kAllCpuMoeLayers);
  o.pack_cache = folder.string();
  const TokenIds ids = random_tokens(3, 12);
  std::vector<float> logits;
  for (int start = 0; start < 2; ++start) {
    LoadedModel model(o, 64);
    if (start == 0) logits = all_logits(model, ids, 12);
    EXPECT_TRUE(same_bits(logits, all_logits(model, ids, 12))) << start;
    EXPECT_EQ(model.target.weights.host_mapped.has_value(), start == 1);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 3);
  }
  fs::remove_all(folder);
}

// Plans for a device of this memory, as pure functions.
MemoryPlan plan_split(const EngineOptions& o, size_t device, size_t host = size_t{1} << 30) {
  return plan_memory(read_model_facts(Checkpoint::open(o.model), o), o,
                     {.memory = device, .threads = 2, .reads_experts = false, .own_memory = true, .host_memory = host});
}

// With the experts on the CPU, a device has room for more layers.
TEST(SplitMixturesPlan, TakesTheMostLayersThatFitWithoutTheirExperts) {
  const std::string path = golden_kind("olmoe");
  const auto plan = [&](int gpu_layers, int cpu_moe_layers, size_t memory) {
    EngineOptions o = shared_options(path, gpu_layers, cpu_moe_layers);
    o.kv_cache_bytes = size_t{1} << 20;
    return plan_split(o, memory);
  };
  constexpr size_t kAll = size_t{1} << 30;
  const size_t memory = std::max(plan(1, 0, kAll).total(), plan(kAllGpuLayers, kAllCpuMoeLayers, kAll).total());
  const int all = plan(kAllGpuLayers, 0, kAll).gpu_layers;
  EXPECT_LT(plan(kAutoGpuLayers, 0, memory).gpu_layers, all);
  EXPECT_EQ(plan(kAutoGpuLayers, kAllCpuMoeLayers, memory).gpu_layers, all);
}

TEST(SplitMixturesPlan, KeepsToTheMemoryOfTheHost) {
  EngineOptions o = shared_options(golden_kind("olmoe"), 1, kAllCpuMoeLayers);
  const size_t device = size_t{1} << 30;
  size_t host = size_t{1} << 20;
  const auto error_with = [&] { return error_of([&] { plan_split(o, device, host); }); };
  for (; !error_with().empty(); host += size_t{1} << 18) ASSERT_LT(host, size_t{1} << 30);
  host -= size_t{1} << 18;
  EXPECT_NE(error_with().find(": raise --gpu-layers or --memory, or lower --n-cpu-moe"), std::string::npos)
      << error_with();
}

}  // namespace
}  // namespace quire
