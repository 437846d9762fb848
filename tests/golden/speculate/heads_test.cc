// Medusa heads compared with the equations of their cards, computed by torch.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "golden/speculate/cards.h"
#include "model/packing/output_rows.h"
#include "model/registry.h"
#include "paths.h"
#include "speculate/network/medusa.h"
#include "speculate/network/token_frequency.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::BareBatch;
using testing::BareCache;
using testing::BareModel;
using testing::copied;

// A target and its heads.
struct HeadsPair {
  const char* name;
  fs::path heads;
  std::string target;  // a path, or a model of the registry
  double tolerance;    // for logits
  bool on_all_kernels;
};
void PrintTo(const HeadsPair& pair, std::ostream* out) { *out << pair.name; }
std::vector<HeadsPair> heads_pairs() {
  const fs::path heads = golden_dir() / "drafters/medusa";
  return {{"tiny", heads, golden_dir() / "models/llama", 5e-5, true},
          {"gguf", heads, shared_dir() / "golden/models-gguf/llama.gguf", 5e-5, false},
          {"smollm2", shared_dir() / "models/smollm2-medusa", "smollm2", 2e-3, false}};
}

class MedusaHeads : public ::testing::TestWithParam<HeadsPair> {
 protected:
  void SetUp() override {
    target_ = GetParam().target;
    if (fs::exists(target_)) return;  // it is in this repository
    if (!fs::exists(GetParam().heads)) GTEST_SKIP() << GetParam().heads << " is not at hand";
    try {
      target_ = resolve_model(GetParam().target);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  fs::path target_;
};

TEST_P(MedusaHeads, GiveTheLogitsOfTheirCard) {
  const Card expected(GetParam().heads);
  for (const std::string& kernels : kernel_names(GetParam().on_all_kernels)) {
    SCOPED_TRACE(kernels);
    BareModel m(target_, Activations::kF32, kernels);
    Medusa medusa(std::make_shared<quire::MedusaHeads>(read_medusa(GetParam().heads, m.config, m.backend, m.team)),
                  m.config, m.backend, m.activations, 2 * 8);
    // The last eight positions of both prompts, as one batch.
    std::vector<float> features;
    for (int n = 0; n < kPrompts; ++n) {
      const auto f = expected.floats(n, "target_features");
      features.insert(features.end(), f.end() - 8 * m.config.hidden, f.end());
    }
    const OwnedRows f = rows_of(features, m.config.hidden);
    const auto logits = copied(medusa.forward(f.rows, numbered_rows(16), medusa.heads(), m.weights.output));
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
        expect_best(expected, n, "head" + std::to_string(k + 1) + ".", "_last8", of_head(n, k, 0, 8),
                    GetParam().tolerance);
      EXPECT_LE(largest_difference(expected.floats(n, "head1.full_logits_last2"), of_head(n, 0, 6, 2)),
                GetParam().tolerance);
    }
    // A row on its own, over some of the vocabulary.
    const OutputRows some = take_output_rows(m.weights, {3, 200, 17}, m.backend);
    const int32_t row = 11;
    const auto alone = medusa.forward(f.rows, {&row, 1}, medusa.heads() - 1, some.matrix);
    ASSERT_EQ(alone.size(), (heads - 1) * 3);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(alone[i], logits[(11 * heads + i / 3) * vocab + static_cast<size_t>(some.ids[i % 3])]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MedusaHeads, ::testing::ValuesIn(heads_pairs()),
                         [](const auto& pair) { return pair.param.name; });

// ---- the rest of the material, where it is at hand

TEST(DraftModel, HasTheLogitsOfItsCard) {
  const fs::path folder = shared_dir() / "models/smollm2-draft";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not at hand";
  BareModel m(folder);
  BareCache cache(m.backend, cache_layout(m.config, KvType::kF32), 1, kTokens);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
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
