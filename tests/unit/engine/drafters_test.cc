// Drafters that compute: the same answers and log-probabilities as without them, to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/option_names.h"
#include "error_of.h"
#include "unit/engine/drafters.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"
#include "unit/model/edited_model.h"

namespace quire {
namespace {

using testing::Answers;
using testing::answers;
using testing::answers_together;
using testing::Choice;
using testing::expect_same;
using testing::golden;
using testing::random_tokens;

EngineOptions base() { return testing::undrafted_options(4, 128); }

class Drafters : public ::testing::TestWithParam<Choice> {
 protected:
  Drafters() {
    GetParam().change(options_);
    if (options_.speculative == Speculation::kOff) options_.speculative = Speculation::kAuto;
    options_.speculate_always = true;
    options_.num_speculative_tokens = 3;
  }

  // 300 prompts in all, over the drafters and modes.
  static std::vector<Request> requests(unsigned seed) {
    std::vector<Request> all;
    for (unsigned i = 0; i < 12; ++i) {
      Request r =
          seeded_request(random_tokens(100 * seed + i, 1 + static_cast<int>(7 * i + seed) % 60), i % 4 == 0 ? 40 : 12);
      r.sampling.seed = i;
      r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.5f * static_cast<float>(i % 3);
      r.sampling.n = i == 4 ? 3 : 1;
      if (i == 5) r.sampling.prompt_logprobs = 0;
      if (i == 6) r.sampling.presence_penalty = 1;
      if (i == 7) r.sampling.stop_token_ids = {5, 9, 11, 17, 23, 40};
      all.push_back(std::move(r));
    }
    return all;
  }
  std::vector<Answers> without(const std::vector<Request>& requests) const {
    EngineOptions o = base();
    o.model = options_.model;
    o.kv_cache_dtype = options_.kv_cache_dtype;
    o.max_num_seqs = 1;
    o.prefix_cache = false;
    Engine engine(o);
    std::vector<Answers> all;
    for (const Request& r : requests) all.push_back(answers(engine, r));
    return all;
  }
  static void expect_all_same(const std::vector<Answers>& a, const std::vector<Answers>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t choice = 0; choice < a[i].size(); ++choice)
        expect_same(a[i][choice], b[i][choice], "request " + std::to_string(i) + ", choice " + std::to_string(choice));
    }
  }

  EngineOptions options_ = base();
};

TEST_P(Drafters, ChangeNoAnswer) {
  const auto all = requests(1);
  const auto expected = without(all);
  Engine engine(options_);
  expect_all_same(expected, answers_together(engine, all));
  expect_all_same(expected, answers_together(engine, all));  // after prefix hits
  EXPECT_GT(engine.stats().drafted_tokens, 0u);
}

TEST_P(Drafters, ChangeNoAnswerInSmallChunks) {
  options_.max_num_batched_tokens = 12;
  const auto all = requests(2);
  Engine engine(options_);
  expect_all_same(without(all), answers_together(engine, all));
}

// The cache holds one of the longest sequences.
TEST_P(Drafters, ChangeNoAnswerThatIsPreempted) {
  options_.kv_cache_bytes = testing::cache_of(options_, 1);
  std::vector<Request> all;
  for (unsigned i = 0; i < 8; ++i) {
    all.push_back(seeded_request(random_tokens(i, 3 + 7 * static_cast<int>(i % 3)), 90));
    all.back().sampling.temperature = i % 2 == 0 ? 0 : 1;
  }
  Engine engine(options_);
  expect_all_same(without(all), answers_together(engine, all));
  EXPECT_GT(engine.stats().preemptions, 0u);
}

TEST_P(Drafters, ChangeNoAnswerWhenTheControllerChooses) {
  options_.speculate_always = false;
  const auto all = requests(4);
  Engine engine(options_);
  expect_all_same(without(all), answers_together(engine, all));
}

TEST(DraftModel, IsRightIfItIsTheTarget) {
  EngineOptions o = base();
  o.speculative = Speculation::kDraft;
  o.draft_model = o.model;
  o.speculate_always = true;
  o.num_speculative_tokens = 3;
  Request r = seeded_request(random_tokens(9, 40), 41);
  r.sampling.temperature = 0;
  Engine engine(o);
  const Answers all = answers(engine, r);
  EXPECT_EQ(all[0].last.usage.drafted_tokens, 30);
  EXPECT_EQ(all[0].last.usage.accepted_tokens, 30);
}

// Heads need the hidden states of the step that computed the prompt.
TEST(DraftHeads, DraftFromTheFirstToken) {
  for (const std::string drafter : {"eagle", "medusa", "mtp"}) {
    EngineOptions o = base();
    if (drafter == "mtp") {
      testing::use_mtp(o, "deepseek_v3");
    } else {
      o.speculative = *find_value(kSpeculationNames, drafter);
      (drafter == "eagle" ? o.eagle_head : o.medusa_heads) = golden("drafters/" + drafter);
    }
    o.speculate_always = true;
    Engine engine(o);
    const Answers all = answers(engine, seeded_request(random_tokens(9, 40), 3));
    EXPECT_EQ(all[0].last.usage.drafted_tokens, 1) << drafter;
  }
}

// The names of the drafters that an engine with --speculative auto has.
std::vector<std::string> automatic_drafters(const std::string& model, const std::string& eagle_head = {}) {
  EngineOptions o = base();
  o.model = model;
  o.speculative = Speculation::kAuto;
  o.eagle_head = eagle_head;
  const Engine engine(o);
  std::vector<std::string> names;
  for (const DrafterStats& stats : engine.stats().drafters) names.emplace_back(stats.name);
  return names;
}

TEST(AutomaticDrafters, HaveTheModelsOwnLayerUnlessAFlagNamesAnother) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(automatic_drafters(golden("models/llama")), (Names{"ngram", "recent"}));
  EXPECT_EQ(automatic_drafters(golden("drafters/mtp_qwen3_next")), (Names{"ngram", "recent", "mtp"}));
  EXPECT_EQ(automatic_drafters(golden("drafters/mtp_qwen3_next"), golden("drafters/eagle")),
            (Names{"ngram", "recent", "eagle"}));
}

TEST(AutomaticDrafters, LeaveOutALayerThatCannotBeLoaded) {
  testing::EditedModel model("../drafters/mtp_glm4_moe");
  model.tensors.erase("model.layers.3.enorm.weight");
  const std::string folder = model.write();
  EXPECT_EQ(automatic_drafters(folder), (std::vector<std::string>{"ngram", "recent"}));
  EngineOptions o = base();
  o.model = folder;
  o.speculative = Speculation::kMtp;
  EXPECT_EQ(error_of([&] { const Engine engine(o); }), folder + ": tensor model.layers.3.enorm.weight is missing");
}

INSTANTIATE_TEST_SUITE_P(
    All, Drafters,
    ::testing::Values(Choice{"same_model", [](EngineOptions& o) { o.draft_model = golden("models/llama"); }},
                      Choice{"other_model", [](EngineOptions& o) { o.draft_model = golden("models/mistral"); }},
                      Choice{"eagle", [](EngineOptions& o) { o.eagle_head = golden("drafters/eagle"); }},
                      Choice{"medusa", [](EngineOptions& o) { o.medusa_heads = golden("drafters/medusa"); }},
                      Choice{"mtp_latent", [](EngineOptions& o) { testing::use_mtp(o, "deepseek_v3"); }},
                      Choice{"mtp_hybrid", [](EngineOptions& o) { testing::use_mtp(o, "qwen3_next"); }},
                      Choice{"early_exit",
                             [](EngineOptions& o) {
                               o.speculative = Speculation::kEarlyExit;
                               o.early_exit_layers = 1;
                             }},
                      Choice{"lookahead", [](EngineOptions& o) { o.speculative = Speculation::kLookahead; }},
                      Choice{"ngram", [](EngineOptions& o) { o.speculative = Speculation::kNgram; }},
                      Choice{"recent", [](EngineOptions& o) { o.speculative = Speculation::kCorpus; }},
                      Choice{"eagle_int8_cache",
                             [](EngineOptions& o) {
                               o.eagle_head = golden("drafters/eagle");
                               o.kv_cache_dtype = "int8";
                             }},
                      Choice{"same_model_int4_cache",
                             [](EngineOptions& o) {
                               o.draft_model = golden("models/llama");
                               o.kv_cache_dtype = "int4";
                             }},
                      Choice{"mtp_latent_int4_cache",
                             [](EngineOptions& o) {
                               testing::use_mtp(o, "deepseek_v3");
                               o.kv_cache_dtype = "int4";
                             }},
                      Choice{"ngram_fp8_cache",
                             [](EngineOptions& o) {
                               o.speculative = Speculation::kNgram;
                               o.kv_cache_dtype = "fp8";
                             }}),
    [](const auto& drafter) { return drafter.param.name; });

std::string option_error(const std::function<void(EngineOptions&)>& change) {
  EngineOptions o = base();
  change(o);
  return error_of([&] { const Engine engine(o); });
}

TEST(DrafterOptions, MustFitTogether) {
  EXPECT_EQ(option_error([](auto& o) { o.speculative = Speculation::kDraft; }),
            "--speculative draft needs --draft-model");
  EXPECT_EQ(option_error([](auto& o) { o.speculative = Speculation::kEagle; }),
            "--speculative eagle needs --eagle-head");
  EXPECT_EQ(option_error([](auto& o) { o.speculative = Speculation::kMedusa; }),
            "--speculative medusa needs --medusa-heads");
  EXPECT_EQ(option_error([](auto& o) { o.speculative = Speculation::kMtp; }),
            golden("models/llama") +
                " has no layer for multi-token prediction that Quire knows; use --speculative ngram, or a drafter with "
                "files of its own");
  EXPECT_EQ(option_error([](auto& o) {
              o.speculative = Speculation::kNgram;
              o.num_speculative_tokens = 65;
            }),
            "--num-speculative-tokens must be between 1 and 64, not 65");
  EXPECT_EQ(option_error([](auto& o) {
              o.speculative = Speculation::kNgram;
              o.kv_cache = false;
            }),
            "--speculative ngram needs the KV cache; leave out --no-kv-cache");
  EXPECT_EQ(option_error([](auto& o) {
              o.speculative = Speculation::kNgram;
              o.speculative_corpus = "x";
            }),
            "--speculative-corpus needs --speculative corpus or auto");
  EXPECT_EQ(option_error([](auto& o) {
              o.speculative = Speculation::kEarlyExit;
              o.early_exit_layers = 99;
            }).find("--early-exit-layers 99 is not possible; the model has "),
            0u);
}

}  // namespace
}  // namespace quire
