// Chains of drafts are those of each sequence alone, however many draft at once.

#include "speculate/network/chains.h"

#include <gtest/gtest.h>

#include "model/packing/output_rows.h"
#include "paths.h"
#include "speculate/network/eagle.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

using testing::BareBatch;
using testing::BareCache;
using testing::BareModel;
using testing::copied;
using testing::some_tokens;

constexpr DecoderLimits kLimits{.max_rows = 64, .max_logits = 16, .max_positions = 64, .max_hidden = 64};
constexpr int kSequences = 3;

struct Target {
  Target() : m(golden_dir() / "models/llama"), cache(m.backend, layout(), kSequences, 64) {
    for (int s = 0; s < kSequences; ++s) texts.push_back(some_tokens(10 + 7 * s, m.config.vocab, s));
  }
  virtual ~Target() = default;
  virtual CacheLayout layout() const { return cache_layout(m.config, KvType::kF32); }

  BareModel m;
  BareCache cache;
  std::vector<TokenIds> texts;
};

struct Drafting : Target {
  Drafting() : decoder(m.config, m.weights, cache.memory, m.backend, m.activations, kLimits) {}

  // The first tokens of a text, as rows of its sequence.
  ChainRequest request(int sequence, int position, int depth) const {
    const TokenIds& text = texts[static_cast<size_t>(sequence)];
    return {.tables = cache.tables_of[static_cast<size_t>(sequence)],
            .position = position,
            .tokens = std::span(text).subspan(static_cast<size_t>(position)),
            .depth = depth};
  }
  // Without the batch and without chains: each token by a pass over the whole text.
  TokenIds plain(int sequence, int depth, int layers) {
    TokenIds text = texts[static_cast<size_t>(sequence)], drafts;
    for (int i = 0; i < depth; ++i) {
      const auto logits = decoder.forward(BareBatch(cache).add(sequence, 0, text, 1), {.layers = layers});
      drafts.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
      text.push_back(drafts.back());
    }
    return drafts;
  }

  Decoder decoder;
  BestTokenPicker best{m.team};
};

class TokenChains : public ::testing::TestWithParam<int> {};  // the layers that draft

TEST_P(TokenChains, AreTheGreedyContinuationsOfEachSequence) {
  Drafting d;
  TokenIds wanted[kSequences];
  const int depths[] = {4, 1, 3};
  for (int s = 0; s < kSequences; ++s) wanted[s] = d.plain(s, depths[s], GetParam());
  TokenNetwork network(d.decoder, GetParam(), d.m.weights.output);
  Chains chains(network, kLimits.max_rows, false);
  TokenIds drafts[kSequences];
  std::vector<ChainRequest> requests;
  for (int s = 0; s < kSequences; ++s) requests.push_back(d.request(s, 0, depths[s]));
  chains.draft(requests, {}, d.best, drafts);
  for (int s = 0; s < kSequences; ++s) EXPECT_EQ(drafts[s], wanted[s]) << s;
  // Again, from the newest token alone.
  for (int s = 0; s < kSequences; ++s)
    requests[static_cast<size_t>(s)] =
        d.request(s, static_cast<int>(d.texts[static_cast<size_t>(s)].size()) - 1, depths[s]);
  chains.draft(requests, {}, d.best, drafts);
  for (int s = 0; s < kSequences; ++s) EXPECT_EQ(drafts[s], wanted[s]) << s;
}

INSTANTIATE_TEST_SUITE_P(Layers, TokenChains, ::testing::Values(0, 1, 2));

TEST(Chains, OfDepthZeroOnlyComputeTheirRows) {
  Drafting computed, plain;
  TokenNetwork network(computed.decoder, 0, computed.m.weights.output);
  Chains chains(network, kLimits.max_rows, false);
  TokenIds drafts[1] = {{1}};
  const ChainRequest rows = computed.request(1, 0, 0);
  chains.draft({&rows, 1}, {}, computed.best, drafts);
  EXPECT_TRUE(drafts[0].empty());
  const auto& text = plain.texts[1];
  const int last = static_cast<int>(text.size());
  plain.decoder.forward(BareBatch(plain.cache).add(1, 0, text));
  EXPECT_EQ(copied(computed.decoder.forward(BareBatch(computed.cache).add(1, last, {text.data(), 1}, 1))),
            copied(plain.decoder.forward(BareBatch(plain.cache).add(1, last, {text.data(), 1}, 1))));
}

TEST(Chains, DraftAmongTheRowsOfTheOutputMatrixAlone) {
  Drafting d;
  const TokenId whole = d.plain(0, 1, 0)[0];
  TokenIds ids;
  for (TokenId id = 1; id < d.m.config.vocab; id += 2) ids.push_back(id);
  std::erase(ids, whole);
  const OutputRows some = take_output_rows(d.m.weights, ids, d.m.backend);
  TokenNetwork network(d.decoder, 0, some.matrix);
  Chains chains(network, kLimits.max_rows, false);
  TokenIds drafts[1];
  const ChainRequest request = d.request(0, 0, 1);
  chains.draft({&request, 1}, some.ids, d.best, drafts);
  const auto logits = copied(d.decoder.forward(BareBatch(d.cache).add(0, 0, d.texts[0], 1)));
  const auto logit = [&](TokenId id) { return logits[static_cast<size_t>(id)]; };
  const TokenId wanted = *std::ranges::max_element(some.ids, {}, logit);
  EXPECT_EQ(drafts[0], TokenIds{wanted});
}

// ---- an EAGLE head

struct EagleDrafting {
  EagleDrafting() : m(golden_dir() / "models/llama") {
    FeatureLayer head = read_eagle(golden_dir() / "drafters/eagle", m.config, m.backend, m.team);
    const ModelConfig* drafters[] = {&head.config};
    cache = std::make_unique<BareCache>(m.backend, cache_layout(m.config, KvType::kF32, drafters), kSequences, 64);
    decoder = std::make_unique<Decoder>(m.config, m.weights, cache->memory, m.backend, m.activations, kLimits);
    eagle = std::make_unique<FeaturePredictor>(std::make_shared<FeatureLayer>(std::move(head)), m.config, m.weights,
                                               cache->memory, m.backend, m.activations, kLimits,
                                               static_cast<int>(m.config.layers.size()));
    network = std::make_unique<FeatureNetwork>(
        *eagle, [this] { return decoder->hidden(); }, eagle->output_weights().output);
    chains = std::make_unique<Chains>(*network, kLimits.max_rows, true);
  }
  BareModel m;
  std::unique_ptr<BareCache> cache;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<FeaturePredictor> eagle;
  std::unique_ptr<FeatureNetwork> network;
  std::unique_ptr<Chains> chains;
  BestTokenPicker best{m.team};
};

// As a server uses it: prompts, then steps that accept some tokens of each sequence.
TEST(EagleChains, OfManySequencesAreThoseOfEachAlone) {
  std::vector<TokenIds> texts;
  const int prompts[] = {5, 12, 9}, accepted[] = {3, 1, 2}, depths[] = {2, 0, 4};
  for (int s = 0; s < kSequences; ++s) texts.push_back(some_tokens(20, 320, s));
  const auto run = [&](EagleDrafting& d, std::span<const int> sequences) {
    std::vector<TokenIds> all;
    std::vector<int> begins(kSequences, 0);
    for (int step = 0; step < 3; ++step) {
      BareBatch rows(*d.cache);
      std::vector<ChainRequest> requests;
      int feature = 0;
      for (const int s : sequences) {
        const auto at = static_cast<size_t>(s);
        const int begin = begins[at], count = step == 0 ? prompts[s] : accepted[s];
        // A row more than was accepted: the features of rejected rows are skipped.
        rows.add(s, begin, std::span(texts[at]).subspan(begin, count + 1), 0, count + 1);
        requests.push_back({.tables = d.cache->tables_of[at],
                            .position = begin,
                            .tokens = std::span(texts[at]).subspan(begin + 1, count),
                            .feature = feature,
                            .depth = depths[s]});
        feature += count + 1;
        begins[at] += count;
      }
      d.decoder->forward(rows);
      std::vector<TokenIds> drafts(sequences.size());
      d.chains->draft(requests, {}, d.best, drafts);
      all.insert(all.end(), drafts.begin(), drafts.end());
    }
    return all;
  };
  EagleDrafting together;
  const int everyone[] = {0, 1, 2};
  const auto drafts = run(together, everyone);
  for (const int s : everyone) {
    EagleDrafting alone;
    const auto of_one = run(alone, {&s, 1});
    for (size_t step = 0; step < 3; ++step) {
      const auto& found = drafts[step * kSequences + static_cast<size_t>(s)];
      ASSERT_EQ(found.size(), static_cast<size_t>(depths[s]));
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], of_one[step][i]) << "sequence " << s << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace quire
