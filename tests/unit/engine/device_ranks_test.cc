// Several emulated GPUs as ranks give the bits of one. With QUIRE_TEST_RANKS=cuda in the environment, two GPUs do, in the tests of logits
// and answers.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/emulated/device.h"
#include "engine/device.h"
#include "engine/explain/explanation.h"
#include "engine/runtime.h"
#include "error_of.h"
#include "paths.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/several_ranks.h"
#include "unit/engine/tiny_engine.h"
#include "unit/model/edited_adapter.h"

namespace quire {
namespace {

using testing::all_logits;
using testing::Answer;
using testing::answers_together;
using testing::expect_same;
using testing::golden_kind;
using testing::random_tokens;
using testing::same_bits;

std::string tested_device() {
  const char* const name = std::getenv("QUIRE_TEST_RANKS");
  return name ? name : "emulated";
}
int most_ranks() { return tested_device() == "emulated" ? 3 : 2; }

EngineOptions gpu_options(std::string model, int ranks) {
  EngineOptions o = testing::small_options(std::move(model));
  o.device = tested_device();
  o.tensor_parallel_size = ranks;
  return o;
}

cuda::EmulatedDevice& emulated(Runtime& runtime, size_t rank) {
  return static_cast<cuda::EmulatedDevice&>(static_cast<cuda::CudaBackend*>(runtime.devices()[rank])->device());
}

// Kinds of layers, of those that golden_kinds.h lists.
class DeviceRankKinds : public ::testing::TestWithParam<const char*> {};

// Heads, KV heads and widths of tiny models are few, so that shares are uneven, and some are empty.
TEST_P(DeviceRankKinds, HaveTheLogitsOfOne) {
  const std::string path = golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 20);
  LoadedModel one(gpu_options(path, 1), 64);
  const auto expected = all_logits(one, ids, 20);
  for (int ranks = 2; ranks <= most_ranks(); ++ranks) {
    LoadedModel several(gpu_options(path, ranks), 64);
    EXPECT_TRUE(same_bits(expected, all_logits(several, ids, ranks == 2 ? 7 : 20))) << ranks << " devices";
  }
}
INSTANTIATE_TEST_SUITE_P(All, DeviceRankKinds, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

TEST(DeviceRanks, HaveTheLogitsOfOneWithAnyWeightsAndRounding) {
  const TokenIds ids = random_tokens(2, 12);
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q6_K, TensorType::BF16}) {
    for (const char* activations : {"int8", "bf16", "f32"}) {
      EngineOptions o = gpu_options(testing::tiny_model(type), 1);
      o.activations = activations;
      LoadedModel one(o, 64);
      o.tensor_parallel_size = most_ranks();
      LoadedModel several(o, 64);
      EXPECT_TRUE(same_bits(all_logits(one, ids, 12), all_logits(several, ids, 5))) << name(type) << " " << activations;
    }
  }
}

TEST(DeviceRanks, AnswerAsOneDevice) {
  for (const char* kind : {"mistral", "olmoe", "qwen3_next", "deepseek_v3"}) {
    std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 6), seeded_request(random_tokens(2, 33), 6)};
    requests[0].sampling.temperature = 0;
    requests[1].sampling.prompt_logprobs = 0;
    Engine one(gpu_options(golden_kind(kind), 1)), several(gpu_options(golden_kind(kind), 2));
    const auto expected = answers_together(one, requests), got = answers_together(several, requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same(expected[i][0], got[i][0], kind + std::to_string(i));
    EXPECT_GT(several.stats().gathered_bytes, 0u);
  }
}

// Encoders, and the linears after pooling.
TEST(DeviceRanks, PoolAsOneDevice) {
  const auto pooled = [](const char* kind, int ranks) {
    EngineOptions o = gpu_options((golden_dir() / "encoders" / kind).string(), ranks);
    o.max_model_len = 64;
    Engine engine(o);
    Request request;
    request.prompt = random_tokens(1, 12);
    request.pooling = engine.info().pooling;
    return testing::answer(engine, request).last.embedding;
  };
  for (const char* kind : {"bert", "embedding_gemma", "qwen3_classify"}) {
    const std::vector<float> expected = pooled(kind, 1);
    EXPECT_FALSE(expected.empty()) << kind;
    EXPECT_EQ(pooled(kind, 2), expected) << kind;
  }
}

// Tokens are picked on the first device, as with one.
TEST(DeviceRanks, PickTokensOnTheDevice) {
  EngineOptions o = gpu_options(testing::tiny_model(), 2);
  Engine several(o);
  Request greedy = seeded_request(random_tokens(1, 20), 4);
  greedy.sampling.temperature = 0;
  greedy.sampling.logprobs = {};
  const Answer answer = testing::answer(several, greedy);
  EXPECT_EQ(answer.tokens.size(), 4u);
  EXPECT_LT(several.stats().logits_bytes, 320u * sizeof(float));  // less than one row
}

// Pages do not depend on the number of devices.
TEST(DeviceRanks, KeepUnitsInOneLayout) {
  const TokenIds ids = random_tokens(4, 16);
  for (const char* kind : {"mistral", "deepseek_v3"}) {
    LoadedModel one(gpu_options(golden_kind(kind), 1), 64), several(gpu_options(golden_kind(kind), 2), 64);
    all_logits(one, ids, 16);
    all_logits(several, ids, 16);
    EXPECT_EQ(one.cache_identity, several.cache_identity);
    size_t used = 0;
    const CacheLayout& layout = one.cache.layout;
    for (const int layer : layout.groups()[0].layers)
      used += page_bytes(layout.type(), layout.layers()[static_cast<size_t>(layer)]);
    const CachePlace whole{.group = 0, .index = 0, .offset = 0, .size = used};
    const std::vector<std::byte> expected = testing::bytes_at(one.executor(), whole);
    EXPECT_EQ(testing::bytes_at(several.executor(), whole), expected) << kind;
    CachePlace other = whole;
    other.index = 2;
    several.executor().write(other, expected);
    EXPECT_EQ(testing::bytes_at(several.executor(), other), expected) << kind;
  }
}

// Each device allocates what the plan says, but for what the largest share has more than its own.
TEST(DeviceRanks, TakeThePlannedMemoryOfEachDevice) {
  for (const char* kind : {"mistral", "olmoe", "qwen3_next", "deepseek_v3"}) {
    const LoadedModel one(gpu_options(golden_kind(kind), 1), 64), model(gpu_options(golden_kind(kind), 2), 64);
    EXPECT_EQ(model.plan.devices, 2);
    EXPECT_EQ(model.info.ranks, 2);
    EXPECT_LT(model.plan.weights, one.plan.weights) << kind;
    ASSERT_EQ(model.rank_weights.size(), 1u);
    EXPECT_EQ(std::max(model.target.weights.memory.size(), model.rank_weights[0].memory.size()),
              model.target.weights.memory.size() == 0
                  ? 0
                  : model.plan.weights - (one.plan.weights - one.target.weights.matrix_bytes))
        << kind;
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_LE(model.ranks->rank(rank).cache().bytes(), model.plan.cache.bytes) << kind << rank;
    for (size_t rank = 0; rank < 2; ++rank) {
      const cuda::EmulatedDevice& device = emulated(model.runtime, rank);
      const size_t used = device.facts().memory - device.free_memory();
      EXPECT_LE(used, model.plan.total() + (size_t{1} << 20)) << kind << rank;  // and small vectors
    }
  }
}

// So do drafters and adapters, which each device has whole.
TEST(DeviceRanks, PlanTheMemoryOfDraftersAndAdapters) {
  testing::EditedAdapter adapter("llama");
  EngineOptions o = testing::drafted_options([](EngineOptions& d) {
    d.speculative = Speculation::kDraft;
    d.draft_model = d.model;
  });
  o.device = tested_device();
  o.tensor_parallel_size = 2;
  o.adapters = {{"one", adapter.write()}};
  const LoadedModel model(o, 64);
  for (size_t rank = 0; rank < 2; ++rank) {
    const cuda::EmulatedDevice& device = emulated(model.runtime, rank);
    EXPECT_LE(device.facts().memory - device.free_memory(), model.plan.total() + (size_t{1} << 20)) << rank;
  }
}

// A device that has no memory for a moment ends the requests of the step; later ones are answered as ever.
TEST(DeviceRanks, EndTheRequestsOfAStepInWhichOneFails) {
  const EngineOptions o = gpu_options(golden_kind("olmoe"), 2);
  const Request request = seeded_request(random_tokens(1, 20), 3);
  Engine healthy(o);
  const Answer expected = testing::answer(healthy, request);
  const auto runtime = make_runtime(o);
  EngineOptions shared = o;
  shared.threads = 0;
  Engine engine(shared, runtime);
  emulated(*runtime, 1).inject({.launch = {}, .allocation = 0});  // the addresses of a layer's experts
  const Answer failed = testing::answer(engine, request);
  EXPECT_EQ(failed.last.finish, FinishReason::kError);
  EXPECT_NE(failed.last.error.find("the emulated device cannot allocate"), std::string::npos) << failed.last.error;
  expect_same(expected, testing::answer(engine, request));

  // A lost device fails all that follows, each request for itself.
  emulated(*runtime, 1).inject({.launch = 20, .allocation = {}});
  for (int i = 0; i < 2; ++i) {
    const Answer lost = testing::answer(engine, request);
    EXPECT_EQ(lost.last.finish, FinishReason::kError);
    EXPECT_NE(lost.last.error.find("the emulated device has failed"), std::string::npos) << lost.last.error;
  }
}

TEST(DeviceRanks, AreNamedByKindOrOneByOne) {
  const auto names = [](std::string device, int ranks) {
    EngineOptions o;
    o.device = std::move(device);
    o.tensor_parallel_size = ranks;
    return device_names(o);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("cpu", 4), Names{"cpu"});
  EXPECT_EQ(names("cuda", 1), Names{"cuda"});
  EXPECT_EQ(names("cuda:3", 1), Names{"cuda:3"});
  EXPECT_EQ(names("cuda", 3), (Names{"cuda:0", "cuda:1", "cuda:2"}));
  EXPECT_EQ(names("cuda:2,cuda:0", 2), (Names{"cuda:2", "cuda:0"}));
  const auto expect_error = [&](const std::string& device, int ranks, std::string_view text) {
    const std::string error = error_of([&] { names(device, ranks); });
    EXPECT_NE(error.find(text), std::string::npos) << device << ": " << error;
  };
  expect_error("cuda:1", 2,
               "--device cuda:1 names 1 device, but --tensor-parallel-size is 2; name as many, or give --device cuda");
  expect_error("cuda:0,cuda:1", 1, "names 2 devices, but --tensor-parallel-size is 1");
  expect_error("cuda:0,cuda:1,cuda:0", 3, "names cuda:0 twice");
  expect_error("cuda,cuda:0", 2, "names cuda:0 twice");
  expect_error("cuda:0,other:1", 2, "names devices of several kinds, cuda:0 and other:1");
  expect_error("cuda:0,", 2, "--device \"\" is not a device");
}

TEST(DeviceRanks, AreRefusedWhereTheyCannotWork) {
  const auto expect_error = [&](std::string_view text, const std::function<void(EngineOptions&)>& change) {
    EngineOptions o = gpu_options(golden_kind("olmoe"), 2);
    change(o);
    const std::string error = error_of([&] { LoadedModel model(o); });
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  const std::string with = "--tensor-parallel-size 2 with --device emulated cannot be combined with ";
  expect_error(with + "--gpu-layers 1, which is less", [](auto& o) { o.gpu_layers = 1; });
  expect_error(with + "--cpu-moe or --n-cpu-moe", [](auto& o) { o.cpu_moe_layers = kAllCpuMoeLayers; });
  expect_error(with + "--draft-vocabulary", [](auto& o) {
    o.speculative = Speculation::kDraft, o.draft_model = o.model;
    o.draft_vocabulary = (golden_dir() / "drafters/eagle/frequent.json").string();
  });
  expect_error(with + "--executor-process", [](auto& o) { o.executor_process = true; });
  expect_error("--pipeline-parallel-size 2 works on the processor only", [](auto& o) { o.pipeline_parallel_size = 2; });
  expect_error("--expert-memory is a size", [](auto& o) { o.expert_bytes = size_t{1} << 20; });
  EngineOptions several = gpu_options(golden_kind("mistral"), 2), one = gpu_options(golden_kind("mistral"), 1);
  const auto runtime = make_runtime(several);
  one.threads = 0;
  EXPECT_NE(error_of([&] {
              LoadedModel model(one, 0, runtime);
            }).find("--tensor-parallel-size is 1, but 2 cuda devices compute"),
            std::string::npos);
  Engine engine(several);
  EXPECT_NE(error_of([&] { engine.explain({.tokens = {1, 2}}); }).find("several devices"), std::string::npos);
}

// Each device has the whole drafter, and computes its share.
TEST(DeviceRanks, AnswerAsOneDeviceWithEveryDrafter) {
  const std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 8),
                                         seeded_request(random_tokens(2, 9), 8)};
  for (EngineOptions o : testing::options_of_all_drafters()) {
    o.device = tested_device();
    Engine one(o);
    o.tensor_parallel_size = 2;
    Engine several(o);
    const auto expected = answers_together(one, requests), got = answers_together(several, requests);
    const std::string what = o.model + " drafter " + std::to_string(static_cast<int>(o.speculative));
    for (size_t i = 0; i < requests.size(); ++i) expect_same(expected[i][0], got[i][0], what);
    EXPECT_GT(several.stats().drafted_tokens, 0u) << what;
    EXPECT_EQ(several.stats().accepted_tokens, one.stats().accepted_tokens) << what;
  }
}

// An adapter is in the memory of each device; it may come later, and go.
TEST(DeviceRanks, AnswerAsOneDeviceWithAdapters) {
  testing::EditedAdapter all("llama"), some("llama_rslora");
  all.draw(1);
  some.draw(2);
  EngineOptions o = gpu_options((golden_dir() / "models/llama").string(), 1);
  o.adapters = {{"all", all.write()}};
  o.adapter_bytes = size_t{1} << 20;
  o.max_adapter_rank = 8;
  Engine one(o);
  o.tensor_parallel_size = most_ranks();
  Engine several(o);
  std::vector<Request> requests;
  for (const char* adapter : {"", "all", "some"}) {
    requests.push_back(seeded_request(random_tokens(1, 20), 6));
    requests.back().adapter = adapter;
  }
  const std::string path = some.write();
  for (Engine* engine : {&one, &several}) engine->add_adapter({"some", path});
  const auto expected = answers_together(one, requests), got = answers_together(several, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_same(expected[i][0], got[i][0], requests[i].adapter);
  EXPECT_NE(expected[0][0].tokens, expected[1][0].tokens);
  several.remove_adapter("all");
  expect_same(expected[2][0], testing::answer(several, requests[2]));
}

}  // namespace
}  // namespace quire
