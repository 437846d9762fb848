// Models of which the CPU has the experts of the first layers, and a device all else.

#include "engine/ranks/cpu_experts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/explain/explain.h"
#include "engine/loaded_model.h"
#include "error_of.h"
#include "fenced/fenced_backend.h"
#include "model/adapter/random_adapter.h"
#include "model/decoder.h"
#include "ops/offload/host_experts.h"
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

// Every way to choose experts, and what else reads or adds to what they do: biases, correction, factors, shared experts, norms.
constexpr const char* kMixtures[] = {"gpt_oss",        "deepseek_v3", "glm4_moe", "olmoe", "qwen3_5_moe_nested",
                                     "nemotron_h_moe", "gemma4_moe",  "phimoe"};

EngineOptions cpu_moe_options(std::string model, int cpu_moe_layers) {
  return testing::shared_options(std::move(model), kAllGpuLayers, cpu_moe_layers);
}

// Numbers of the layers with experts.
std::vector<int> layers_with_experts(const ModelConfig& config) {
  std::vector<int> layers;
  for (size_t i = 0; i < config.layers.size(); ++i)
    if (std::holds_alternative<Moe>(config.layers[i].ffn)) layers.push_back(static_cast<int>(i));
  return layers;
}
std::vector<int> layers_with_experts(const std::string& model) {
  return layers_with_experts(read_model_config(Checkpoint::open(model)));
}

// A model with the experts of some layers in one backend's memory, and all else in that of another.
class TwoBackends {
 public:
  TwoBackends(const std::string& model, Activations activations, int cpu_moe_layers)
      : checkpoint_(Checkpoint::open(model)), config_(read_model_config(checkpoint_)), activations_(activations) {
    constexpr size_t kMemory = size_t{1} << 30;
    WeightOptions loading{.memory = kMemory};
    if (cpu_moe_layers > 0) loading.host_experts = {.backend = &cpu_, .layers = {0, cpu_moe_layers}, .memory = kMemory};
    Backend& device = cpu_moe_layers > 0 ? static_cast<Backend&>(fenced_) : cpu_;
    weights_ = load_weights(checkpoint_, config_, device, team_, loading);
    shared_ =
        std::make_unique<HostExpertsBackend>(device, cpu_, activations, !device_has_experts(config_, cpu_moe_layers));
    backend_ = cpu_moe_layers > 0 ? shared_.get() : &device;
  }

  // The logits of every token of at most a page.
  std::vector<float> logits(const TokenIds& ids, int chunk) {
    const CacheLayout layout = cache_layout(config_, KvType::kF32, {});
    CacheMemory cache(*backend_, {layout, static_cast<int>(layout.groups().size()), layout.state_bytes() > 0 ? 1 : 0});
    Decoder decoder(config_, weights_, cache, *backend_, activations_,
                    {.max_rows = kPageTokens, .max_logits = kPageTokens, .max_positions = kPageTokens});
    std::vector<std::vector<int32_t>> tables;
    for (int unit = 0; unit < cache.units(); ++unit) tables.push_back({unit});
    std::vector<float> all;
    for (int at = 0; std::cmp_less(at, ids.size()); at += chunk) {
      std::vector<Row> rows;
      for (int i = at; i < at + chunk && std::cmp_less(i, ids.size()); ++i)
        rows.push_back({ids[static_cast<size_t>(i)], i, true});
      const Span span{.row = 0,
                      .rows = static_cast<int>(rows.size()),
                      .position = at,
                      .tables = tables,
                      .state = cache.states() - 1,
                      .rope_variant = 0};
      const auto part = decoder.forward({rows, {&span, 1}});
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  uint64_t moved_bytes() const { return shared_->moved_bytes(); }
  const ModelConfig& config() const { return config_; }

 private:
  Team team_{2};
  CpuBackend cpu_{"auto", team_};
  testing::FencedBackend fenced_{cpu_, 4};
  Checkpoint checkpoint_;
  ModelConfig config_;
  Activations activations_;
  Weights weights_;
  std::unique_ptr<HostExpertsBackend> shared_;
  Backend* backend_;
};

class CpuExpertKinds : public ::testing::TestWithParam<const char*> {};

// The fenced backend computes as the CPU does, so nothing may change a bit; and the host reads no memory of the device.
TEST_P(CpuExpertKinds, HaveTheBitsOfOneBackend) {
  const std::string path = golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 14);
  for (const Activations activations : {Activations::kF32, Activations::kInt8x2}) {
    TwoBackends one(path, activations, 0);
    const auto expected = one.logits(ids, 14);
    for (const int layer : layers_with_experts(one.config())) {
      TwoBackends two(path, activations, layer + 1);
      EXPECT_TRUE(same_bits(two.logits(ids, 14), expected)) << layer;
      EXPECT_TRUE(same_bits(two.logits(ids, 5), expected)) << layer;
      EXPECT_GT(two.moved_bytes(), 0u);
    }
  }
}

// Within what the golden tests allow between Quire and transformers; and in chunks, to the bit.
TEST_P(CpuExpertKinds, HaveTheLogitsOfTheCpu) {
  const std::string path = golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const double tolerance = testing::golden_tolerance(path);
  const TokenIds ids = random_tokens(1, 20);
  EngineOptions o = testing::small_options(path);
  o.activations = "f32";
  LoadedModel cpu(o, 64);
  const auto expected = all_logits(cpu, ids, 20);
  for (const int layers : {layers_with_experts(path).front() + 1, kAllCpuMoeLayers}) {
    o = cpu_moe_options(path, layers);
    o.activations = "f32";
    LoadedModel shared(o, 64);
    EXPECT_LE(testing::largest_difference(expected, all_logits(shared, ids, 20)), tolerance) << layers << " layers";
  }
  LoadedModel rounded(cpu_moe_options(path, kAllCpuMoeLayers), 64);
  EXPECT_TRUE(same_bits(all_logits(rounded, ids, 20), all_logits(rounded, ids, 7)));
}
INSTANTIATE_TEST_SUITE_P(All, CpuExpertKinds, ::testing::ValuesIn(kMixtures),
                         [](const auto& info) { return std::string(info.param); });

// The CPU's experts are rounded by its rules, all else by the device's, and a given type is for both.
TEST(CpuExperts, RoundInputsAsTheirDeviceDoes) {
  const LoadedModel usual(cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers), 64);
  EXPECT_EQ(usual.plan.activation_type, Activations::kBf16);
  EXPECT_EQ(usual.plan.host->activation_type, usual.runtime.cpu.default_activations());
  EngineOptions o = cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers);
  o.activations = "f32";
  const LoadedModel given(o, 64);
  EXPECT_EQ(given.plan.activation_type, Activations::kF32);
  EXPECT_EQ(given.plan.host->activation_type, Activations::kF32);
}

TEST(CpuExperts, AnswerAloneAsInABatch) {
  for (const char* kind : {"deepseek_v3", "qwen3_next"})
    testing::expect_the_same_alone_and_together(cpu_moe_options(golden_kind(kind), 2), kind);
}

// The drafter's own experts stay on the device.
TEST(CpuExperts, AnswerAlikeWithEveryDrafter) {
  for (const std::string drafter : {"draft", "early-exit", "mtp"}) {
    EngineOptions drafted = testing::drafted_options([&](EngineOptions& o) {
      o.model = golden_kind("deepseek_v3");
      if (drafter == "draft") o.speculative = Speculation::kDraft, o.draft_model = o.model;
      if (drafter == "early-exit") o.speculative = Speculation::kEarlyExit, o.early_exit_layers = 2;
      if (drafter == "mtp") testing::use_mtp(o, "deepseek_v3");
      o.device = "emulated";
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
  }
}

// Kept pages are for this device, these layers and these roundings.
TEST(CpuExperts, ReadTheirOwnKeptPages) {
  const fs::path folder = fs::temp_directory_path() / ("quire-cpu-experts-" + std::to_string(::getpid()));
  const Request request = seeded_request(random_tokens(9, 70), 8);
  const auto run = [&](int layers) {
    EngineOptions o = cpu_moe_options(golden_kind("olmoe"), layers);
    o.cache_dir = folder.string();
    Engine engine(o);
    const Answer answer = testing::answer(engine, request);
    EXPECT_EQ(engine.stats().moved_expert_bytes > 0, layers > 0);
    return answer;
  };
  const Answer cold = run(1), warm = run(1);
  expect_same(cold, warm, "warm");
  EXPECT_EQ(cold.last.usage.cached_tokens, 0);
  EXPECT_GE(warm.last.usage.cached_tokens, 64);
  for (const int other : {0, 2}) EXPECT_EQ(run(other).last.usage.cached_tokens, 0) << other;
  fs::remove_all(folder);
}

TEST(CpuExperts, TakeThePlannedMemoryInBothPlaces) {
  for (const char* kind : {"gpt_oss", "deepseek_v3", "gemma4_moe"}) {
    const std::string path = golden_kind(kind);
    const auto layers = static_cast<int>(read_model_config(Checkpoint::open(path)).layers.size());
    for (const int on_cpu : {layers_with_experts(path).front() + 1, layers}) {
      const LoadedModel model(cpu_moe_options(path, on_cpu), 64);
      const MemoryPlan& plan = model.plan;
      const WeightTotals totals = check_weights(Checkpoint::open(path), model.target.config);
      const Weights& weights = model.target.weights;
      EXPECT_EQ(weights.matrix_bytes + weights.host_bytes, totals.matrix_bytes) << kind;
      EXPECT_EQ(plan.weights + plan.host->weights, totals.bytes) << kind;
      EXPECT_GE(plan.host->weights, weights.host_bytes) << kind;
      EXPECT_LT(plan.host->weights - weights.host_bytes, totals.bytes - totals.matrix_bytes) << kind << ": its vectors";
      EXPECT_EQ(weights.host_memory.size(), weights.host_bytes);
      const size_t device_memory = size_t{1} << 30, taken = device_memory - *model.runtime.device->own_memory();
      EXPECT_LE(taken, plan.total()) << kind;
      EXPECT_GT(taken, plan.total() - plan.total() / 8) << kind;
      EXPECT_EQ(plan.host->cache, 0u);
      EXPECT_EQ(model.host_share.bytes(), plan.host->total());
      EXPECT_EQ(model.info.gpu_layers, layers);
      EXPECT_EQ(model.info.cpu_moe_layers, on_cpu);
      EXPECT_EQ(model.info.weight_bytes, totals.matrix_bytes);
      EXPECT_EQ(model.info.kv_cache_bytes, plan.cache.bytes);
    }
  }
}

TEST(CpuExperts, AreMappedFromPacksOfTheirOwn) {
  const fs::path folder = fs::temp_directory_path() / ("quire-cpu-packs-" + std::to_string(::getpid()));
  EngineOptions o = cpu_moe_options(golden_kind("gpt_oss"), kAllCpuMoeLayers);
  o.pack_cache = folder.string();
  const TokenIds ids = random_tokens(3, 12);
  std::vector<float> logits;
  for (int start = 0; start < 2; ++start) {
    LoadedModel model(o, 64);
    if (start == 0) logits = all_logits(model, ids, 12);
    EXPECT_TRUE(same_bits(logits, all_logits(model, ids, 12))) << start;
    EXPECT_EQ(model.target.weights.host_mapped.has_value(), start == 1);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  }
  fs::remove_all(folder);
}

TEST(CpuExperts, AreExplained) {
  LoadedModel model(cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers), 64);
  const TokenIds ids = random_tokens(1, 8);
  const auto logits = all_logits(model, ids, 8);
  const auto vocab = static_cast<size_t>(model.info.vocab_size);
  const std::vector<float> last(logits.end() - static_cast<ptrdiff_t>(vocab), logits.end());
  EXPECT_TRUE(same_bits(explain(model, {.tokens = ids, .layer = 1}).logits, last));
}

// Adapters change what the device computes.
TEST(CpuExperts, WorkTogetherWithAdapters) {
  EngineOptions o = cpu_moe_options(golden_kind("glm4_moe"), kAllCpuMoeLayers);
  o.max_adapters = 1;
  LoadedModel model(o, 64);
  const TokenIds ids = random_tokens(1, 20);
  const auto plain = all_logits(model, ids, 20);
  const auto adapter = model.load_by_rank([&](const Weights& weights, Backend& backend) {
    return random_adapter(model.target.config, weights, {}, 8, 1, backend, model.runtime.team);
  });
  model.set_adapter(0, adapter);
  const auto adapted = all_logits(model, ids, 20, 0);
  EXPECT_TRUE(same_bits(adapted, all_logits(model, ids, 7, 0)));
  EXPECT_FALSE(same_bits(adapted, plain));
  EXPECT_TRUE(same_bits(all_logits(model, ids, 20), plain));
}

TEST(CpuExperts, AreThoseOfAllLayersAtMost) {
  const std::string path = golden_kind("olmoe");
  const auto layers = static_cast<int>(read_model_config(Checkpoint::open(path)).layers.size());
  for (const int given : {layers, 99, kAllCpuMoeLayers})
    EXPECT_EQ(LoadedModel(cpu_moe_options(path, given), 64).info.cpu_moe_layers, layers) << given;
  EngineOptions o = cpu_moe_options(path, kAllCpuMoeLayers);
  o.gpu_layers = kAutoGpuLayers;
  EXPECT_EQ(LoadedModel(o, 64).info.cpu_moe_layers, layers);
  o.gpu_layers = 0;
  const LoadedModel none(o, 64);
  EXPECT_EQ(none.runtime.device, nullptr);
  EXPECT_EQ(none.info.cpu_moe_layers, 0);
}

// Plans for a device of this memory, as pure functions.
MemoryPlan plan_with_cpu_experts(const EngineOptions& o, size_t device, size_t host = size_t{1} << 30) {
  return plan_memory(read_model_facts(Checkpoint::open(o.model), o), o,
                     {.memory = device, .threads = 2, .reads_experts = false, .own_memory = true, .host_memory = host});
}

TEST(CpuExpertsPlan, NamesTheFewestLayersThatWouldFit) {
  EngineOptions o = cpu_moe_options(golden_kind("olmoe"), 0);
  o.max_model_len = 0;
  const auto layers = layers_with_experts(o.model);
  const auto total_with = [&](int on_cpu) {
    EngineOptions given = o;
    given.cpu_moe_layers = on_cpu;
    given.kv_cache_bytes = size_t{4} << 20;
    const MemoryPlan plan = plan_with_cpu_experts(given, size_t{1} << 30);
    return plan.total() - plan.cache.bytes;
  };
  size_t before = total_with(0);
  for (const int layer : layers) {
    const size_t now = total_with(layer + 1);
    EXPECT_LT(now, before) << layer;
    before = now;
  }
  const int most = layers.back() + 1;
  const auto error_in = [&](size_t memory, int on_cpu) {
    EngineOptions given = o;
    given.cpu_moe_layers = on_cpu;
    return error_of([&] { plan_with_cpu_experts(given, memory); });
  };
  size_t memory = size_t{1} << 16;
  while (!error_in(memory, most).empty()) memory += 4096;
  const std::string error = error_in(memory, 0);
  EXPECT_NE(error.find("; --n-cpu-moe " + std::to_string(most) + " fits, the CPU then computes the experts of " +
                       std::to_string(most) + " of"),
            std::string::npos)
      << error;
  EXPECT_NE(error_in(memory, 1).find("; --n-cpu-moe " + std::to_string(most)), std::string::npos);
  // Where nothing fits, nothing is suggested.
  EXPECT_EQ(error_in(size_t{1} << 16, 0).find("--n-cpu-moe"), std::string::npos);
}

// The experts have a limit of their own, and the error says which layers are fewer.
TEST(CpuExpertsPlan, KeepsToTheMemoryOfTheHost) {
  const EngineOptions o = cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers);
  const size_t device = size_t{1} << 30, needed = plan_with_cpu_experts(o, device).host->total();
  EXPECT_EQ(plan_with_cpu_experts(o, device, needed).host->total(), needed);
  const std::string error = error_of([&] { plan_with_cpu_experts(o, device, needed - 1); });
  EXPECT_NE(error.find("are available on the host, but the experts of"), std::string::npos) << error;
  EXPECT_NE(error.find("; --n-cpu-moe 1 fits"), std::string::npos) << error;
}

TEST(CpuExperts, AreRefusedWhereTheyCannotWork) {
  const auto expect_error = [&](std::string_view text, const std::function<void(EngineOptions&)>& change) {
    EngineOptions o = cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers);
    change(o);
    const std::string error = error_of([&] { LoadedModel model(o); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  EXPECT_EQ(error_of([] { LoadedModel model(cpu_moe_options(golden_kind("olmoe"), kAllCpuMoeLayers)); }), "");
  expect_error("--cpu-moe is for mixtures of experts, but", [](auto& o) { o.model = golden_kind("mistral"); });
  expect_error("--n-cpu-moe 3 is for mixtures of experts, but",
               [](auto& o) { o.model = golden_kind("mistral"), o.cpu_moe_layers = 3; });
  expect_error("--n-cpu-moe must be a number of layers, not -2", [](auto& o) { o.cpu_moe_layers = -2; });
  expect_error("--cpu-moe needs a GPU; add --device cuda", [](auto& o) { o.device = "cpu"; });
  expect_error("--tensor-parallel-size 2 with --device emulated cannot be combined with --cpu-moe",
               [](auto& o) { o.tensor_parallel_size = 2; });
  expect_error("--pipeline-parallel-size 2 works on the processor only", [](auto& o) { o.pipeline_parallel_size = 2; });
  expect_error("cannot be combined with --record", [](auto& o) { o.record = "/tmp/quire-unused.jsonl"; });
  expect_error("cannot be combined with --executor-process", [](auto& o) { o.executor_process = true; });
  expect_error("--expert-memory is a size", [](auto& o) { o.expert_bytes = size_t{1} << 20; });
}

}  // namespace
}  // namespace quire
