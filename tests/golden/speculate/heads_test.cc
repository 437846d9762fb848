// EAGLE and Medusa heads compared with the equations of their cards, computed by torch.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "golden/engine/expected_tensors.h"
#include "model/packing/output_rows.h"
#include "model/registry.h"
#include "paths.h"
#include "speculate/eagle.h"
#include "speculate/medusa.h"
#include "speculate/token_frequency.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::BareBatch;
using testing::BareCache;
using testing::BareModel;
using testing::copied;

constexpr int kPrompts = 2, kTokens = 64;
constexpr DecoderLimits kLimits{.max_rows = 128, .max_logits = 32, .max_positions = kTokens, .max_hidden = 128};

// A target and its heads.
struct Pair {
  const char* name;
  fs::path folder;     // of the heads: NAMEeagle, NAMEmedusa
  std::string target;  // a path, or a model of the registry
  double tolerance;    // of logits and features
  bool on_all_kernels;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }
std::vector<Pair> pairs() {
  return {{"tiny", golden_dir() / "drafters/", golden_dir() / "models/llama", 5e-5, true},
          // Its queries and keys are in another order, for another kind of rope; the head's are not.
          {"gguf", golden_dir() / "drafters/", shared_dir() / "golden/models-gguf/llama.gguf", 5e-5, false},
          {"smollm2", shared_dir() / "models/smollm2-", "smollm2", 2e-3, false}};
}

// Memory for rows of numbers in a file.
struct OwnedRows {
  std::vector<float> memory;
  Rows rows;
};
OwnedRows rows_of(std::vector<float> values, int cols) {
  OwnedRows r{std::move(values), {}};
  r.rows = {r.memory.data(), cols, static_cast<size_t>(cols)};
  return r;
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

class Heads : public ::testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    target_ = GetParam().target;
    if (fs::exists(target_)) return;  // of this repository
    if (!fs::exists(path("eagle"))) GTEST_SKIP() << path("eagle") << " is not at hand";
    try {
      target_ = resolve_model(GetParam().target);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  fs::path path(const std::string& head) const { return GetParam().folder.string() + head; }
  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    for (const KernelSet* set : available_kernels()) {
      if (GetParam().on_all_kernels || set == available_kernels().back()) names.emplace_back(set->name);
    }
    return names;
  }

  // Expected values of both prompts.
  struct Expected {
    explicit Expected(const fs::path& folder) : file(Safetensors::open(folder / "expected.safetensors")) {}
    std::vector<float> floats(int prompt, const std::string& name) const {
      return values<float>(file, "prompt" + std::to_string(prompt) + "." + name);
    }
    TokenIds ids(int prompt, const std::string& name) const {
      return values<int32_t>(file, "prompt" + std::to_string(prompt) + "." + name);
    }
    Safetensors file;
  };

  // logits [rows][vocabulary] have the best 20 that the file lists for each row.
  void expect_best(const Expected& expected, int prompt, const std::string& name, const std::string& rows,
                   std::span<const float> logits) const {
    const TokenIds ids = expected.ids(prompt, name + "top20_ids" + rows);
    const auto wanted = expected.floats(prompt, name + "top20_logits" + rows);
    ASSERT_FALSE(wanted.empty()) << name;
    const size_t count = wanted.size() / 20, vocab = logits.size() / count;
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(logits[i / 20 * vocab + static_cast<size_t>(ids[i])], wanted[i], GetParam().tolerance)
          << "prompt " << prompt << " " << name << " row " << i / 20;
  }

  fs::path target_;
};

TEST_P(Heads, ReadTheFeaturesOfTheTarget) {
  BareModel m(target_);
  BareCache cache(cache_layout(m.config, KvType::kF32), 1, kTokens);
  Decoder decoder(m.config, m.weights, cache.memory, m.compute, kLimits);
  const Expected expected(path("eagle"));
  for (int n = 0; n < kPrompts; ++n) {
    const TokenIds tokens = expected.ids(n, "tokens");
    const int count = static_cast<int>(tokens.size());
    decoder.forward(BareBatch(cache).add(0, 0, tokens, 0, count));
    EXPECT_LE(largest_difference(expected.floats(n, "target_features"), copied(decoder.hidden(), count)),
              GetParam().tolerance);
  }
}

// An EAGLE head with its target and a cache for several sequences.
struct EagleRun {
  EagleRun(const fs::path& target, const fs::path& head, std::string_view kernels)
      : m(target, Activations::kF32, kernels) {
    EagleHead read = read_eagle(head, m.config, m.team);
    const ModelConfig* drafters[] = {&read.config};
    cache = std::make_unique<BareCache>(cache_layout(m.config, KvType::kF32, drafters), kPrompts, kTokens);
    eagle = std::make_unique<Eagle>(std::move(read), m.config, m.weights, cache->memory, m.compute, kLimits,
                                    static_cast<int>(m.config.layers.size()));
  }
  std::span<float> forward(const Batch& batch, const Rows& features) {
    return eagle->forward(batch, features, m.weights.output);
  }
  BareModel m;
  std::unique_ptr<BareCache> cache;
  std::unique_ptr<Eagle> eagle;
};

TEST_P(Heads, OfEagleGiveTheFeaturesAndLogitsOfTheirCard) {
  const Expected expected(path("eagle"));
  for (const std::string& kernels : kernels()) {
    SCOPED_TRACE(kernels);
    EagleRun run(target_, path("eagle"), kernels);
    for (int n = 0; n < kPrompts; ++n) {
      const TokenIds tokens = expected.ids(n, "tokens");
      const OwnedRows f = rows_of(expected.floats(n, "target_features"), run.m.config.hidden);
      const auto logits = run.forward(BareBatch(*run.cache).add(n, 0, std::span(tokens).subspan(1), 8, 8), f.rows);
      EXPECT_LE(largest_difference(expected.floats(n, "step1.features_last8"), copied(run.eagle->predicted(), 8)),
                GetParam().tolerance);
      expect_best(expected, n, "step1.", "_last8", logits);
      EXPECT_LE(largest_difference(expected.floats(n, "step1.full_logits_last2"), logits.last(logits.size() / 4)),
                GetParam().tolerance);
    }
  }
}

TEST_P(Heads, OfEagleDraftTheChainsOfTheirCardForAllSequencesAtOnce) {
  const Expected expected(path("eagle"));
  for (const std::string& kernels : kernels()) {
    SCOPED_TRACE(kernels);
    EagleRun run(target_, path("eagle"), kernels);
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
      const OwnedRows predicted = rows_of(copied(run.eagle->predicted(), kPrompts), hidden);
      logits = copied(run.forward(next, predicted.rows));
    }
    for (int n = 0; n < kPrompts; ++n) {
      const TokenIds drafts(tokens[n].end() - 5, tokens[n].end());
      EXPECT_EQ(drafts, expected.ids(n, "chain.tokens"));
      expect_best(expected, n, "chain.", "", chain[n]);
    }

    // The same, as drafting does it.
    Chains chains(*run.eagle, kLimits, hidden);
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
    chains.draft(requests, rows_of(features, hidden).rows, run.m.weights.output, {}, best, drafts);
    for (int n = 0; n < kPrompts; ++n) EXPECT_EQ(drafts[n], expected.ids(n, "chain.tokens"));
  }
}

TEST_P(Heads, OfEagleDoNotDependOnTheBatchOrOnDraftsThatWereRejected) {
  const Expected expected(path("eagle"));
  EagleRun batched(target_, path("eagle"), "auto"), alone(target_, path("eagle"), "auto");
  const int hidden = alone.m.config.hidden;
  const TokenIds a = expected.ids(0, "tokens"), b = expected.ids(1, "tokens");
  const OwnedRows fa = rows_of(expected.floats(0, "target_features"), hidden),
                  fb = rows_of(expected.floats(1, "target_features"), hidden);
  const int rows = static_cast<int>(a.size()) - 1, more = static_cast<int>(b.size()) - 1;
  const auto wanted = copied(alone.forward(BareBatch(*alone.cache).add(0, 0, std::span(a).subspan(1), 3, 3), fa.rows));
  const auto features = copied(alone.eagle->predicted(), 3);

  // A prompt in two chunks beside another sequence, then a draft; the verification brings back the last three rows.
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
  EXPECT_EQ(copied(batched.eagle->predicted(), 3), features);
}

TEST_P(Heads, OfMedusaGiveTheLogitsOfTheirCard) {
  const Expected expected(path("medusa"));
  for (const std::string& kernels : kernels()) {
    SCOPED_TRACE(kernels);
    BareModel m(target_, Activations::kF32, kernels);
    Medusa medusa(read_medusa(path("medusa"), m.config, m.team), m.config, m.compute, 2 * 8);
    // The last eight positions of both prompts, as one batch.
    std::vector<float> features;
    for (int n = 0; n < kPrompts; ++n) {
      const auto f = expected.floats(n, "target_features");
      features.insert(features.end(), f.end() - 8 * m.config.hidden, f.end());
    }
    const OwnedRows f = rows_of(features, m.config.hidden);
    const auto logits = copied(medusa.forward(f.rows, 16, medusa.heads(), m.weights.output));
    const auto vocab = static_cast<size_t>(m.config.vocab), heads = static_cast<size_t>(medusa.heads());
    ASSERT_EQ(logits.size(), 16 * heads * vocab);
    const auto of_head = [&](int prompt, size_t head, size_t first, size_t rows) {
      std::vector<float> some;
      for (size_t r = static_cast<size_t>(prompt) * 8 + first; rows > 0; ++r, --rows) {
        const auto row = logits.begin() + static_cast<ptrdiff_t>((r * heads + head) * vocab);
        some.insert(some.end(), row, row + static_cast<ptrdiff_t>(vocab));
      }
      return some;
    };
    for (int n = 0; n < kPrompts; ++n) {
      for (size_t k = 0; k < heads; ++k)
        expect_best(expected, n, "head" + std::to_string(k + 1) + ".", "_last8", of_head(n, k, 0, 8));
      EXPECT_LE(largest_difference(expected.floats(n, "head1.full_logits_last2"), of_head(n, 0, 6, 2)),
                GetParam().tolerance);
    }
    // A row on its own, over some of the vocabulary.
    const OutputRows some = take_output_rows(m.weights, {3, 200, 17}, m.team);
    const auto alone = medusa.forward(f.rows.from(11), 1, medusa.heads() - 1, some.matrix);
    ASSERT_EQ(alone.size(), (heads - 1) * 3);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(alone[i], logits[(11 * heads + i / 3) * vocab + static_cast<size_t>(some.ids[i % 3])]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Heads, ::testing::ValuesIn(pairs()),
                         [](const auto& pair) { return pair.param.name; });

// ---- the rest of the material, where it is at hand

TEST(DraftModel, HasTheLogitsOfItsCard) {
  const fs::path folder = shared_dir() / "models/smollm2-draft";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not at hand";
  BareModel m(folder);
  BareCache cache(cache_layout(m.config, KvType::kF32), 1, kTokens);
  Decoder decoder(m.config, m.weights, cache.memory, m.compute, kLimits);
  const auto expected = Safetensors::open(folder / "expected.safetensors");
  for (const std::string n : {"prompt0.", "prompt1."}) {
    const auto logits = decoder.forward(BareBatch(cache).add(0, 0, values<int32_t>(expected, n + "tokens"), 8));
    EXPECT_LE(largest_difference(values<float>(expected, n + "full_logits_last2"), logits.last(logits.size() / 4)),
              1e-3);
    const auto ids = values<int32_t>(expected, n + "top20_ids_last8");
    const auto wanted = values<float>(expected, n + "top20_logits_last8");
    ASSERT_EQ(wanted.size(), 160u);
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(logits[i / 20 * (logits.size() / 8) + static_cast<size_t>(ids[i])], wanted[i], 1e-3);
  }
}

TEST(TokenFrequency, OfTheDefaultModelHasTheTokensOfOrdinaryText) {
  const fs::path file = shared_dir() / "models/smollm2-token-frequency.safetensors";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not at hand";
  const TokenIds ids = read_token_frequency(file, 49152, 8192);
  EXPECT_EQ(ids.size(), 8192u);
  const TokenIds all = read_token_frequency(file, 49152, 16384);
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), all.begin()));
}

}  // namespace
}  // namespace quire
