// A sequence's logits have the same bits whatever the threads, chunks, pages and other sequences.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "kernels/kernels.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

using testing::all_logits;
using testing::same_bits;

TokenIds tokens_of_seed(int count, unsigned seed) {
  std::mt19937 random(seed);
  TokenIds ids(static_cast<size_t>(count));
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % 256);
  return ids;
}

EngineOptions exact_options(std::string model, std::string_view kernels, int threads, std::string activations = "auto",
                            std::string kv = "auto") {
  EngineOptions o;
  o.model = std::move(model);
  o.kernels = kernels;
  o.threads = threads;
  o.activations = std::move(activations);
  o.kv_cache_dtype = std::move(kv);
  o.max_num_batched_tokens = 256;
  o.max_num_seqs = 16;
  return o;
}

EngineOptions exact_options(TensorType type, std::string_view kernels, int threads, std::string activations = "auto",
                            std::string kv = "auto") {
  return exact_options(testing::tiny_model(type), kernels, threads, std::move(activations), std::move(kv));
}

class Exactness : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(Exactness, ChunksAndThreadsChangeNoBit) {
  const bool slow = GetParam()->name == "reference";
  std::vector<TensorType> types = {TensorType::Q4_1};
  if (!slow) types.insert(types.end(), {TensorType::Q6_K, TensorType::Q8_0, TensorType::Q4_K, TensorType::BF16});
  for (const TensorType type : types) {
    const TokenIds ids = tokens_of_seed(slow ? 9 : 75, 1);
    for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
      LoadedModel one(exact_options(type, GetParam()->name, 1, activations), 128);
      const auto expected = all_logits(one, ids, 1);
      for (const int chunk : {7, 64})
        EXPECT_TRUE(same_bits(expected, all_logits(one, ids, chunk)))
            << name(type) << " " << activations << " chunk " << chunk;
      for (const int threads : {2, 3}) {
        LoadedModel more(exact_options(type, GetParam()->name, threads, activations), 128);
        for (const int chunk : {1, 13})
          EXPECT_TRUE(same_bits(expected, all_logits(more, ids, chunk)))
              << name(type) << " " << activations << " threads " << threads;
      }
    }
  }
}

TEST_P(Exactness, ChunksAndThreadsChangeNoBitWithAnyCache) {
  const TokenIds ids = tokens_of_seed(GetParam()->name == "reference" ? 15 : 90, 2);
  for (const char* kv : {"f32", "f16", "int8", "int4", "fp8"}) {
    LoadedModel one(exact_options(TensorType::Q4_1, GetParam()->name, 1, "auto", kv), 128);
    LoadedModel more(exact_options(TensorType::Q4_1, GetParam()->name, 3, "auto", kv), 128);
    const auto expected = all_logits(one, ids, 1);
    for (const int chunk : {13, 64})
      EXPECT_TRUE(same_bits(expected, all_logits(more, ids, chunk))) << kv << " " << chunk;
  }
}

TEST_P(Exactness, NeighboursAndPagesChangeNoBit) {
  LoadedModel model(exact_options(TensorType::Q4_1, GetParam()->name, 2), 128);
  const auto vocab = static_cast<size_t>(model.target.config.vocab);
  const int count = 16;
  std::vector<TokenIds> prompts;
  for (int s = 0; s < count; ++s) prompts.push_back(tokens_of_seed(5 + 7 * s % 40, 100 + static_cast<unsigned>(s)));
  std::vector<std::vector<float>> alone;
  for (const TokenIds& ids : prompts) {
    const auto logits = all_logits(model, ids, 256);
    alone.emplace_back(logits.end() - static_cast<ptrdiff_t>(vocab), logits.end());
  }
  std::vector<int32_t> pages(static_cast<size_t>(model.info.kv_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937 random(4);
  for (int round = 0; round < (GetParam()->name == "reference" ? 1 : 5); ++round) {
    std::shuffle(pages.begin(), pages.end(), random);
    std::vector<std::vector<int32_t>> tables;
    for (int s = 0; s < count; ++s) tables.emplace_back(pages.begin() + 4 * s, pages.begin() + 4 * s + 4);
    std::vector<size_t> done(static_cast<size_t>(count), 0);
    for (;;) {  // each step takes a random number of tokens of each sequence
      ForwardInput input;
      std::vector<Row>& rows = input.rows;
      std::vector<Span>& spans = input.spans;
      std::vector<size_t> ended;
      for (size_t s = 0; s < prompts.size(); ++s) {
        const auto n = static_cast<int>(std::min<size_t>(prompts[s].size() - done[s], random() % 16));
        if (n == 0) continue;
        spans.push_back({static_cast<int>(rows.size()), n, static_cast<int>(done[s]), {&tables[s], 1}});
        for (int i = 0; i < n; ++i, ++done[s])
          rows.push_back({prompts[s][done[s]], static_cast<int>(done[s]), done[s] + 1 == prompts[s].size()});
        if (done[s] == prompts[s].size()) ended.push_back(s);
      }
      if (rows.empty() && std::equal(done.begin(), done.end(), prompts.begin(),
                                     [](size_t d, const TokenIds& p) { return d == p.size(); }))
        break;
      if (rows.empty()) continue;
      model.executor().launch(input);
      const auto logits = model.executor().wait().logits;
      for (size_t i = 0; i < ended.size(); ++i) {
        EXPECT_EQ(std::memcmp(alone[ended[i]].data(), logits.data() + i * vocab, vocab * sizeof(float)), 0)
            << "sequence " << ended[i] << " round " << round;
      }
    }
  }
}

TEST(Exactness, KernelSetsAgreeBitForBitWithTheReference) {
  const TokenIds ids = tokens_of_seed(20, 9);
  for (const TensorType type : {TensorType::Q4_0, TensorType::Q5_K, TensorType::F16}) {
    for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
      LoadedModel reference(exact_options(type, "reference", 2, activations), 128);
      const auto expected = all_logits(reference, ids, 20);
      for (const KernelSet* set : available_kernels()) {
        LoadedModel model(exact_options(type, set->name, 2, activations), 128);
        EXPECT_TRUE(same_bits(expected, all_logits(model, ids, 20)))
            << set->name << " " << name(type) << " " << activations;
      }
    }
  }
}

TEST(Exactness, KernelSetsAgreeBitForBitWithTheReferenceForEveryKindOfLayer) {
  const TokenIds ids = tokens_of_seed(40, 10);
  for (const char* kind : testing::kGoldenKinds) {
    const std::string path = testing::golden_kind(kind);
    if (!testing::is_known(path)) continue;
    for (const char* kv : {"bf16", "int8", "int4", "fp8"}) {
      LoadedModel reference(exact_options(path, "reference", 2, "auto", kv), 128);
      const auto expected = all_logits(reference, ids, 40);
      for (const KernelSet* set : available_kernels()) {
        LoadedModel model(exact_options(path, set->name, 2, reference.info.activations, kv), 128);
        EXPECT_TRUE(same_bits(expected, all_logits(model, ids, 40))) << set->name << " " << kind << " " << kv;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Exactness,
                         ::testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
