// Figures that textbooks and papers give for memory and time of inference, each with its source. Where a source rounds or
// mixes units, the comment says how.
#include <gtest/gtest.h>

#include <string>

#include "model/config.h"
#include "plan/hardware.h"
#include "plan/planned_model.h"
#include "plan/serving.h"
#include "plan/work.h"

namespace quire {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

ModelConfig shape(const std::string& text) { return parse_shape_config(text); }
// Bytes of the cache of one sequence in 16 bits.
double cache_bytes(const std::string& text, int tokens) {
  return static_cast<double>(cache_layout(shape(text), KvType::kBf16).sequence_bytes(tokens));
}
PlannedModel stored(const std::string& text, const WeightStorage& storage) {
  return plan_config(text, shape(text), storage, {});
}
PlannedModel in_16_bits(const std::string& text) { return stored(text, {.type = TensorType::F16}); }
double multiply_adds(const PlannedModel& model, const StepLoad& load) {
  return total_work(step_work(model.work, load)).total_multiply_adds();
}

// "Transformer Inference Arithmetic" (Chen, 2022, https://kipp.ly/transformer-inference-arithmetic): a token's keys and
// values take 2 * 2 * layers * heads * head_dim bytes; with 32 layers of 4096: 2 * 2 * 32 * 4096 = 0.5 MB.
TEST(Textbook, ATokenOf32LayersOf4096TakesHalfAMegabyte) {
  const CacheLayout layout = cache_layout(shape("layers=32,hidden=4096,heads=32"), KvType::kBf16);
  EXPECT_EQ(layout.token_bytes(), 2u * 2 * 32 * 4096);
  EXPECT_DOUBLE_EQ(static_cast<double>(layout.token_bytes()) / (1 << 20), 0.5);
  // 500 tokens: 250 MiB, in whole pages of 16 tokens.
  EXPECT_NEAR(cache_bytes("layers=32,hidden=4096,heads=32", 500) / (1 << 20), 250, 0.025 * 250);
}

// GPT-3 (arXiv 2005.14165, table 2.1): 96 layers of 12288, 2048 tokens: 2 * 2 * 96 * 12288 * 2048 = 9 GiB.
TEST(Textbook, Gpt3CachesNineGibibytesFor2048Tokens) { EXPECT_DOUBLE_EQ(cache_bytes("gpt-3-175b", 2048) / kGiB, 9); }

// Likewise: 175 billion parameters.
TEST(Textbook, Gpt3Has175BillionParameters) {
  EXPECT_NEAR(static_cast<double>(in_16_bits("gpt-3-175b").parameters()), 175e9, 0.01 * 175e9);
}

// "Scaling Laws for Neural Language Models" (Kaplan et al., arXiv 2001.08361, section 2.1): 2 operations for each
// parameter and token, so 350 GFLOP a token with 175 billion, and 35 TFLOP for 100 tokens. Attention comes on top.
TEST(Textbook, Gpt3Computes350GigaflopPerToken) {
  const PlannedModel model = in_16_bits("gpt-3-175b");
  EXPECT_NEAR(2 * multiply_adds(model, decode_load(1, 0)), 350e9, 0.01 * 350e9);
  EXPECT_NEAR(2 * multiply_adds(model, {.spans = {{1, 100, 0}}, .logits = 100}), 35e12, 0.01 * 35e12);
}

// 70 billion parameters of 2 bytes: 140 GB. At the 2 TB/s of an A100, reading them takes 70 ms, so there are at most 14
// tokens a second ("A Survey on Efficient Inference for Large Language Models", arXiv 2404.14294, section 2.3, gives the
// bound; the data sheet says 2,039 GB/s, hence 69 ms). Llama-2-70B has 69.0 billion parameters, and of its embedding
// matrix a step reads a row.
TEST(Textbook, A70bModelDecodes14TokensPerSecondOnAnA100) {
  const PlannedModel model = in_16_bits("llama-2-70b");
  EXPECT_NEAR(model.weight_bytes(), 140e9, 0.02 * 140e9);
  const Work work = total_work(step_work(model.work, decode_load(1, 0)));
  const double seconds = least_seconds(work, find_hardware("a100").rates);
  EXPECT_NEAR(seconds, 0.070, 0.05 * 0.070);
  EXPECT_NEAR(1 / seconds, 14, 0.07 * 14);
}

// "GQA: Training Generalized Multi-Query Transformer Models" (arXiv 2305.13245) shares KV heads; Llama-2-70B
// (2307.09288, table 1) has 8 for 64 heads. 80 layers * 8 * 128 * 2 * 2 = 320 KiB a token. "10.2 GB" at 32k counts
// 32,000 tokens of 320 KB; 32,768 tokens take 10.0 GiB, or 10.7 GB. With 64 KV heads: 8 times as much.
TEST(Textbook, GroupedQueriesCacheAnEighth) {
  EXPECT_NEAR(cache_bytes("llama-2-70b", 32000) / (1000.0 * 1000 * 1024), 10.2, 0.1);
  EXPECT_DOUBLE_EQ(cache_bytes("llama-2-70b", 32768) / kGiB, 10);
  EXPECT_DOUBLE_EQ(cache_bytes("llama-2-70b,kv-heads=64", 32768) / kGiB, 80);
}

// At full context in 16 bits. Llama 2 has 4096 tokens, Llama 3.1 131,072 (config.json of both). "2.5 GB" for
// Llama-2-70B counts 8192 tokens, or 4 bytes a number: with 2 bytes and 4096 tokens it is 1.25 GiB.
TEST(Textbook, CachesOfLlamaAtFullContext) {
  EXPECT_DOUBLE_EQ(cache_bytes("llama-2-7b", 4096) / kGiB, 2);
  EXPECT_DOUBLE_EQ(cache_bytes("llama-2-70b", 4096) / kGiB, 1.25);
  EXPECT_DOUBLE_EQ(cache_bytes("llama-2-70b", 8192) / kGiB, 2.5);
  EXPECT_DOUBLE_EQ(static_cast<double>(cache_layout(shape("llama-2-70b"), KvType::kF32).sequence_bytes(4096)) / kGiB,
                   2.5);
  EXPECT_DOUBLE_EQ(cache_bytes("llama-3.1-8b", 131072) / kGiB, 16);
}

// FlashAttention (arXiv 2205.14135, section 1): a materialised matrix of scores is quadratic in the tokens. One head, 2
// bytes: 8192 * 8192 * 2 = 128 MiB.
TEST(Textbook, TheScoresOf8192TokensTake128Mebibytes) {
  EXPECT_DOUBLE_EQ(score_matrix_bytes(8192, KvType::kF16) / (1 << 20), 128);
}

// 7 billion weights of 4 bits: 3.5 GB (GPTQ: arXiv 2210.17323; W4A16). Of 3 bits: 2.6 GB. Llama-2-7B has 6.74 billion.
TEST(Textbook, SevenBillionWeightsOfFewBits) {
  EXPECT_NEAR(stored("llama-2-7b", {.bits = 4}).weight_bytes(), 3.5e9, 0.05 * 3.5e9);
  EXPECT_NEAR(stored("llama-2-7b", {.bits = 3}).weight_bytes(), 2.6e9, 0.05 * 2.6e9);
}

// BitNet b1.58 (arXiv 2402.17764): log2(3) = 1.58 bits a weight. As stored (llama.cpp's TQ1_0: 1.69 bits) 7 billion weights
// take 1.5 GB; the bare 1.58 bits are 1.4 GB.
TEST(Textbook, TernaryWeightsTakeOneAndAHalfGigabytes) {
  EXPECT_NEAR(stored("llama-2-7b", {.type = TensorType::TQ1_0}).weight_bytes(), 1.5e9, 0.06 * 1.5e9);
  EXPECT_NEAR(stored("llama-2-7b", {.bits = 1.58}).weight_bytes(), 1.38e9, 0.05 * 1.38e9);
}

// "Transformer Inference Arithmetic": on an A100 of 312 TFLOPS and 1.5 TB/s, a step of 16-bit weights becomes compute-bound
// at 312e12 / 1.5e12 = 208 tokens, for the weights alone. With 2,039 GB/s: above 153.
TEST(Textbook, AnA100IsComputeBoundFrom154Sequences) {
  const Hardware a100 = find_hardware("a100");
  ModelWork linears = in_16_bits("llama-2-7b").work;
  linears.attention.clear();
  EXPECT_EQ(compute_bound_batch(linears, a100.rates, 1), 154);
  MachineRates older = a100.rates;
  older.bandwidth = 1.5e12;
  EXPECT_EQ(compute_bound_batch(linears, older, 1), 208);
}

}  // namespace
}  // namespace quire
