// Mixtures of experts that are not all in memory: the same answers to the bit, within the planned memory.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/loaded_model.h"
#include "error_of.h"
#include "model/packing/expert_store.h"
#include "sanitizers.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/drafters.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::all_logits;
using testing::Answer;
using testing::Answers;
using testing::random_tokens;
using testing::same_bits;

ExpertTotals experts_of(const std::string& model) {
  const Checkpoint checkpoint = Checkpoint::open(model);
  return check_weights(checkpoint, read_model_config(checkpoint)).experts;
}

std::vector<std::string> golden_mixtures() {
  std::vector<std::string> models;
  for (const char* folder : {"models", "models-gguf"}) {
    for (const auto& entry : fs::directory_iterator(golden_dir() / folder)) {
      const std::string model = entry.path().string();
      if (testing::is_known(model) && experts_of(model).experts > 0) models.push_back(model);
    }
  }
  std::ranges::sort(models);
  return models;
}

EngineOptions mixture_options(const std::string& model) {
  EngineOptions o;
  testing::ignore_time(o);
  o.model = model;
  o.threads = 2;
  o.max_num_seqs = 4;
  return o;
}
size_t least_memory(const std::string& model) {
  const ExpertTotals experts = experts_of(model);
  return static_cast<size_t>(experts.used) * experts.slot_bytes;
}
EngineOptions with_fewest_slots(EngineOptions o) {
  o.expert_bytes = least_memory(o.model);
  return o;
}

TEST(ExpertMemory, ChangesNoBitOfAnyMixture) {
  const std::vector<std::string> models = golden_mixtures();
  EXPECT_GE(models.size(), 12u);
  const TokenIds ids = random_tokens(1, 40);
  for (const std::string& path : models) {
    SCOPED_TRACE(path);
    const EngineOptions o = mixture_options(path);
    LoadedModel whole(o, 64), few(with_fewest_slots(o), 64);
    EXPECT_EQ(whole.target.weights.experts, nullptr);
    ASSERT_NE(few.target.weights.experts, nullptr);
    EXPECT_EQ(few.info.expert_slots, experts_of(path).used);
    EXPECT_LT(few.info.expert_slots, experts_of(path).experts);
    const auto expected = all_logits(whole, ids, 40);
    for (const int chunk : {1, 7, 40}) EXPECT_TRUE(same_bits(expected, all_logits(few, ids, chunk))) << chunk;
  }
}

std::vector<Request> requests_of_a_batch() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 8; ++i) {
    // Two have a common beginning.
    requests.push_back(seeded_request(random_tokens(i == 5 ? 4 : i, i == 5 ? 50 : 20 + 4 * static_cast<int>(i)), 30));
    requests.back().sampling.seed = i;
    requests.back().sampling.n = i == 3 ? 2 : 1;
  }
  return requests;
}

void expect_same_batch(const std::vector<Answers>& a, const std::vector<Answers>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t choice = 0; choice < a[i].size(); ++choice)
      testing::expect_same(a[i][choice], b[i][choice], "request " + std::to_string(i));
  }
}

TEST(ExpertMemory, ChangesNoAnswerOfABatch) {
  for (const char* kind : {"olmoe", "gpt_oss", "qwen3_5_moe_nested"}) {
    SCOPED_TRACE(kind);
    EngineOptions o = mixture_options(testing::golden_kind(kind));
    o.max_model_len = 128;
    std::vector<Answers> expected;
    {
      EngineOptions alone = o;
      alone.max_num_seqs = 1;
      Engine engine(alone);
      for (const Request& r : requests_of_a_batch()) expected.push_back(testing::answers(engine, r));
      EXPECT_EQ(engine.stats().expert_hits + engine.stats().expert_reads, 0u);
    }
    o = with_fewest_slots(o);
    o.max_num_batched_tokens = 24;
    Engine batch(o);
    for (int round = 0; round < 2; ++round)  // the second finds prefixes
      expect_same_batch(expected, testing::answers_together(batch, requests_of_a_batch()));
    const EngineStats stats = batch.stats();
    EXPECT_GT(stats.expert_reads, 0u);
    EXPECT_GT(stats.expert_read_bytes, stats.expert_reads);
    EXPECT_GT(stats.expert_read_seconds, 0);
    EXPECT_GT(stats.expert_wait_seconds, 0);
    EXPECT_GT(stats.prefix_hit_tokens, 0u);

    o.kv_cache_bytes = testing::cache_of(o, 1);
    Engine scarce(o);
    expect_same_batch(expected, testing::answers_together(scarce, requests_of_a_batch()));
    if (scarce.info().kv_groups == 1) {  // layers with windows need fewer pages
      EXPECT_GT(scarce.stats().preemptions, 0u);
    }
  }
}

TEST(ExpertMemory, ChangesNoAnswerWithDrafts) {
  EngineOptions o = mixture_options("");
  testing::use_mtp(o, "deepseek_v3");
  o.max_model_len = 128;
  const auto answers_of = [](const EngineOptions& options) {
    Engine engine(options);
    return testing::answers_together(engine, requests_of_a_batch());
  };
  const auto expected = answers_of(o);
  expect_same_batch(expected, answers_of(with_fewest_slots(o)));
  o.speculative = Speculation::kEarlyExit;  // the drafter takes experts from the same slots
  expect_same_batch(expected, answers_of(with_fewest_slots(o)));
}

class ExpertMemoryFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("quire-expert-memory-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  EngineOptions options(const std::string& pack_cache) {
    EngineOptions o = with_fewest_slots(mixture_options(testing::tiny_model(TensorType::Q4_1, 512, 0, 8)));
    o.pack_cache = pack_cache;
    return o;
  }
  Answer ask(Engine& engine) { return testing::answer(engine, seeded_request(random_tokens(1, 40), 12)); }
  Answer ask(const EngineOptions& o) {
    Engine engine(o);
    return ask(engine);
  }
  Answer right() { return ask(mixture_options(testing::tiny_model(TensorType::Q4_1, 512, 0, 8))); }
  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".experts") return entry.path();
    return {};
  }

  fs::path folder_;
};

TEST_F(ExpertMemoryFiles, AreWrittenOnce) {
  const EngineOptions o = options(folder_.string());
  const Answer expected = right();
  testing::expect_same(expected, ask(o));
  ASSERT_FALSE(file().empty());
  const auto written = fs::file_size(file());
  // A second start takes the file as it is.
  const fs::path link = folder_ / "link";
  fs::create_hard_link(file(), link);
  testing::expect_same(expected, ask(o));
  EXPECT_TRUE(fs::equivalent(file(), link));
  EXPECT_EQ(fs::file_size(file()), written);
  const LoadedModel model(o);
  EXPECT_EQ(model.target.weights.experts->file().name(), file());
}

TEST_F(ExpertMemoryFiles, HaveNoNameWithoutAPackCache) {
  testing::expect_same(right(), ask(options("")));
  const LoadedModel model(options(""));
  EXPECT_NE(model.target.weights.experts->file().name().find("unnamed file in "), std::string::npos);
}

TEST_F(ExpertMemoryFiles, HaveNoNameIfThePackCacheCannotBeWritten) {
  std::ofstream(folder_ / "packs") << "a file";
  testing::expect_same(right(), ask(options((folder_ / "packs").string())));
}

TEST_F(ExpertMemoryFiles, AreWrittenNowhereIfNoDiskHasRoom) {
  const EngineOptions o = options((folder_ / "packs").string());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{rlim_t{1} << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] { LoadedModel model(o); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(error.find("the experts do not fit in memory, and a file of "), std::string::npos) << error;
  EXPECT_NE(error.find("; /var/tmp "), std::string::npos) << error;
  EXPECT_NE(error.find("Name a folder with --pack-cache, or raise --memory"), std::string::npos) << error;
  EXPECT_TRUE(fs::is_empty(folder_ / "packs"));
}

TEST_F(ExpertMemoryFiles, ThatAreDamagedEndRequestsWithAnError) {
  const EngineOptions o = options(folder_.string());
  const Answer expected = right();
  Engine engine(o);
  testing::expect_same(expected, ask(engine));
  const auto bytes = fs::file_size(file());
  const std::string scribble(bytes - 8192, '!');
  std::string before(bytes, ' ');
  std::ifstream(file(), std::ios::binary).read(before.data(), static_cast<std::streamsize>(bytes));
  std::ofstream(file(), std::ios::binary | std::ios::in)
      .seekp(8192)
      .write(scribble.data(), static_cast<std::streamsize>(scribble.size()));
  Answer answer = ask(engine);
  EXPECT_EQ(answer.last.finish, FinishReason::kError);
  EXPECT_NE(answer.last.error.find(file().string()), std::string::npos) << answer.last.error;
  EXPECT_NE(answer.last.error.find("wrong checksum"), std::string::npos) << answer.last.error;
  fs::resize_file(file(), 8192);
  answer = ask(engine);
  EXPECT_EQ(answer.last.finish, FinishReason::kError);
  EXPECT_NE(answer.last.error.find("is cut off"), std::string::npos) << answer.last.error;
  std::ofstream(file(), std::ios::binary | std::ios::in).write(before.data(), static_cast<std::streamsize>(bytes));
  testing::expect_same(expected, ask(engine));
}

TEST_F(ExpertMemoryFiles, MayBeReplacedWhileTheyAreUsed) {
  const EngineOptions o = options(folder_.string());
  const Answer expected = right();
  Engine engine(o);
  std::ofstream(folder_ / "other") << "another file";
  fs::rename(folder_ / "other", file());
  testing::expect_same(expected, ask(engine));
  testing::expect_same(expected, ask(o));  // which writes it again
  EXPECT_GT(fs::file_size(file()), 8192u);
}

TEST(ExpertMemory, IsRefusedIfItIsTooSmall) {
  EngineOptions o = mixture_options(testing::golden_kind("olmoe"));
  o.expert_bytes = least_memory(o.model) - 1;
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("experts that a token chooses in a layer need"),
            std::string::npos);
}

TEST(ExpertMemory, IsRefusedForAModelWithoutExperts) {
  EngineOptions o = mixture_options(testing::golden_kind("mistral"));
  o.expert_bytes = size_t{1} << 20;
  EXPECT_NE(error_of([&] { LoadedModel model(o); }).find("has no experts; leave it out"), std::string::npos);
  o.expert_bytes = kAllExperts;
  EXPECT_EQ(LoadedModel(o).info.expert_slots, 0);
}

// ---- The plan

MemoryPlan plan_of_mixture(const EngineOptions& o, size_t memory, bool reads_experts = true) {
  return plan_memory(read_model_facts(Checkpoint::open(o.model), o), o,
                     {.memory = memory, .threads = 2, .reads_experts = reads_experts});
}
size_t sum_of_rows(const MemoryPlan& plan) {
  size_t bytes = 0;
  for (const MemoryRow& row : plan.rows()) bytes += row.bytes;
  return bytes;
}

TEST(ExpertMemoryPlan, HasSlotsOnlyIfMemoryIsShort) {
  EngineOptions o = mixture_options(testing::tiny_model(TensorType::BF16, 512, 0, 32));
  o.memory_bytes = size_t{1} << 30;
  const ExpertTotals experts = experts_of(o.model);
  const MemoryPlan all = plan_of_mixture(o, o.memory_bytes);
  EXPECT_EQ(all.expert_slots, 0);
  const size_t sequence = all.layout.sequence_bytes(512);
  EXPECT_EQ(plan_of_mixture(o, all.without_cache() + sequence).expert_slots, 0);

  const MemoryPlan scarce = plan_of_mixture(o, all.without_cache() + sequence - 1);
  EXPECT_EQ(scarce.all_experts, experts.experts);
  EXPECT_GE(scarce.expert_slots, experts.used);
  EXPECT_LT(scarce.expert_slots, experts.experts);
  EXPECT_EQ(scarce.experts, static_cast<size_t>(scarce.expert_slots) * experts.slot_bytes);
  EXPECT_EQ(scarce.weights, all.weights - experts.bytes);
  EXPECT_GE(scarce.cache.bytes, sequence);
  // Less and less memory, down to what a token and a page need.
  int slots = scarce.expert_slots;
  size_t memory = scarce.budget;
  for (; error_of([&] { plan_of_mixture(o, memory); }).empty(); memory -= 64 << 10) {
    const MemoryPlan plan = plan_of_mixture(o, memory);
    EXPECT_LE(plan.total(), memory);
    EXPECT_EQ(sum_of_rows(plan), plan.total());
    EXPECT_GE(plan.expert_slots, experts.used);
    EXPECT_LE(plan.expert_slots, slots);
    slots = plan.expert_slots;
  }
  EXPECT_EQ(slots, experts.used);
  EXPECT_LT(memory, all.without_cache() - experts.bytes + least_memory(o.model) + all.layout.unit_bytes() + (1 << 17));

  o.expert_bytes = kAllExperts;
  EXPECT_NE(error_of([&] { plan_of_mixture(o, scarce.budget - sequence); }).find("needs at least"), std::string::npos);
}

TEST(ExpertMemoryPlan, HasTheGivenSlots) {
  EngineOptions o = mixture_options(testing::tiny_model(TensorType::BF16, 512, 0, 32));
  const ExpertTotals experts = experts_of(o.model);
  for (const int slots : {2, 3, 17, 64}) {
    o.expert_bytes = static_cast<size_t>(slots + 1) * experts.slot_bytes - 1;
    EXPECT_EQ(plan_of_mixture(o, size_t{1} << 30).expert_slots, slots);
  }
  o.expert_bytes = size_t{1} << 29;
  EXPECT_EQ(plan_of_mixture(o, size_t{1} << 30).expert_slots, experts.experts);
}

TEST(ExpertMemoryPlan, IsThatOfTheLoadedModel) {
  if (testing::kAddressSanitizer || testing::kThreadSanitizer) GTEST_SKIP() << "sanitizers take memory of their own";
  EngineOptions o = mixture_options(testing::tiny_model(TensorType::BF16, 512, 0, 32));
  o.memory_bytes = size_t{1} << 30;
  o.memory_bytes = plan_of_mixture(o, o.memory_bytes).without_cache();  // not quite enough for all
  const LoadedModel model(o);
  EXPECT_GT(model.plan.expert_slots, 0);
  EXPECT_LE(model.plan.total(), o.memory_bytes);
  EXPECT_EQ(model.info.expert_slots, static_cast<int>(model.target.weights.experts->slots()));
  EXPECT_EQ(model.info.expert_bytes, model.target.weights.experts->memory_bytes());
  EXPECT_EQ(model.info.weight_bytes, model.target.weights.memory.size() + model.info.expert_bytes);
}

TEST(ExpertMemoryPlan, HasAllExpertsOnADeviceThatNeedsThem) {
  EngineOptions o = mixture_options(testing::tiny_model(TensorType::BF16, 512, 0, 32));
  const size_t needed = plan_of_mixture(o, size_t{1} << 30).without_cache();
  EXPECT_NE(error_of([&] { plan_of_mixture(o, needed, false); }).find("needs at least"), std::string::npos);
  o.expert_bytes = size_t{16} << 20;
  o.device = "cuda";
  EXPECT_EQ(error_of([&] { plan_of_mixture(o, size_t{1} << 30, false); }),
            "--expert-memory is a size, but --device cuda needs all experts in its memory; leave it out");
}

}  // namespace
}  // namespace quire
