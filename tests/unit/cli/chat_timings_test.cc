#include "cli/chat/timings.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ChatTimings, CountTheFirstTokenAsPrefill) {
  ChatTimings timings;
  timings.add({.prompt_tokens = 100, .completion_tokens = 11, .ttft_seconds = 0.5, .seconds = 1.5});
  EXPECT_DOUBLE_EQ(timings.prefill_rate(), 200);
  EXPECT_DOUBLE_EQ(timings.decode_rate(), 10);
  ModelInfo model;
  model.decode_bytes = 1000;
  EXPECT_DOUBLE_EQ(timings.read_rate(model), 10000);
}

TEST(ChatTimings, AddUpOverAnswers) {
  ChatTimings timings;
  timings.add({.prompt_tokens = 10, .completion_tokens = 3, .ttft_seconds = 1, .seconds = 2});
  timings.add({.prompt_tokens = 30, .completion_tokens = 5, .ttft_seconds = 1, .seconds = 2});
  EXPECT_EQ(timings.prompt_tokens, 40);
  EXPECT_DOUBLE_EQ(timings.prefill_rate(), 20);
  EXPECT_DOUBLE_EQ(timings.decode_rate(), 3);
}

TEST(ChatTimings, CountOnlyWhatPrefillComputed) {
  ChatTimings timings;
  timings.add({.prompt_tokens = 100, .cached_tokens = 80, .completion_tokens = 1, .ttft_seconds = 0.5, .seconds = 1});
  timings.add({.prompt_tokens = 200, .completion_tokens = 0, .seconds = 3});  // cancelled before the first token
  EXPECT_EQ(timings.prompt_tokens, 300);
  EXPECT_DOUBLE_EQ(timings.prefill_rate(), 40);
}

TEST(ChatTimings, CompareDecodingWithTheMemoryBandwidth) {
  ChatTimings timings{.bandwidth = 4e9};
  timings.add({.prompt_tokens = 10, .completion_tokens = 11, .ttft_seconds = 1, .seconds = 2});
  ModelInfo model;
  model.decode_bytes = 100'000'000;
  EXPECT_EQ(to_text(timings, model),
            "prompt: 10 tokens, first token after 1.000 s, 10.0 tok/s\n"
            "answer: 11 tokens, 10.0 tok/s (1.00 of 4.0 GB/s memory bandwidth, 25 %)\n");
  timings.bandwidth = 0.5e9;
  EXPECT_NE(to_text(timings, model).find("10.0 tok/s (1.0 GB/s of weights, read from the processor's cache)\n"),
            std::string::npos);
}

TEST(ChatTimings, NameTheDraftersThatDrafted) {
  ChatTimings timings;
  timings.add({.completion_tokens = 11, .drafted_tokens = 6, .accepted_tokens = 5});
  timings.drafters.resize(3);
  timings.drafters[0].name = "ngram";
  timings.drafters[0].seconds = 0.0015;
  timings.drafters[0].count(4, 4);
  timings.drafters[0].count(2, 1);
  timings.drafters[1].name = "recent";  // nothing to say
  timings.drafters[2].name = "eagle";
  timings.drafters[2].errors = 2;
  EXPECT_EQ(to_text(timings, {}),
            "prompt: 0 tokens\nanswer: 11 tokens\ndrafts: 5 of 6 tokens right, 2.00 tokens a step\n"
            "  ngram: 2 drafts, 5 of 6 tokens right, 1.5 ms drafting\n"
            "  eagle: 0 drafts, 0 of 0 tokens right, 0.0 ms drafting, 2 errors\n");
  EXPECT_EQ(to_json(timings, {})["drafters"][2]["errors"], 2);
}

TEST(ChatTimings, OmitRatesThatWereNotMeasured) {
  ChatTimings timings;
  timings.add({.prompt_tokens = 10, .completion_tokens = 0, .ttft_seconds = 0, .seconds = 3});
  EXPECT_EQ(to_text(timings, {}), "prompt: 10 tokens\nanswer: 0 tokens\n");
  EXPECT_EQ(to_json(timings, {})["decode_tokens_per_second"], 0);
}

}  // namespace
}  // namespace quire
