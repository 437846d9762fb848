// A whole model on the native tile kernels: every thread configures its own tiles, and the logits equal the
// reference's.

#include <gtest/gtest.h>

#include <cstring>

#include "base/cpu.h"
#include "engine/single_sequence.h"
#include "kernels/kernels.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

std::vector<float> logits(TensorType type, const char* kernels, const char* activations, int threads, int chunk,
                          const char* kv = "bf16") {
  EngineOptions o;
  o.model = testing::tiny_model(type);
  o.kernels = kernels;
  o.threads = threads;
  o.activations = activations;
  o.kv_cache_dtype = kv;
  o.max_num_batched_tokens = 64;
  o.max_num_seqs = 1;
  LoadedModel model(o, 64);
  SingleSequence sequence(model);
  std::vector<float> all;
  for (int at = 0; at < 26; at += chunk) {
    TokenIds ids;
    for (int i = at; i < std::min(at + chunk, 26); ++i) ids.push_back((i * 71 + 5) % 256);
    const auto part = sequence.append(ids, true);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(AmxModel, GivesTheReferencesLogitsInAnyChunksAndThreads) {
  if (!cpu_features().amx || !permit_tiles()) GTEST_SKIP() << "neither AMX nor AVX-512, which its emulation needs";
  ASSERT_EQ(choose_kernels("auto").name, "amx") << "the self check rejects it";  // other tests would silently skip it
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q6_K, TensorType::BF16}) {
    for (const char* activations : {"int8", "int8x2", "bf16"}) {
      if (type != TensorType::Q4_1 && std::string_view(activations).starts_with("int8")) continue;
      const auto expected = logits(type, "reference", activations, 2, 26);
      for (const auto& [threads, chunk] : {std::pair{1, 26}, {3, 15}}) {
        const auto got = logits(type, "amx", activations, threads, chunk);
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
            << name(type) << " activations " << activations << " threads " << threads << " chunk " << chunk;
      }
    }
  }
}

TEST(AmxModel, GivesTheReferencesLogitsWithACacheOfCodes) {
  if (!cpu_features().amx || !permit_tiles()) GTEST_SKIP() << "neither AMX nor AVX-512, which its emulation needs";
  for (const char* kv : {"int8", "int4", "fp8"}) {
    const auto expected = logits(TensorType::Q4_1, "reference", "bf16", 2, 26, kv),
               got = logits(TensorType::Q4_1, "amx", "bf16", 3, 15, kv);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << kv;
  }
}

}  // namespace
}  // namespace quire
