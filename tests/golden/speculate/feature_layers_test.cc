// Layers that predict hidden states, compared with the equations of their cards: EAGLE heads by torch, layers for multi-token
// prediction by transformers.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "golden/speculate/cards.h"
#include "model/families.h"
#include "model/registry.h"
#include "paths.h"
#include "speculate/network/chains.h"
#include "speculate/network/eagle.h"
#include "speculate/network/mtp.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::BareBatch;
using testing::BareCache;
using testing::BareModel;
using testing::copied;

struct FeaturePair {
  const char* name;
  fs::path card;       // describes a head, next to its weights, or a layer of the target
  std::string target;  // a path, or a model of the registry
  double tolerance;    // for logits and features
  bool on_all_kernels, is_mtp;
};
void PrintTo(const FeaturePair& pair, std::ostream* out) { *out << pair.name; }
std::vector<FeaturePair> feature_pairs() {
  const fs::path drafters = golden_dir() / "drafters", eagle = drafters / "eagle";
  const auto mtp = [&](const char* name, const char* card, const char* target, double tolerance) {
    return FeaturePair{name, drafters / card, drafters / target, tolerance, true, true};
  };
  return {{"eagle", eagle, golden_dir() / "models/llama", 5e-5, true, false},
          // Its queries and keys are in another order, for another kind of rope; the head's are not.
          {"eagle_gguf", eagle, shared_dir() / "golden/models-gguf/llama.gguf", 5e-5, false, false},
          {"eagle_smollm2", shared_dir() / "models/smollm2-eagle", "smollm2", 2e-3, false, false},
          mtp("mtp_deepseek_v3", "mtp_deepseek_v3", "mtp_deepseek_v3", 5e-5),
          mtp("mtp_glm4_moe", "mtp_glm4_moe", "mtp_glm4_moe", 5e-5),
          mtp("mtp_glm4_moe_gguf", "mtp_glm4_moe", "mtp_glm4_moe.gguf", 5e-5),
          mtp("mtp_qwen3_next", "mtp_qwen3_next", "mtp_qwen3_next", 5e-4)};
}
fs::path target(const FeaturePair& pair) {
  return fs::exists(pair.target) ? fs::path(pair.target) : resolve_model(pair.target);
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

class FeatureLayers : public ::testing::TestWithParam<FeaturePair> {
 protected:
  void SetUp() override {
    if (!fs::exists(GetParam().card)) GTEST_SKIP() << GetParam().card << " is not at hand";
    try {
      target(GetParam());
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }

  // A layer with its target and a cache for several sequences.
  struct Run {
    Run(const FeaturePair& pair, std::string_view kernels) : m(target(pair), Activations::kF32, kernels) {
      FeatureLayer read = pair.is_mtp
                              ? read_mtp(m.checkpoint, m.config, m.backend, m.team, std::numeric_limits<size_t>::max())
                              : read_eagle(pair.card, m.config, m.backend, m.team);
      const ModelConfig* drafters[] = {&read.config};
      cache = std::make_unique<BareCache>(m.backend, cache_layout(m.config, KvType::kF32, drafters), kPrompts, kTokens);
      predictor = std::make_unique<FeaturePredictor>(std::make_shared<FeatureLayer>(std::move(read)), m.config,
                                                     m.weights, cache->memory, m.backend, m.activations, kLimits,
                                                     static_cast<int>(m.config.layers.size()));
    }
    const Linear& output() const { return predictor->output_weights().output; }
    std::span<float> forward(const Batch& batch, const Rows& features) {
      return predictor->forward(batch, features, numbered_rows(static_cast<int>(batch.rows.size())), output());
    }
    BareModel m;
    std::unique_ptr<BareCache> cache;
    std::unique_ptr<FeaturePredictor> predictor;
  };
};

TEST_P(FeatureLayers, ReadTheFeaturesOfTheTarget) {
  BareModel m(target(GetParam()));
  BareCache cache(m.backend, cache_layout(m.config, KvType::kF32), 1, kTokens);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
  const Card expected(GetParam().card);
  for (int n = 0; n < kPrompts; ++n) {
    const TokenIds tokens = expected.ids(n, "tokens");
    const int count = static_cast<int>(tokens.size());
    decoder.forward(BareBatch(cache).add(0, 0, tokens, 0, count));
    EXPECT_LE(largest_difference(expected.floats(n, "target_features"), copied(decoder.hidden(), count)),
              GetParam().tolerance);
  }
}

TEST_P(FeatureLayers, GiveTheFeaturesAndLogitsOfTheirCard) {
  const Card expected(GetParam().card);
  for (const std::string& kernels : kernel_names(GetParam().on_all_kernels)) {
    SCOPED_TRACE(kernels);
    Run run(GetParam(), kernels);
    for (int n = 0; n < kPrompts; ++n) {
      const TokenIds tokens = expected.ids(n, "tokens");
      const OwnedRows f = rows_of(expected.floats(n, "target_features"), run.m.config.hidden);
      const auto logits = run.forward(BareBatch(*run.cache).add(n, 0, std::span(tokens).subspan(1), 8, 8), f.rows);
      EXPECT_LE(largest_difference(expected.floats(n, "step1.features_last8"), copied(run.predictor->predicted(), 8)),
                GetParam().tolerance);
      expect_best(expected, n, "step1.", "_last8", logits, GetParam().tolerance);
      EXPECT_LE(largest_difference(expected.floats(n, "step1.full_logits_last2"), logits.last(logits.size() / 4)),
                GetParam().tolerance);
    }
  }
}

TEST_P(FeatureLayers, DraftTheChainsOfTheirCardForAllSequencesAtOnce) {
  const Card expected(GetParam().card);
  for (const std::string& kernels : kernel_names(GetParam().on_all_kernels)) {
    SCOPED_TRACE(kernels);
    Run run(GetParam(), kernels);
    const int hidden = run.m.config.hidden;
    const auto vocab = static_cast<size_t>(run.m.config.vocab);
    TokenIds tokens[kPrompts];
    std::vector<float> features;
    for (int n = 0; n < kPrompts; ++n) {
      tokens[n] = expected.ids(n, "tokens");
      auto f = expected.floats(n, "target_features");
      f.resize(f.size() - static_cast<size_t>(hidden));  // the last token was just sampled
      features.insert(features.end(), f.begin(), f.end());
    }
    // The prompts, then a row of each sequence at a time.
    BareBatch prompts(*run.cache);
    for (int n = 0; n < kPrompts; ++n) prompts.add(n, 0, std::span(tokens[n]).subspan(1), 1, 1);
    auto logits = copied(run.forward(prompts, rows_of(features, hidden).rows));
    std::vector<float> chain[kPrompts];
    for (int depth = 0;; ++depth) {
      BareBatch next(*run.cache);
      for (int n = 0; n < kPrompts; ++n) {
        const auto row = std::span(logits).subspan(static_cast<size_t>(n) * vocab, vocab);
        chain[n].insert(chain[n].end(), row.begin(), row.end());
        tokens[n].push_back(best(row));
        next.add(n, static_cast<int>(tokens[n].size()) - 2, std::span(tokens[n]).last(1), 1, 1);
      }
      if (depth == 4) break;
      const OwnedRows predicted = rows_of(copied(run.predictor->predicted(), kPrompts), hidden);
      logits = copied(run.forward(next, predicted.rows));
    }
    for (int n = 0; n < kPrompts; ++n) {
      const TokenIds drafts(tokens[n].end() - 5, tokens[n].end());
      EXPECT_EQ(drafts, expected.ids(n, "chain.tokens"));
      expect_best(expected, n, "chain.", "", chain[n], GetParam().tolerance);
    }

    // The same, as drafting does it.
    const OwnedRows of_card = rows_of(features, hidden);
    FeatureNetwork network(
        *run.predictor, [&] { return of_card.rows; }, run.output());
    Chains chains(network, kLimits.max_rows, true);
    BestTokenPicker best(run.m.team);
    std::vector<ChainRequest> requests;
    int feature = 0;
    for (int n = 0; n < kPrompts; ++n) {
      const auto rows = std::span(tokens[n]).subspan(1, tokens[n].size() - 6);
      requests.push_back({.tables = run.cache->tables_of[static_cast<size_t>(n)],
                          .position = 0,
                          .tokens = rows,
                          .feature = feature,
                          .depth = 5});
      feature += static_cast<int>(rows.size());
    }
    TokenIds drafts[kPrompts];
    chains.draft(requests, {}, best, drafts);
    for (int n = 0; n < kPrompts; ++n) EXPECT_EQ(drafts[n], expected.ids(n, "chain.tokens"));
  }
}

TEST_P(FeatureLayers, DoNotDependOnTheBatchOrOnDraftsThatWereRejected) {
  const Card expected(GetParam().card);
  Run batched(GetParam(), "auto"), alone(GetParam(), "auto");
  const int hidden = alone.m.config.hidden;
  const TokenIds a = expected.ids(0, "tokens"), b = expected.ids(1, "tokens");
  const OwnedRows fa = rows_of(expected.floats(0, "target_features"), hidden),
                  fb = rows_of(expected.floats(1, "target_features"), hidden);
  const int rows = static_cast<int>(a.size()) - 1, more = static_cast<int>(b.size()) - 1;
  const auto wanted = copied(alone.forward(BareBatch(*alone.cache).add(0, 0, std::span(a).subspan(1), 3, 3), fa.rows));
  const auto features = copied(alone.predictor->predicted(), 3);

  // A prompt in two chunks, batched with another sequence; then a draft; then its verification, which computes the last
  // three rows.
  OwnedRows joined = rows_of({}, hidden);
  const auto add_rows = [&](const Rows& from, int begin, int end) {
    joined.memory.insert(joined.memory.end(), from.row(begin), from.row(begin) + (end - begin) * hidden);
    joined.rows.data = joined.memory.data();
  };
  add_rows(fb.rows, 0, more);
  add_rows(fa.rows, 0, 4);
  const std::span<const TokenId> of_a = std::span(a).subspan(1), of_b = std::span(b).subspan(1);
  batched.forward(BareBatch(*batched.cache).add(1, 0, of_b, 1).add(0, 0, of_a.first(4)), joined.rows);
  batched.forward(BareBatch(*batched.cache).add(0, 4, of_a.subspan(4, static_cast<size_t>(rows) - 7)), fa.rows.from(4));
  const TokenId wrong[] = {5, 6, 7, 8};
  batched.forward(BareBatch(*batched.cache).add(0, rows - 3, wrong, 4), fb.rows);
  joined.memory.clear();
  add_rows(fa.rows, rows - 3, rows);
  add_rows(fb.rows, 0, 1);
  const auto logits = copied(batched.forward(
      BareBatch(*batched.cache).add(0, rows - 3, of_a.last(3), 3, 3).add(1, more, of_b.first(1)), joined.rows));
  EXPECT_EQ(logits, wanted);
  EXPECT_EQ(copied(batched.predictor->predicted(), 3), features);
}

INSTANTIATE_TEST_SUITE_P(Targets, FeatureLayers, ::testing::ValuesIn(feature_pairs()),
                         [](const auto& pair) { return pair.param.name; });

TEST(LayersForMultiTokenPrediction, HaveMatricesOfTheirOwnOnlyWhereTheyDifferFromTheModels) {
  const auto joined = [](const char* name) {
    const Checkpoint checkpoint = Checkpoint::open(golden_dir() / "drafters" / name);
    return *predicting_layer(checkpoint, read_model_config(checkpoint))->joined_input;
  };
  EXPECT_FALSE(joined("mtp_deepseek_v3").embedding);  // a copy
  EXPECT_TRUE(joined("mtp_deepseek_v3").output);
  EXPECT_FALSE(joined("mtp_glm4_moe.gguf").embedding);
  EXPECT_TRUE(joined("mtp_glm4_moe.gguf").output);
  EXPECT_FALSE(joined("mtp_qwen3_next").embedding);
  EXPECT_FALSE(joined("mtp_qwen3_next").output);
}

}  // namespace
}  // namespace quire
