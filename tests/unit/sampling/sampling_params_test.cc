#include "quire/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kVocab = 100;

TEST(SamplingParams, AreValidByDefault) { validate(SamplingParams{}, kVocab); }

TEST(SamplingParams, AcceptTheirExtremes) {
  validate({.temperature = 0, .top_k = -1, .top_p = 0, .min_p = 1, .typical_p = 0}, kVocab);
  validate({.top_n_sigma = -1, .xtc_probability = 1, .xtc_threshold = 0, .dynatemp_range = 100, .dynatemp_exponent = 0},
           kVocab);
  validate({.mirostat = 2, .mirostat_tau = 0, .mirostat_eta = 1}, kVocab);
  validate({.dry_multiplier = 100, .dry_base = 1, .dry_allowed_length = 1, .dry_penalty_last_n = 0}, kVocab);
  validate({.dry_sequence_breakers = {std::string(256, 'x')}}, kVocab);
  validate({.repetition_penalty = 100, .frequency_penalty = -2, .presence_penalty = 2, .repeat_last_n = 0}, kVocab);
  validate({.logit_bias = {{0, -100}, {99, 100}, {1, -std::numeric_limits<float>::infinity()}}}, kVocab);
  validate({.max_tokens = 5, .min_tokens = 5, .stop = {"x"}, .stop_token_ids = {99}, .logprobs = 0, .n = 128}, kVocab);
}

TEST(SamplingParams, NameTheInvalidFieldAndItsValue) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    std::string field, value;
    std::function<void(SamplingParams&)> spoil;
  };
  const std::vector<Case> cases = {
      {"temperature", "-0.5", [](auto& p) { p.temperature = -0.5f; }},
      {"temperature", "nan", [=](auto& p) { p.temperature = nan; }},
      {"temperature", "inf", [=](auto& p) { p.temperature = infinity; }},
      {"top_k", "-2", [](auto& p) { p.top_k = -2; }},
      {"top_p", "1.5", [](auto& p) { p.top_p = 1.5f; }},
      {"top_p", "nan", [=](auto& p) { p.top_p = nan; }},
      {"min_p", "-1", [](auto& p) { p.min_p = -1; }},
      {"min_p", "nan", [=](auto& p) { p.min_p = nan; }},
      {"typical_p", "2", [](auto& p) { p.typical_p = 2; }},
      {"top_n_sigma", "-1.5", [](auto& p) { p.top_n_sigma = -1.5f; }},
      {"top_n_sigma", "nan", [=](auto& p) { p.top_n_sigma = nan; }},
      {"xtc_probability", "1.5", [](auto& p) { p.xtc_probability = 1.5f; }},
      {"xtc_threshold", "-1", [](auto& p) { p.xtc_threshold = -1; }},
      {"dynatemp_range", "101", [](auto& p) { p.dynatemp_range = 101; }},
      {"dynatemp_exponent", "nan", [=](auto& p) { p.dynatemp_exponent = nan; }},
      {"mirostat", "3", [](auto& p) { p.mirostat = 3; }},
      {"mirostat_tau", "inf", [=](auto& p) { p.mirostat_tau = infinity; }},
      {"mirostat_eta", "2", [](auto& p) { p.mirostat_eta = 2; }},
      {"dry_multiplier", "-1", [](auto& p) { p.dry_multiplier = -1; }},
      {"dry_base", "0.5", [](auto& p) { p.dry_base = 0.5f; }},
      {"dry_allowed_length", "0", [](auto& p) { p.dry_allowed_length = 0; }},
      {"dry_penalty_last_n", "-2", [](auto& p) { p.dry_penalty_last_n = -2; }},
      {"dry_sequence_breakers", "65", [](auto& p) { p.dry_sequence_breakers.assign(65, "a"); }},
      {"dry_sequence_breakers[0]", "257", [](auto& p) { p.dry_sequence_breakers = {std::string(257, 'a')}; }},
      {"dry_sequence_breakers[1]", "empty",
       [](auto& p) {
         p.dry_sequence_breakers = {"a", ""};
       }},
      {"repetition_penalty", "0", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", "nan", [=](auto& p) { p.repetition_penalty = nan; }},
      {"frequency_penalty", "-2.5", [](auto& p) { p.frequency_penalty = -2.5f; }},
      {"presence_penalty", "inf", [=](auto& p) { p.presence_penalty = infinity; }},
      {"repeat_last_n", "-2", [](auto& p) { p.repeat_last_n = -2; }},
      {"logit_bias", "100",
       [](auto& p) {
         p.logit_bias = {{100, 1.0f}};
       }},
      {"logit_bias", "-1",
       [](auto& p) {
         p.logit_bias = {{-1, 1.0f}};
       }},
      {"logit_bias", "101",
       [](auto& p) {
         p.logit_bias = {{3, 101.0f}};
       }},
      {"logit_bias", "nan",
       [=](auto& p) {
         p.logit_bias = {{3, nan}};
       }},
      {"logit_bias", "inf",
       [=](auto& p) {
         p.logit_bias = {{3, infinity}};
       }},
      {"logit_bias", "101", [](auto& p) { p.logit_bias.resize(101); }},
      {"allowed_token_ids", "100",
       [](auto& p) {
         p.allowed_token_ids = {5, 100};
       }},
      {"allowed_token_ids", "-1", [](auto& p) { p.allowed_token_ids = {-1}; }},
      {"allowed_token_ids", "101", [](auto& p) { p.allowed_token_ids.assign(101, 5); }},
      {"bad_words[1]", "empty",
       [](auto& p) {
         p.bad_words = {"a", ""};
       }},
      {"bad_words[0]", "5000", [](auto& p) { p.bad_words = {std::string(5000, 'a')}; }},
      {"bad_words", "1025", [](auto& p) { p.bad_words.assign(1025, "a"); }},
      {"max_tokens", "0", [](auto& p) { p.max_tokens = 0; }},
      {"min_tokens", "-1", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens", "6", [](auto& p) { p.max_tokens = 5, p.min_tokens = 6; }},
      {"stop[1]", "empty",
       [](auto& p) {
         p.stop = {"a", ""};
       }},
      {"stop[0]", "5000", [](auto& p) { p.stop = {std::string(5000, 'a')}; }},
      {"stop", "65", [](auto& p) { p.stop.assign(65, "a"); }},
      {"stop_token_ids", "100", [](auto& p) { p.stop_token_ids = {100}; }},
      {"logprobs", "-1", [](auto& p) { p.logprobs = -1; }},
      {"n", "0", [](auto& p) { p.n = 0; }},
      {"n", "129", [](auto& p) { p.n = 129; }},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    c.spoil(params);
    try {
      validate(params, kVocab);
      ADD_FAILURE() << c.field << " = " << c.value << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
      EXPECT_EQ(std::string(error.what()).find(c.field), 0u) << error.what();
      EXPECT_NE(std::string(error.what()).find(c.value), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire
