#include "model/nearest_architecture.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr std::string_view kKnown[] = {
    "LlamaForCausalLM",    "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "GPT2LMHeadModel",    "PhiForCausalLM",   "Gemma3ForConditionalGeneration"};

TEST(NearestArchitecture, IsAMisspellingOrARelative) {
  EXPECT_EQ(nearest_architecture("LLaMAForCausalLM", kKnown), "LlamaForCausalLM");
  EXPECT_EQ(nearest_architecture("MistalForCausalLM", kKnown), "MistralForCausalLM");
  EXPECT_EQ(nearest_architecture("Qwen3NextForCausalLM", kKnown), "Qwen3ForCausalLM");
  EXPECT_EQ(nearest_architecture("Qwen3MoeNextForCausalLM", kKnown), "Qwen3MoeForCausalLM");
  EXPECT_EQ(nearest_architecture("Gemma3nForConditionalGeneration", kKnown), "Gemma3ForConditionalGeneration");
  EXPECT_EQ(nearest_architecture("GPT2", kKnown), "GPT2LMHeadModel");
}

TEST(NearestArchitecture, IsNoneIfNamesOnlyEndAlike) {
  EXPECT_EQ(nearest_architecture("MambaForCausalLM", kKnown), "");
  EXPECT_EQ(nearest_architecture("RWKVForCausalLM", kKnown), "");
  EXPECT_EQ(nearest_architecture("OptForCausalLM", kKnown), "");
  EXPECT_EQ(nearest_architecture("ForCausalLM", kKnown), "");
  EXPECT_EQ(nearest_architecture("", kKnown), "");
}

}  // namespace
}  // namespace quire
