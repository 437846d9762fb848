// Ranks that are processes give the bits of one, and end together. Here the processes are threads (unit/ops/thread_group.h);
// tests/e2e/test_mpi.py has real ones.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/ranks/agreement.h"
#include "engine/ranks/follow.h"
#include "engine/step/replay.h"
#include "error_of.h"
#include "model/registry.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/drafters.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/several_ranks.h"
#include "unit/engine/tiny_engine.h"
#include "unit/ops/thread_group.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::all_logits;
using testing::answers_together;
using testing::expect_same;
using testing::random_tokens;
using testing::ThreadGroup;

EngineOptions process_options(std::string model) {
  EngineOptions o = testing::small_options(std::move(model));
  o.threads = 1;
  o.kv_cache_bytes = size_t{8} << 20;
  return o;
}

enum class Share { kOutputs, kLayers };

// Runs work(options of the rank) for every rank on a thread of its own; the caller is rank 0. What the others throw is in
// errors().
class Processes {
 public:
  Processes(int ranks, EngineOptions o, Share share = Share::kOutputs)
      : ranks_(ranks), group_(ranks), options_(std::move(o)), errors_(static_cast<size_t>(ranks)) {
    (share == Share::kLayers ? options_.pipeline_parallel_size : options_.tensor_parallel_size) = ranks;
  }
  ~Processes() { join(); }

  ThreadGroup& group() { return group_; }
  EngineOptions of(int rank) {
    EngineOptions o = options_;
    o.processes = group_.of(rank);
    if (rank > 0) o.record.clear();
    return o;
  }
  void start(const std::function<void(const EngineOptions&)>& work = follow) {
    for (int rank = 1; rank < ranks_; ++rank) {
      threads_.emplace_back(
          [this, rank, work] { errors_[static_cast<size_t>(rank)] = error_of([&] { work(of(rank)); }); });
    }
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  const int ranks_;
  ThreadGroup group_;
  EngineOptions options_;
  std::vector<std::string> errors_;  // by rank
  std::vector<std::thread> threads_;
};

class ProcessKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(ProcessKinds, HaveTheLogitsOfOne) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 40);
  LoadedModel one(process_options(path), 64);
  const auto expected = all_logits(one, ids, 20);
  for (const int ranks : {2, 3}) {
    Processes processes(ranks, process_options(path));
    processes.start([](const EngineOptions& o) { LoadedModel(o, 64).processes->follow(); });
    {
      LoadedModel several(processes.of(0), 64);
      EXPECT_TRUE(testing::same_bits(expected, all_logits(several, ids, 7))) << ranks << " ranks";
      EXPECT_GT(several.gathered().bytes, 0u);
    }
    processes.join();
    EXPECT_EQ(processes.errors(), std::vector<std::string>(static_cast<size_t>(ranks)));
    EXPECT_EQ(processes.group().closed(), ranks);
  }
}
TEST_P(ProcessKinds, HaveTheLogitsOfOneAsStages) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  const TokenIds ids = random_tokens(1, 40);
  LoadedModel one(process_options(path), 64);
  EngineOptions o = process_options(path);
  o.micro_batch_rows = 3;
  o.pipeline_parallel_size = 2;
  if (!error_of([&] { LoadedModel stages(o, 64); }).empty()) GTEST_SKIP() << "it cannot be cut";
  Processes processes(2, o, Share::kLayers);
  processes.start([](const EngineOptions& rank) { LoadedModel(rank, 64).processes->follow(); });
  {
    LoadedModel several(processes.of(0), 64);
    EXPECT_TRUE(testing::same_bits(all_logits(one, ids, 20), all_logits(several, ids, 17)));
    EXPECT_EQ(several.stage_bytes(), ids.size() * several.plan.stages[0].sent_bytes);
    EXPECT_EQ(several.target.weights.matrix_bytes, several.plan.stages[0].weights);
    EXPECT_LT(several.target.weights.matrix_bytes, one.target.weights.matrix_bytes);
  }
  processes.join();
  EXPECT_EQ(processes.errors(), std::vector<std::string>(2));
}
INSTANTIATE_TEST_SUITE_P(All, ProcessKinds, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

void expect_answers_of_one_process(const EngineOptions& o, int ranks = 3, Share share = Share::kOutputs) {
  Engine one(o);
  Processes processes(ranks, o, share);
  processes.start();
  {
    Engine several(processes.of(0));
    EXPECT_EQ(share == Share::kLayers ? several.info().stages : several.info().ranks, ranks);
    testing::expect_same_answers(one, several, std::to_string(ranks) + " processes");
  }
  processes.join();
  EXPECT_EQ(processes.errors(), std::vector<std::string>(static_cast<size_t>(ranks)));
}

TEST(Processes, AnswerAsOneWithDrafters) {
  EngineOptions o = testing::undrafted_options(4, 128);
  o.threads = 1;
  o.kv_cache_bytes = size_t{8} << 20;
  o.speculate_always = true;
  o.micro_batch_rows = 2;
  o.speculative = Speculation::kNgram;
  expect_answers_of_one_process(o);
  expect_answers_of_one_process(o, 2, Share::kLayers);
  o.speculative = Speculation::kDraft;
  o.draft_model = o.model;
  expect_answers_of_one_process(o);
  expect_answers_of_one_process(o, 2, Share::kLayers);
  testing::use_mtp(o, "deepseek_v3");  // which reads hidden states and embeddings
  o.draft_model.clear();
  expect_answers_of_one_process(o, 2, Share::kLayers);
}

// Pages that several processes have kept on disk serve one, and the other way round.
TEST(Processes, KeepPagesAsOneDoes) {
  const fs::path folder = fs::temp_directory_path() / ("quire-processes-" + std::to_string(::getpid()));
  for (const char* kind : {"mistral", "qwen3_next"}) {
    EngineOptions o = process_options(testing::golden_kind(kind));
    o.cache_dir = folder.string();
    const Request request = seeded_request(random_tokens(9, 70), 8);
    const auto answer_of = [&](int ranks, Share share = Share::kOutputs) {
      if (ranks == 1) {
        Engine engine(o);
        return testing::answer(engine, request);
      }
      Processes processes(ranks, o, share);
      processes.start();
      Engine engine(processes.of(0));
      return testing::answer(engine, request);
    };
    const testing::Answer cold = answer_of(2);
    EXPECT_EQ(cold.last.usage.cached_tokens, 0);
    for (const int ranks : {1, 3}) {
      const testing::Answer warm = answer_of(ranks);
      expect_same(cold, warm, std::to_string(ranks));
      EXPECT_GE(warm.last.usage.cached_tokens, 64) << kind << ranks;
    }
    const testing::Answer staged = answer_of(2, Share::kLayers);
    expect_same(cold, staged, "stages");
    EXPECT_GE(staged.last.usage.cached_tokens, 64) << kind;
    fs::remove_all(folder);
    expect_same(cold, answer_of(2, Share::kLayers), "stages that write pages");
    expect_same(cold, answer_of(1), "pages of stages");
    fs::remove_all(folder);
  }
}

// A rank fails in some gather of a step, or as a stage that sends or receives, or hangs: the requests end, the engine says why,
// and all ranks end.
TEST(Processes, EndTogether) {
  for (const auto& [share, ranks, failing, hangs] : {std::tuple{Share::kOutputs, 3, 0, false},
                                                     {Share::kOutputs, 3, 1, false},
                                                     {Share::kOutputs, 3, 1, true},
                                                     {Share::kOutputs, 3, 2, false},
                                                     {Share::kOutputs, 3, 2, true},
                                                     {Share::kLayers, 2, 0, false},
                                                     {Share::kLayers, 2, 1, false},
                                                     {Share::kLayers, 2, 1, true}}) {
    EngineOptions o = process_options(testing::golden_kind("mistral"));
    o.rank_timeout = 0.3;
    std::string why;
    o.on_lost = [&why](std::string_view text) { why = text; };
    Processes processes(ranks, o, share);
    processes.start();
    {
      Engine engine(processes.of(0));
      const int n = share == Share::kLayers ? 2 : 7;
      if (hangs) {
        processes.group().let_hang(failing, n);
      } else {
        processes.group().let_fail(failing, n);
      }
      for (int i = 0; i < 2; ++i) {
        const testing::Answer answer = testing::answer(engine, seeded_request(random_tokens(1, 30), 8));
        EXPECT_EQ(answer.last.finish, FinishReason::kLost) << answer.last.error;
        const std::string expected = hangs ? " does not answer" : "out of memory";
        EXPECT_NE(answer.last.error.find(expected), std::string::npos) << answer.last.error;
      }
    }
    processes.join();
    EXPECT_NE(why, "");
    for (int rank = 1; rank < ranks; ++rank) EXPECT_NE(processes.errors()[static_cast<size_t>(rank)], "");
    EXPECT_EQ(processes.group().closed(), 0);
  }
}

// Without requests, too.
TEST(Processes, NoticeAnEndWhileTheyWait) {
  EngineOptions o = process_options(testing::golden_kind("mistral"));
  o.rank_timeout = 0.3;
  std::promise<std::string> lost;
  o.on_lost = [&lost](std::string_view text) { lost.set_value(std::string(text)); };
  Processes processes(2, o);
  processes.start();
  Engine engine(processes.of(0));
  processes.group().let_hang(1, 1);
  auto why = lost.get_future();
  ASSERT_EQ(why.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(why.get(), "rank 1 does not answer");
}

TEST(Processes, RefuseToStartIfTheyDiffer) {
  const std::string model = testing::golden_kind("mistral");
  const auto error_with = [&](const std::function<void(EngineOptions&)>& change) {
    Processes processes(2, process_options(model));
    processes.start([&](EngineOptions o) {
      change(o);
      follow(o);
    });
    const std::string error = error_of([&] { LoadedModel several(processes.of(0)); });
    processes.join();
    EXPECT_EQ(processes.errors()[1], error);
    return error;
  };
  EXPECT_NE(error_with([](EngineOptions& o) { o.model = testing::golden_kind("ministral3"); }).find("another model"),
            std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.activations = "f32"; }).find("another activations"), std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.kv_cache_dtype = "int8"; }).find("another KV cache"),
            std::string::npos);
  EXPECT_NE(error_with([](EngineOptions& o) { o.max_num_batched_tokens = 32; }).find("another limits"),
            std::string::npos);
}

TEST(Processes, TakeTheSmallestCache) {
  Processes processes(2, process_options(testing::golden_kind("mistral")));
  int units = 0;
  processes.start([&](EngineOptions o) {
    o.kv_cache_bytes = size_t{1} << 20;
    LoadedModel model(o);
    units = model.info.kv_pages;
    model.processes->follow();
  });
  int mine = 0;
  {
    LoadedModel model(processes.of(0));
    mine = model.info.kv_pages;
    EXPECT_LE(model.processes->local().cache().bytes(), size_t{1} << 20);
    EXPECT_EQ(model.processes->local().cache().bytes(), model.plan.cache.bytes);
  }
  processes.join();
  EXPECT_EQ(units, mine);
  EXPECT_GT(units, 0);
}

TEST(Processes, ReplayARecording) {
  const fs::path file = fs::temp_directory_path() / ("quire-processes-" + std::to_string(::getpid()) + ".jsonl");
  EngineOptions o = process_options(testing::golden_kind("qwen3_next"));
  o.record = file.string();
  {
    Engine engine(o);
    answers_together(engine, testing::mixed_requests());
  }
  const auto with_replay = [&](const EngineOptions& rank, const auto& work) {
    Runtime runtime(rank);
    RecordingReader reader(file.string());
    const Checkpoint checkpoint = Checkpoint::open(resolve_model(rank.model));
    Model model = read_model(checkpoint);
    model.weights =
        load_weights(checkpoint, model.config, runtime.backend(), runtime.team, {.memory = runtime.memory.left()});
    Replay replay(reader.header(), model, runtime, *rank.processes, 2);
    work(replay, reader);
  };
  Processes processes(3, o);
  processes.start(
      [&](const EngineOptions& rank) { with_replay(rank, [](Replay& replay, RecordingReader&) { replay.follow(); }); });
  with_replay(processes.of(0), [](Replay& replay, RecordingReader& reader) {
    while (const auto step = reader.next()) EXPECT_FALSE(replay.run(*step));
    EXPECT_GT(replay.logits(), 20u);
  });
  processes.join();
  EXPECT_EQ(processes.errors(), std::vector<std::string>(3));
  fs::remove(file);
}

}  // namespace
}  // namespace quire
