// Parts of a forward pass: the first layers, vectors instead of tokens, hidden states, some of the output matrix's rows,
// drafts.

#include "model/decoder.h"
#include "ops/cpu/rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/packing/output_rows.h"
#include "paths.h"
#include "unit/engine/tiny_model.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

using testing::BareBatch;
using testing::BareCache;
using testing::BareModel;
using testing::copied;
using testing::some_tokens;

constexpr DecoderLimits kLimits{.max_rows = 64, .max_logits = 64, .max_positions = 128, .max_hidden = 64};

std::filesystem::path golden_model(const char* name) { return golden_dir() / "models" / name; }

// ---- the first layers

TEST(EarlyExit, GivesTheLogitsOfTheFirstLayersAlone) {
  BareModel m(golden_model("llama"));
  ModelConfig first = m.config;
  first.layers.resize(2);
  BareCache all(m.backend, cache_layout(m.config, KvType::kF32), 1, 32),
      some(m.backend, cache_layout(first, KvType::kF32), 1, 32);
  Decoder decoder(m.config, m.weights, all.memory, m.backend, m.activations, kLimits),
      alone(first, m.weights, some.memory, m.backend, m.activations, kLimits);
  const TokenIds tokens = some_tokens(20, m.config.vocab);
  const auto logits = copied(decoder.forward(BareBatch(all).add(0, 0, tokens, 20, 20), {.layers = 2}));
  EXPECT_EQ(logits, copied(alone.forward(BareBatch(some).add(0, 0, tokens, 20, 20))));
  EXPECT_EQ(copied(decoder.hidden(), 20), copied(alone.hidden(), 20));
}

TEST(EarlyExit, StoresWhatThePassOfAllLayersStores) {
  BareModel m(golden_model("llama"), Activations::kInt8);
  const CacheLayout layout = cache_layout(m.config, KvType::kBf16);
  BareCache full(m.backend, layout, 1, 32), drafted(m.backend, layout, 1, 32);
  Decoder a(m.config, m.weights, full.memory, m.backend, m.activations, kLimits),
      b(m.config, m.weights, drafted.memory, m.backend, m.activations, kLimits);
  const TokenIds tokens = some_tokens(20, m.config.vocab);
  const std::span<const TokenId> prompt = std::span(tokens).first(15);
  a.forward(BareBatch(full).add(0, 0, prompt));
  b.forward(BareBatch(drafted).add(0, 0, prompt));
  const auto verified = copied(a.forward(BareBatch(full).add(0, 15, std::span(tokens).subspan(15), 5)));
  for (int i = 15; i < 20; ++i)
    b.forward(BareBatch(drafted).add(0, i, {&tokens[static_cast<size_t>(i)], 1}, 1), {.layers = 2});
  const size_t of_layer = layout.offset_of(1), bytes = page_bytes(layout.type(), layout.layers()[0]);
  for (int unit = 0; unit < 2; ++unit) {
    EXPECT_EQ(std::memcmp(full.memory.unit(unit).data(), drafted.memory.unit(unit).data(), of_layer + bytes), 0);
  }
  EXPECT_EQ(copied(b.forward(BareBatch(drafted).add(0, 15, std::span(tokens).subspan(15), 5))), verified);
}

TEST(EarlyExit, IsNotPossibleWhereTheNextLayerAddsTheResult) {
  const ModelConfig falcon = read_model_config(Checkpoint::open(golden_model("falcon_h1")));
  const int layers = static_cast<int>(falcon.layers.size());
  EXPECT_FALSE(can_exit_after(falcon, 0));
  EXPECT_FALSE(can_exit_after(falcon, 1));
  EXPECT_TRUE(can_exit_after(falcon, 2));
  EXPECT_TRUE(can_exit_after(falcon, layers));
  EXPECT_FALSE(can_exit_after(falcon, layers + 1));
}

// ---- vectors

class Vectors : public ::testing::TestWithParam<const char*> {};

TEST_P(Vectors, TakeThePlaceOfTheirTokensEmbeddings) {
  BareModel m(golden_model(GetParam()));
  const CacheLayout layout = cache_layout(m.config, KvType::kF32);
  BareCache cache(m.backend, layout, 2, 32);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
  TokenIds tokens = some_tokens(6, m.config.vocab), others = some_tokens(3, m.config.vocab, 1);
  const auto wanted = copied(decoder.forward(BareBatch(cache).add(0, 0, tokens, 6).add(1, 0, others, 3)));

  const int hidden = m.config.hidden;
  const size_t stride = row_stride(hidden);
  std::vector<float> memory(2 * stride);
  const Rows vectors{memory.data(), hidden, stride};
  const TokenId replaced[] = {std::exchange(tokens[1], kNoToken), std::exchange(others[2], kNoToken)};
  embed(m.backend.compute(m.activations), m.weights.embedding.weight, replaced, m.config.embedding_scale, vectors);
  const BareBatch rows = BareBatch(cache).add(0, 0, tokens, 6).add(1, 0, others, 3);
  Batch batch = rows;
  batch.vectors = vectors;
  EXPECT_EQ(copied(decoder.forward(batch)), wanted);
  memory[1] += 1;
  EXPECT_NE(copied(decoder.forward(batch)), wanted);
}

INSTANTIATE_TEST_SUITE_P(Families, Vectors, ::testing::Values("llama", "gemma2", "gpt2"),
                         [](const auto& name) { return name.param; });

// ---- hidden states

TEST(HiddenStates, AreThoseOfTheRowsThatWantThemAfterTheOutputNorm) {
  BareModel m(golden_model("gemma2"));
  BareCache cache(m.backend, cache_layout(m.config, KvType::kF32), 3, 32);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
  const TokenIds tokens = some_tokens(8, m.config.vocab);
  const auto logits = copied(decoder.forward(
      BareBatch(cache).add(0, 0, tokens, 1, 2).add(1, 0, std::span(tokens).first(3), 3).add(2, 0, tokens, 0, 1)));
  const auto found = copied(decoder.hidden(), 3);
  std::vector<float> wanted, row(static_cast<size_t>(m.config.hidden));
  for (const int r : {6, 7, 18}) {
    decoder.final_hidden({{r}}, {row.data(), m.config.hidden, row.size()});
    wanted.insert(wanted.end(), row.begin(), row.end());
  }
  EXPECT_EQ(found, wanted);
  // The logits are those of the same vectors, and nobody's change when others want hidden states.
  EXPECT_EQ(copied(decoder.forward(
                BareBatch(cache).add(0, 0, tokens, 1).add(1, 0, std::span(tokens).first(3), 3).add(2, 0, tokens))),
            logits);
}

// ---- the output matrix

class OutputSubset : public ::testing::TestWithParam<Activations> {};

TEST_P(OutputSubset, GivesTheBitsOfTheWholeOutputMatrix) {
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q6_K, TensorType::BF16}) {
    SCOPED_TRACE(name(type));
    BareModel m(testing::tiny_model(type), GetParam());
    BareCache cache(m.backend, cache_layout(m.config, KvType::kBf16), 1, 32);
    Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
    const TokenIds tokens = some_tokens(7, m.config.vocab);
    const auto whole = copied(decoder.forward(BareBatch(cache).add(0, 0, tokens, 7)));
    const OutputRows some =
        take_output_rows(m.weights, {5, 319, 0, 16, 17, 200, 31, 90, 91, 92, 93, 94, 2, 3, 4, 6, 7, 8}, m.backend);
    EXPECT_TRUE(std::ranges::is_sorted(some.ids));
    const auto part = decoder.forward(BareBatch(cache).add(0, 0, tokens, 7), {.output = &some.matrix});
    ASSERT_EQ(part.size(), 7 * some.ids.size());
    for (size_t row = 0; row < 7; ++row) {
      for (size_t i = 0; i < some.ids.size(); ++i)
        ASSERT_EQ(part[row * some.ids.size() + i],
                  whole[row * static_cast<size_t>(m.config.vocab) + static_cast<size_t>(some.ids[i])]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, OutputSubset,
                         ::testing::Values(Activations::kF32, Activations::kBf16, Activations::kInt8,
                                           Activations::kInt8x2));

TEST(OutputSubset, TakesBiasesAndTheSoftCap) {
  BareModel m(golden_model("gptj"));  // its output matrix has a bias
  ASSERT_FALSE(m.weights.output.bias.empty());
  m.config.logit_soft_cap = 2;
  BareCache cache(m.backend, cache_layout(m.config, KvType::kF32), 1, 32);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits);
  const TokenIds tokens = some_tokens(1, m.config.vocab);
  const auto whole = copied(decoder.forward(BareBatch(cache).add(0, 0, tokens, 1)));
  const OutputRows some = take_output_rows(m.weights, {40, 3}, m.backend);
  EXPECT_EQ(copied(decoder.forward(BareBatch(cache).add(0, 0, tokens, 1), {.output = &some.matrix})),
            (std::vector{whole[3], whole[40]}));
}

// ---- a drafter's layers in the target's cache

class DraftersLayers : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftersLayers, FollowTheTargetsInOneCache) {
  BareModel m(golden_model(GetParam())), target(golden_model("llama"));
  BareCache own(m.backend, cache_layout(m.config, KvType::kF32), 1, 48);
  const ModelConfig* drafters[] = {&m.config};
  const CacheLayout layout = cache_layout(target.config, KvType::kF32, drafters);
  ASSERT_EQ(layout.layers().size(), target.config.layers.size() + m.config.layers.size());
  BareCache shared(m.backend, layout, 1, 48);
  const int first = static_cast<int>(target.config.layers.size());
  Decoder alone(m.config, m.weights, own.memory, m.backend, m.activations, kLimits),
      drafter(m.config, m.weights, shared.memory, m.backend, m.activations, kLimits, first),
      model(target.config, target.weights, shared.memory, target.backend, target.activations, kLimits);
  const TokenIds tokens = some_tokens(40, std::min(m.config.vocab, target.config.vocab));
  std::vector<float> of_target;
  for (int at = 0; at < 40; at += 20) {  // the models take turns
    const auto rows = std::span(tokens).subspan(static_cast<size_t>(at), 20);
    of_target = copied(model.forward(BareBatch(shared).add(0, at, rows, 1)));
    const auto wanted = copied(alone.forward(BareBatch(own).add(0, at, rows, 20)));
    EXPECT_EQ(copied(drafter.forward(BareBatch(shared).add(0, at, rows, 20))), wanted);
  }
  BareCache of_target_alone(m.backend, cache_layout(target.config, KvType::kF32), 1, 48);
  Decoder undisturbed(target.config, target.weights, of_target_alone.memory, target.backend, target.activations,
                      kLimits);
  EXPECT_EQ(copied(undisturbed.forward(BareBatch(of_target_alone).add(0, 0, tokens, 1))), of_target);
}

INSTANTIATE_TEST_SUITE_P(Families, DraftersLayers,
                         ::testing::Values("llama", "deepseek_v3", "qwen3_next", "lfm2", "granitemoehybrid", "gemma2",
                                           "gemma3n_text"),
                         [](const auto& name) { return name.param; });

// ---- drafts and states

class DraftedStates : public ::testing::TestWithParam<const char*> {};

// Two sequences, whose drafts are right for two tokens and for one.
TEST_P(DraftedStates, TakeInRightDraftsAlone) {
  constexpr int kPrompt = 9, kRight[] = {2, 1}, kDrafts = 4, kReturn = 2;  // state slots from kReturn on are copies
  BareModel m(golden_model(GetParam()));
  DecoderLimits limits = kLimits;
  limits.max_drafted = 2 * kDrafts;
  BareCache drafted(m.backend, cache_layout(m.config, KvType::kF32), 4, 32),
      plain(m.backend, cache_layout(m.config, KvType::kF32), 4, 32);
  Decoder decoder(m.config, m.weights, drafted.memory, m.backend, m.activations, limits),
      other(m.config, m.weights, plain.memory, m.backend, m.activations, limits);
  std::vector<Row> rows;
  std::vector<Span> spans;
  TokenIds tokens[2];
  StateCopy copies[2];
  for (int s = 0; s < 2; ++s) {
    const auto at = static_cast<size_t>(s);
    tokens[s] = some_tokens(20, m.config.vocab, s);
    copies[s] = {kPrompt - 1, kReturn + s};
    spans.push_back({.row = static_cast<int>(rows.size()),
                     .rows = kPrompt + kDrafts,
                     .position = 0,
                     .tables = drafted.tables_of[at],
                     .state = s,
                     .state_copies = {&copies[s], 1},
                     .drafts = kDrafts});
    for (int i = 0; i < kPrompt + kDrafts; ++i) {
      const bool right = i < kPrompt + kRight[s];
      rows.push_back({.token = right ? tokens[s][static_cast<size_t>(i)] : 3, .position = i, .wants_logits = false});
    }
  }
  decoder.forward({rows, spans});
  const StateAdvance advances[] = {{kReturn, 0, kRight[0]}, {kReturn + 1, kDrafts, kRight[1]}};
  decoder.advance(advances);

  for (int s = 0; s < 2; ++s) {
    const int known = kPrompt + kRight[s];
    const std::span<const TokenId> all(tokens[s]);
    other.forward(BareBatch(plain).add(s, 0, all.first(static_cast<size_t>(known))));
    const auto expected =
        copied(other.forward(BareBatch(plain).add(s, known, all.subspan(static_cast<size_t>(known), 3), 3)));
    const auto next = all.subspan(static_cast<size_t>(known), 3);
    Row more[3];
    for (int i = 0; i < 3; ++i)
      more[i] = {.token = next[static_cast<size_t>(i)], .position = known + i, .wants_logits = true};
    const Span span{.row = 0,
                    .rows = 3,
                    .position = known,
                    .tables = drafted.tables_of[static_cast<size_t>(s)],
                    .state = kReturn + s};
    EXPECT_EQ(copied(decoder.forward({more, {&span, 1}})), expected) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DraftedStates,
                         ::testing::Values("qwen3_next", "qwen3_5_moe_nested", "lfm2", "mamba2", "granitemoehybrid",
                                           "falcon_h1", "nemotron_h"));

}  // namespace
}  // namespace quire
