// Models of which the CPU has the first layers and the emulated GPU the last ones.

#include "engine/ranks/gpu_layers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
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
using testing::largest_difference;
using testing::random_tokens;
using testing::same_bits;
using testing::shared_options;

int layers_of(const std::string& model) {
  return static_cast<int>(read_model_config(Checkpoint::open(model)).layers.size());
}

class GpuLayerKinds : public ::testing::TestWithParam<const char*> {};

// Within what the golden tests allow between Quire and transformers, wherever the model is cut; and in chunks, to the bit.
TEST_P(GpuLayerKinds, HaveTheLogitsOfTheCpu) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const double tolerance = testing::golden_tolerance(path);
  const TokenIds ids = random_tokens(1, 24);
  EngineOptions o = testing::small_options(path);
  o.activations = "f32";
  LoadedModel cpu(o, 64);
  const auto expected = all_logits(cpu, ids, 24);
  for (int layers = 1; layers < cpu.info.layers; ++layers) {
    if (!can_cut_before(cpu.target.config, cpu.info.layers - layers)) continue;
    o = shared_options(path, layers);
    o.activations = "f32";
    o.micro_batch_rows = 5;
    LoadedModel shared(o, 64);
    EXPECT_LE(largest_difference(expected, all_logits(shared, ids, 24)), tolerance) << layers << " layers";
    if (layers > 1) continue;
    o.activations = "auto";
    LoadedModel rounded(o, 64);
    EXPECT_TRUE(same_bits(all_logits(rounded, ids, 24), all_logits(rounded, ids, 7)));
  }
}
INSTANTIATE_TEST_SUITE_P(All, GpuLayerKinds, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

// Each computes by its own rules: the CPU's default is not the device's, and a given type is for both.
TEST(GpuLayers, RoundInputsAsTheirDeviceDoes) {
  const LoadedModel usual(shared_options(testing::golden_kind("mistral"), 1), 64);
  EXPECT_EQ(usual.plan.activation_type, Activations::kBf16);
  EXPECT_EQ(usual.plan.host->activation_type, usual.runtime.cpu.default_activations());
  EngineOptions o = shared_options(testing::golden_kind("mistral"), 1);
  o.activations = "f32";
  const LoadedModel given(o, 64);
  EXPECT_EQ(given.plan.activation_type, Activations::kF32);
  EXPECT_EQ(given.plan.host->activation_type, Activations::kF32);
  o.activations = "int8";
  const LoadedModel int8(o, 64);
  EXPECT_EQ(int8.plan.activation_type, Activations::kInt8);
  EXPECT_EQ(int8.plan.host->activation_type, Activations::kInt8);
  o.activations = "int8x2";
  EXPECT_NE(error_of([&] { LoadedModel model(o, 64); }).find("use bf16, f32, int8 or fp8"), std::string::npos);
}

// Whatever the rows of a step, which decide the kernel; near the CPU's, whose norms round differently.
TEST(GpuLayers, MultiplyInt8InputsLikeTheCpu) {
  const TokenIds ids = random_tokens(2, 40);
  for (const TensorType type : {TensorType::Q4_0, TensorType::Q8_0, TensorType::Q4_K, TensorType::Q6_K}) {
    SCOPED_TRACE(info(type).name);
    EngineOptions o = shared_options(testing::tiny_model(type), 0);
    o.activations = "int8";
    LoadedModel cpu(o, 64);
    const std::vector<float> expected = all_logits(cpu, ids, 40);
    o.gpu_layers = layers_of(o.model);
    LoadedModel model(o, 64);
    EXPECT_EQ(model.plan.activation_type, Activations::kInt8);
    const std::vector<float> got = all_logits(model, ids, 40);
    EXPECT_TRUE(same_bits(got, all_logits(model, ids, 7)));
    EXPECT_TRUE(same_bits(got, all_logits(model, ids, 1)));
    double size = 0;
    for (const float v : expected) size = std::max(size, std::abs(double{v}));
    EXPECT_LE(largest_difference(got, expected), 0.05 * size);
  }
}

TEST(GpuLayers, AnswerAloneAsInABatch) {
  for (const char* kind : {"llama", "qwen3_next"})
    testing::expect_the_same_alone_and_together(shared_options(testing::golden_kind(kind), 2), kind);
}

TEST(GpuLayers, AnswerAlikeWithEveryDrafter) {
  const auto split = [](EngineOptions o) {
    o.device = "emulated";
    o.gpu_layers = 1;
    return o;
  };
  for (const std::string drafter : {"ngram", "draft", "mtp"}) {
    EngineOptions drafted = split(testing::drafted_options([&](EngineOptions& o) {
      if (drafter == "ngram") o.speculative = Speculation::kNgram;
      if (drafter == "draft") o.speculative = Speculation::kDraft, o.draft_model = o.model;
      if (drafter == "mtp") testing::use_mtp(o, "deepseek_v3");
    }));
    EngineOptions plain = drafted;
    plain.speculative = Speculation::kOff;
    const std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 8),
                                           seeded_request(random_tokens(2, 33), 8)};
    Engine one(plain), other(drafted);
    const auto expected = answers_together(one, requests), got = answers_together(other, requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same(expected[i][0], got[i][0], drafter + std::to_string(i));
    EXPECT_GT(other.stats().drafters.at(0).drafted.at(0), 0u) << drafter;
  }
}

// Kept pages are for this device, this number of layers and these roundings.
TEST(GpuLayers, ReadTheirOwnKeptPages) {
  const fs::path folder = fs::temp_directory_path() / ("quire-gpu-layers-" + std::to_string(::getpid()));
  for (const char* kind : {"mistral", "qwen3_next"}) {
    const Request request = seeded_request(random_tokens(9, 70), 8);
    const auto run = [&](int layers) {
      EngineOptions o = shared_options(testing::golden_kind(kind), layers);
      o.cache_dir = folder.string();
      Engine engine(o);
      return testing::answer(engine, request);
    };
    const Answer cold = run(1), warm = run(1);
    expect_same(cold, warm, kind);
    EXPECT_EQ(cold.last.usage.cached_tokens, 0);
    EXPECT_GE(warm.last.usage.cached_tokens, 64) << kind;
    EXPECT_EQ(run(2).last.usage.cached_tokens, 0) << kind;
    EXPECT_EQ(run(kAllGpuLayers).last.usage.cached_tokens, 0) << kind;
    fs::remove_all(folder);
  }
}

TEST(GpuLayers, TakeThePlannedMemoryInBothPlaces) {
  for (const char* kind : {"mistral", "gemma3_text", "deepseek_v3", "qwen3_next"}) {
    const LoadedModel model(shared_options(testing::golden_kind(kind), 1), 64);
    const MemoryPlan& plan = model.plan;
    ASSERT_EQ(plan.stages.size(), 2u);
    EXPECT_EQ(model.cpu_layers->weights.matrix_bytes, plan.stages[0].weights) << kind;
    EXPECT_EQ(model.target.weights.matrix_bytes, plan.stages[1].weights) << kind;
    EXPECT_EQ(model.stages->stage(0).cache().bytes(), plan.host->cache) << kind;
    EXPECT_EQ(model.stages->stage(1).cache().bytes(), plan.cache.bytes) << kind;
    const size_t device_memory = size_t{1} << 30, taken = device_memory - *model.runtime.device->own_memory();
    EXPECT_LE(taken, plan.total()) << kind;
    EXPECT_GT(taken, plan.total() - plan.total() / 8) << kind;
    EXPECT_LE(plan.host->total(), plan.host->budget);
    EXPECT_EQ(model.host_share.bytes(), plan.host->total());
    EXPECT_EQ(model.info.gpu_layers, 1);
    EXPECT_EQ(model.info.kv_cache_bytes, plan.cache.bytes + plan.host->cache);
    EXPECT_EQ(model.info.weight_bytes, plan.stages[0].weights + plan.stages[1].weights);
  }
}

TEST(GpuLayers, LoadATiedEmbeddingIntoBoth) {
  const LoadedModel model(shared_options(testing::golden_kind("gemma3_text"), 1), 64);
  ASSERT_TRUE(model.target.config.tied_output);
  const WeightTotals totals = check_weights(Checkpoint::open(testing::golden_kind("gemma3_text")), model.target.config);
  EXPECT_EQ(model.info.weight_bytes, totals.matrix_bytes + totals.embedding_bytes);
}

TEST(GpuLayers, AreMappedFromPacksOfTheirOwn) {
  const fs::path folder = fs::temp_directory_path() / ("quire-gpu-packs-" + std::to_string(::getpid()));
  EngineOptions o = shared_options(testing::golden_kind("mistral"), 1);
  o.pack_cache = folder.string();
  const TokenIds ids = random_tokens(3, 12);
  std::vector<float> logits;
  for (int start = 0; start < 2; ++start) {
    LoadedModel model(o, 64);
    if (start == 0) logits = all_logits(model, ids, 12);
    EXPECT_TRUE(same_bits(logits, all_logits(model, ids, 12))) << start;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  }
  fs::remove_all(folder);
}

TEST(GpuLayers, SendEachRowOnce) {
  LoadedModel model(shared_options(testing::golden_kind("mistral"), 1), 64);
  all_logits(model, random_tokens(1, 24), 24);
  EXPECT_EQ(model.stage_bytes(), size_t{24} * static_cast<size_t>(model.info.hidden) * sizeof(float));
}

TEST(GpuLayers, AreAllOrNone) {
  const std::string path = testing::golden_kind("mistral");
  const LoadedModel none(shared_options(path, 0), 64);
  EXPECT_EQ(none.runtime.device, nullptr);
  EXPECT_EQ(none.info.gpu_layers, 0);
  for (const int layers : {layers_of(path), 99, kAllGpuLayers, kAutoGpuLayers}) {
    const LoadedModel all(shared_options(path, layers), 64);
    EXPECT_EQ(all.info.gpu_layers, layers_of(path)) << layers;
    EXPECT_EQ(all.stages, nullptr) << layers;
    EXPECT_FALSE(all.plan.host) << layers;
  }
}

// Plans for a device of this memory, as pure functions.
MemoryPlan plan_on_device(const EngineOptions& o, size_t device, size_t host = size_t{1} << 30) {
  return plan_memory(read_model_facts(Checkpoint::open(o.model), o), o,
                     {.memory = device, .threads = 2, .reads_experts = false, .own_memory = true, .host_memory = host});
}

TEST(GpuLayersPlan, ChoosesTheMostThatFit) {
  EngineOptions o = shared_options(testing::golden_kind("qwen3_next"), kAutoGpuLayers);
  o.max_model_len = 0;
  const int all = layers_of(o.model);
  const auto fits = [&](int layers, size_t memory) {
    EngineOptions given = o;
    given.gpu_layers = layers;
    given.max_model_len = read_model_config(Checkpoint::open(o.model)).max_positions;  // less than 4096
    return error_of([&] { plan_on_device(given, memory); }).empty();
  };
  size_t most = size_t{1} << 20;
  while (!fits(all, most)) most += most / 8;
  std::vector<bool> seen(static_cast<size_t>(all) + 1);
  for (size_t memory = most; fits(1, memory); memory -= memory / 64) {
    const int chosen = plan_on_device(o, memory).gpu_layers;
    EXPECT_TRUE(fits(chosen, memory));
    for (int more = chosen + 1; more <= all; ++more) EXPECT_FALSE(fits(more, memory)) << chosen << " in " << memory;
    seen[static_cast<size_t>(chosen)] = true;
  }
  EXPECT_GE(std::ranges::count(seen, true), 3);
}

TEST(GpuLayersPlan, NamesTheLayersThatWouldFit) {
  EngineOptions o = shared_options(testing::golden_kind("qwen3_next"), kAllGpuLayers);
  EngineOptions one = o;
  one.gpu_layers = 1;
  size_t memory = size_t{1} << 16;
  while (!error_of([&] { plan_on_device(one, memory); }).empty()) memory += 4096;
  const std::string error = error_of([&] { plan_on_device(o, memory); });
  EXPECT_NE(error.find("; --gpu-layers 1 fits, the CPU then computes 3 of 4 layers"), std::string::npos) << error;
  EXPECT_EQ(plan_on_device(one, memory).gpu_layers, 1);
  // Where nothing fits, nothing is suggested.
  EXPECT_EQ(error_of([&] { plan_on_device(o, size_t{1} << 16); }).find("--gpu-layers"), std::string::npos);
}

// The cache has as many pages as fit in both, and the host's part has a limit of its own.
TEST(GpuLayersPlan, KeepsToBothMemories) {
  EngineOptions o = shared_options(testing::golden_kind("mistral"), 1);
  const size_t device = size_t{1} << 30;
  const MemoryPlan wide = plan_on_device(o, device);
  for (const size_t spare : {wide.host->cache / 2, wide.host->cache * 3 / 4}) {
    o.memory_bytes = wide.host->total() - wide.host->cache + spare;  // so that the cache gets all that is left
    const MemoryPlan plan = plan_on_device(o, device, o.memory_bytes);
    EXPECT_LE(plan.host->total(), o.memory_bytes);
    EXPECT_LT(plan.cache.units, wide.cache.units);
    EXPECT_GT(plan.cache.units, wide.cache.units / 3);
    EXPECT_EQ(plan.host->cache, plan.stages[0].cache);
    EXPECT_EQ(plan.cache.bytes, plan.stages[1].cache);
  }
  o.memory_bytes = 0;
  EXPECT_NE(
      error_of([&] { plan_on_device(o, device, wide.host->total() - wide.host->cache); }).find("the CPU's layers"),
      std::string::npos);
  o.kv_cache_bytes = wide.cache.bytes + wide.host->cache;
  EXPECT_EQ(plan_on_device(o, device).cache.units, wide.cache.units);
  EXPECT_NE(error_of([&] { plan_on_device(o, device, wide.host->total() - 1); }).find("of which the CPU's layers have"),
            std::string::npos);
}

TEST(GpuLayers, AreRefusedWhereTheyCannotWork) {
  const auto error_with = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions o = shared_options(testing::golden_kind("mistral"), 1);
    change(o);
    return error_of([&] { LoadedModel model(o); });
  };
  const auto expect_error = [&](std::string_view text, const std::function<void(EngineOptions&)>& change) {
    const std::string error = error_with(change);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  EXPECT_EQ(error_with([](EngineOptions&) {}), "");
  expect_error("--gpu-layers must be a number of layers, auto or all, not -3", [](auto& o) { o.gpu_layers = -3; });
  expect_error("--gpu-layers 1 needs a GPU; add --device cuda", [](auto& o) { o.device = "cpu"; });
  expect_error("--gpu-layers auto needs a GPU", [](auto& o) { o.device = "cpu", o.gpu_layers = kAutoGpuLayers; });
  expect_error("--tensor-parallel-size 2 with --device emulated cannot be combined with --gpu-layers 1",
               [](auto& o) { o.tensor_parallel_size = 2; });
  expect_error("--pipeline-parallel-size 2 works on the processor only", [](auto& o) { o.pipeline_parallel_size = 2; });
  expect_error("cannot be combined with --speculative early-exit",
               [](auto& o) { o.speculative = Speculation::kEarlyExit; });
  expect_error("cannot be combined with adapters", [](auto& o) { o.max_adapters = 1; });
  expect_error("cannot be combined with --record", [](auto& o) { o.record = "/tmp/quire-unused.jsonl"; });
  expect_error("cannot be combined with --executor-process", [](auto& o) { o.executor_process = true; });
  expect_error("--expert-memory is a size", [](auto& o) {
    o.model = testing::golden_kind("olmoe");
    o.expert_bytes = size_t{1} << 20;
  });
}

// Layers that read the caches of earlier ones stay with them.
TEST(GpuLayers, AreNotCutBetweenLayersThatShareACache) {
  const std::string path = testing::golden_kind("gemma4_text");
  const ModelConfig config = read_model_config(Checkpoint::open(path));
  const int all = layers_of(path);
  int refused = 0;
  for (int layers = 1; layers < all; ++layers) {
    const std::string error = error_of([&] { plan_on_device(shared_options(path, layers), size_t{1} << 30); });
    EXPECT_EQ(error.empty(), can_cut_before(config, all - layers)) << layers;
    if (error.empty()) continue;
    ++refused;
    EXPECT_NE(error.find("would separate layers"), std::string::npos) << error;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace quire
