// Measuring configurations with a real, if tiny, model.
#include "cli/advise/measurer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/advise/predict.h"
#include "engine/dtype_names.h"
#include "error_of.h"
#include "model/synth.h"

namespace quire {
namespace {

class AdvisedModel {
 public:
  explicit AdvisedModel(TensorType type = TensorType::Q8_0)
      : path_(std::filesystem::temp_directory_path() / ("quire-advised-" + std::to_string(::getpid()) + ".gguf")) {
    write_synthetic_model(path_, {"advised", 2, 256, 4, 2, 64, 512, 320, 512, 10000, false}, type, 5);
  }
  ~AdvisedModel() { std::filesystem::remove(path_); }

  EngineOptions options() const {
    EngineOptions options;
    options.model = path_.string();
    options.threads = 2;
    return options;
  }

 private:
  const std::filesystem::path path_;
};

AdviceMeasurer measurer_of(const AdvisedModel& model, const std::string& workload, Progress& progress,
                           ServiceLevel level = {}) {
  AdviceMeasurer measurer(model.options(), read_advice_workload(workload), level, 0.05, progress);
  const ModelInfo& info = measurer.baseline().model;
  measurer.set_topics(advice_topics({.engine = measurer.engine(),
                                     .activations = *find_value(kActivationsNames, info.activations),
                                     .kv = *find_value(kKvTypeNames, info.kv_cache_dtype),
                                     .threads = info.threads,
                                     .concurrency = measurer.workload().concurrency,
                                     .level = level,
                                     .huge_pages = why_no_huge_pages()}));
  return measurer;
}

// The configuration with this flag and no other.
AdviceConfiguration with_flag(const std::vector<AdviceTopic>& topics, std::string_view flag) {
  AdviceConfiguration configuration(topics.size(), 0);
  for (size_t i = 0; i < topics.size(); ++i) {
    for (size_t c = 0; c < topics[i].choices.size(); ++c) {
      if (topics[i].choices[c].flag == flag) configuration[i] = c + 1;
    }
  }
  return configuration;
}

TEST(AdviceMeasurer, FitsTheWorkloadToTheContext) {
  const AdvisedModel model;
  Progress progress;
  const AdviceMeasurer measurer = measurer_of(model, "rag", progress);
  EXPECT_LT(measurer.workload().scale, 0.5);
  EXPECT_LE(measurer.workload().longest(), 512);
  EXPECT_GT(measurer.workload().shared_prefix, 8);
  EXPECT_GE(measurer.workload().requests.size(), static_cast<size_t>(measurer.workload().concurrency));
  EXPECT_GT(measurer.baseline().figures.output_tokens, 0);
}

TEST(AdviceMeasurer, ComparesPairByPair) {
  const AdvisedModel model;
  Progress progress;
  AdviceMeasurer measurer = measurer_of(model, "classify", progress, {.ttft = 1e-9, .tpot = {}, .e2e = {}});
  const std::vector<AdviceTopic>& topics = measurer.topics();
  const PairedScores pairs =
      measurer.compare(AdviceConfiguration(topics.size(), 0), with_flag(topics, "--max-num-seqs 1"), 2);
  ASSERT_EQ(pairs.base.size(), 2u);
  ASSERT_EQ(pairs.other.size(), 2u);
  for (const AdviceScore& score : pairs.base) {
    EXPECT_GT(score.rate, 0);
    EXPECT_FALSE(score.meets());  // no request has its first token within a nanosecond
  }
}

TEST(AdviceMeasurer, MeasuresTheDivergenceOfWhatRounds) {
  const AdvisedModel model;
  Progress progress;
  AdviceMeasurer measurer = measurer_of(model, "chat", progress);
  const std::vector<AdviceTopic>& topics = measurer.topics();
  EXPECT_EQ(measurer.divergence(AdviceConfiguration(topics.size(), 0)), 0);
  EXPECT_EQ(measurer.divergence(with_flag(topics, "--speculative ngram")), 0);  // the same answers
  const double int8 = measurer.divergence(with_flag(topics, "--kv-cache-dtype int8"));
  const double int4 = measurer.divergence(with_flag(topics, "--kv-cache-dtype int4"));
  EXPECT_GT(int8, 0);
  EXPECT_GT(int4, int8);
  EXPECT_GT(measurer.compared_tokens(), 100);
}

TEST(AdviceMeasurer, StartsWithoutAndWithAPackCache) {
  const AdvisedModel model;
  Progress progress;
  AdviceMeasurer measurer = measurer_of(model, "chat", progress);
  const auto folders = [] {
    return std::ranges::count_if(
        std::filesystem::directory_iterator(std::filesystem::temp_directory_path()),
        [](const auto& entry) { return entry.path().filename().string().starts_with("quire-advise-"); });
  };
  const auto before = folders();
  int checks = 0;
  const AdviceStarts starts = measurer.measure_starts([&] { ++checks; });
  EXPECT_EQ(checks, 3);
  EXPECT_GT(starts.packing, 0);
  EXPECT_GT(starts.mapping, 0);
  // It is as usable as before, and leaves nothing behind.
  const AdviceConfiguration start(measurer.topics().size(), 0);
  EXPECT_GT(measurer.compare(start, start, 1).base[0].rate, 0);
  struct Stop {};
  EXPECT_THROW(measurer.measure_starts([] { throw Stop(); }), Stop);
  EXPECT_EQ(folders(), before);
}

AdvicePredictions predictions_for(TensorType type) {
  const AdvisedModel model(type);
  Progress progress;
  const AdviceMeasurer measurer = measurer_of(model, "chat", progress);
  return predict_advice(measurer.engine(), measurer.baseline(), measurer.workload());
}

TEST(PredictAdvice, HasSmallerWeightTypesOnly) {
  for (const AdvicePrediction& row : predictions_for(TensorType::BF16).weight_types) {
    ASSERT_TRUE(row.gain) << row.not_predicted;
    EXPECT_GT(*row.gain, 0);
  }
  for (const AdvicePrediction& row : predictions_for(TensorType::Q4_0).weight_types) {
    EXPECT_FALSE(row.gain);
    EXPECT_NE(row.not_predicted.find("bits already"), std::string::npos) << row.not_predicted;
  }
}

TEST(PredictAdvice, HasBatchesOfUpTo32) {
  const std::vector<BatchPrediction> batches = predictions_for(TensorType::Q4_0).batching;
  ASSERT_EQ(batches.size(), 6u);
  EXPECT_EQ(batches.front().concurrency, 1);
  EXPECT_EQ(batches.back().concurrency, 32);
  EXPECT_GT(batches.back().rate, batches.front().rate);
}

TEST(AdvicePrompts, ShareTheirBeginningAndNothingElse) {
  const AdvisedModel model;
  const Engine engine(model.options());
  AdviceWorkload workload = scaled(read_advice_workload("rag"), 0.2);
  const AdvicePrompts prompts(engine, workload);
  std::vector<TokenIds> all;
  for (const uint64_t run : {0, 1}) {
    for (const ScheduledRequest& scheduled : prompts.requests(engine, workload, run)) {
      all.push_back(scheduled.request.prompt);
      EXPECT_NEAR(static_cast<double>(all.back().size()), workload.requests[0].input_tokens, 100);  // and a question
    }
  }
  ASSERT_EQ(all.size(), 2 * workload.requests.size());
  const auto shared = static_cast<ptrdiff_t>(workload.shared_prefix) - 2;  // spaces may join differently at the seam
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_TRUE(std::equal(all[0].begin(), all[0].begin() + shared, all[i].begin())) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << ' ' << j;
  }
  workload.text_file = "/no/such/text";
  EXPECT_NE(error_of([&] { AdvicePrompts(engine, workload); }).find("/no/such/text"), std::string::npos);
}

TEST(ServeCommand, ReplacesAGivenFlagAndQuotesTheModel) {
  EngineOptions engine;
  engine.model = "my model's.gguf";
  engine.threads = 4;
  engine.kernels = "avx2";
  const auto topics = advice_topics(
      {.engine = engine, .activations = Activations::kInt8x2, .kv = KvType::kBf16, .threads = 4, .concurrency = 4});
  EXPECT_EQ(serve_command(engine, topics, AdviceConfiguration(topics.size(), 0)),
            R"(quire serve -m 'my model'\''s.gguf' -t 4 --kernels avx2)");
  engine.max_num_seqs = 128;
  EXPECT_EQ(
      serve_command(engine, topics, with_flag(topics, "--max-num-batched-tokens 2048")),
      R"(quire serve -m 'my model'\''s.gguf' -t 4 --kernels avx2 --max-num-seqs 128 --max-num-batched-tokens 2048)");
  engine.max_num_seqs = EngineOptions().max_num_seqs;
  EXPECT_EQ(serve_command(engine, topics, with_flag(topics, "-t 2")),
            R"(quire serve -m 'my model'\''s.gguf' --kernels avx2 -t 2)");
}

}  // namespace
}  // namespace quire
