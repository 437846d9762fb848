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

TEST(ChatTimings, OmitRatesThatWereNotMeasured) {
  ChatTimings timings;
  timings.add({.prompt_tokens = 10, .completion_tokens = 0, .ttft_seconds = 0, .seconds = 3});
  EXPECT_EQ(to_text(timings, {}), "prompt: 10 tokens\nanswer: 0 tokens\n");
  EXPECT_EQ(to_json(timings, {})["decode_tokens_per_second"], 0);
}

}  // namespace
}  // namespace quire
