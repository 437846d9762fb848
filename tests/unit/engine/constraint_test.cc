// Structured output: answers match their constraint, and their bits depend on nothing else.

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "json/parse.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::answers;
using testing::expect_same;
using testing::kTinyPageBytes;
using testing::random_tokens;
using testing::tiny_options;
using Kind = ConstraintSource::Kind;

constexpr char kSchema[] = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
  "kind": {"enum": ["a rather long constant", "another rather long constant"]}, "count": {"type": "integer",
  "minimum": 0, "maximum": 999}}, "required": ["name", "kind", "count"], "additionalProperties": false})";

Request constrained_request(Engine& engine, const ConstraintSource& source, unsigned seed) {
  Request r;
  r.prompt = random_tokens(seed, 20 + static_cast<int>(seed) % 40);
  r.sampling.temperature = 1.5f;
  r.sampling.seed = seed;
  r.sampling.max_tokens = 300;
  r.constraint = engine.compile(source);
  return r;
}

// Of several kinds and lengths.
std::vector<Request> constrained_requests(Engine& engine, int count) {
  const std::vector<ConstraintSource> sources = {
      {.kind = Kind::kJsonSchema, .text = kSchema},
      {.kind = Kind::kRegex, .text = "(red|green|blue){1,9}[0-9]{150,190}"},
      {.kind = Kind::kChoice, .choices = {"forced from here on", "no"}},
      {.kind = Kind::kGrammar, .text = R"(root ::= ("ab" | "cd"){2,30} "!")"}};
  std::vector<Request> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(
        constrained_request(engine, sources[static_cast<size_t>(i) % sources.size()], static_cast<unsigned>(i)));
    SamplingParams& sampling = all.back().sampling;
    if (i % 3 == 1) {  // remembers each draw, also of forced tokens
      sampling.mirostat = 2;
      sampling.mirostat_tau = 1;
    }
    if (i % 3 == 2) sampling.dry_multiplier = 2;
  }
  return all;
}

std::vector<Answers> solo_answers(EngineOptions options, int count) {
  options.prefix_cache = false;
  Engine engine(options);
  std::vector<Answers> all;
  for (const Request& r : constrained_requests(engine, count)) all.push_back(answers(engine, r));
  return all;
}

TEST(Constraint, HoldsForEveryAnswer) {
  Engine engine(tiny_options());
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Answer json = answer(engine, constrained_request(engine, {.kind = Kind::kJsonSchema, .text = kSchema}, seed));
    ASSERT_EQ(json.last.finish, FinishReason::kStop);
    const Json value = parse_json(json.text, "answer");
    EXPECT_LE(value.at("count").get<int>(), 999);
    EXPECT_EQ(value.size(), 3u);

    const Answer word =
        answer(engine, constrained_request(engine, {.kind = Kind::kRegex, .text = "[a-f]{3,9}x?"}, seed));
    EXPECT_TRUE(std::regex_match(word.text, std::regex("[a-f]{3,9}x?"))) << word.text;

    const Answer choice =
        answer(engine, constrained_request(engine, {.kind = Kind::kChoice, .choices = {"yes", "no"}}, seed));
    EXPECT_TRUE(choice.text == "yes" || choice.text == "no") << choice.text;
    EXPECT_EQ(choice.last.finish, FinishReason::kStop);
  }
}

TEST(Constraint, EndsAtMaxTokensWithLength) {
  Engine engine(tiny_options());
  Request r = constrained_request(engine, {.kind = Kind::kRegex, .text = "x{50}"}, 1);
  r.sampling.max_tokens = 20;
  const Answer a = answer(engine, r);
  EXPECT_EQ(a.text, std::string(20, 'x'));
  EXPECT_EQ(a.last.finish, FinishReason::kLength);
}

TEST(Constraint, GivesTheSameAnswersInAnyCompany) {
  constexpr int kRequests = 24;
  const std::vector<Answers> alone = solo_answers(tiny_options(), kRequests);
  EngineOptions small = tiny_options();
  small.kv_cache_bytes = 24 * kTinyPageBytes;  // so that sequences are preempted
  small.max_model_len = 368;
  const auto expect_alone = [&](Engine& engine, const std::string& what) {
    const std::vector<Answers> together = testing::answers_together(engine, constrained_requests(engine, kRequests));
    for (size_t i = 0; i < together.size(); ++i) expect_same(alone[i][0], together[i][0], what + std::to_string(i));
  };
  Engine scarce(small), roomy(tiny_options());
  expect_alone(scarce, "preempted ");
  EXPECT_GT(scarce.stats().preemptions, 0u);
  expect_alone(roomy, "together ");
  expect_alone(roomy, "with prefixes ");
  EXPECT_GT(roomy.stats().prefix_hit_tokens, 0u);
}

TEST(Constraint, ForcedTokensAreNotSampledAndChangeNothing) {
  constexpr int kRequests = 8;
  Engine engine(tiny_options());
  EngineOptions options = tiny_options();
  options.forced_tokens = false;
  const std::vector<Answers> sampled = solo_answers(options, kRequests);
  const std::vector<Answers> together = testing::answers_together(engine, constrained_requests(engine, kRequests));
  for (size_t i = 0; i < together.size(); ++i) expect_same(sampled[i][0], together[i][0], std::to_string(i));

  Engine fresh(tiny_options());
  EXPECT_EQ(answer(fresh, constrained_request(fresh, {.kind = Kind::kChoice, .choices = {"one way only"}}, 1)).text,
            "one way only");
  EngineStats stats;
  do stats = fresh.stats();
  while (stats.finished_requests == 0);    // published after the step
  EXPECT_EQ(stats.generated_tokens, 13u);  // with the end token
  EXPECT_EQ(stats.forced_tokens, 12u);     // all but the first
  EXPECT_EQ(stats.steps, 1u);
}

TEST(Constraint, IsFollowedByEachChoiceForItself) {
  Engine engine(tiny_options());
  Request r = constrained_request(engine, {.kind = Kind::kJsonSchema, .text = kSchema}, 3);
  r.sampling.n = 4;
  const Answers all = answers(engine, r);
  for (const Answer& a : all) EXPECT_NO_THROW(parse_json(a.text, "answer")) << a.text;
  EXPECT_NE(all[0].text, all[1].text);
  r.sampling.n = 1;
  expect_same(answer(engine, r), all[0]);
}

TEST(Constraint, EndsWhereTheRequestsBansLeaveNoToken) {
  Engine engine(tiny_options());
  Request r = constrained_request(engine, {.kind = Kind::kChoice, .choices = {"abc"}}, 1);
  r.sampling.allowed_token_ids = {'a', 'b'};
  Answer a = answer(engine, r);
  EXPECT_EQ(a.text, "ab");
  EXPECT_EQ(a.last.finish, FinishReason::kDeadEnd);
  EXPECT_NE(a.last.error.find("no token satisfies"), std::string::npos);
  EXPECT_EQ(a.ends, 1);

  r.sampling.allowed_token_ids = {};
  r.sampling.min_tokens = 10;  // the answer must end earlier
  a = answer(engine, r);
  EXPECT_EQ(a.text, "abc");
  EXPECT_EQ(a.last.finish, FinishReason::kDeadEnd);
}

// The answer repeats the prompt up to its last letter, which is c unless DRY makes it d.
TEST(Constraint, LetsDryChooseAnotherContinuation) {
  Engine engine(tiny_options());
  // Each letter is free: many others are allowed.
  const char* free = R"(root ::= [z\x01-X] [a\x01-X] [b\x01-X] [cd\x01-X])";
  Request r = constrained_request(engine, {.kind = Kind::kGrammar, .text = free}, 1);
  r.prompt = {'x', 'z', 'a', 'b', 'c', 'y'};
  r.sampling.temperature = 0;
  r.sampling.logit_bias = {{'z', 100}, {'a', 100}, {'b', 100}, {'c', 50}, {'d', 30}};
  EXPECT_EQ(answer(engine, r).text, "zabc");
  r.sampling.dry_multiplier = 40;
  EXPECT_EQ(answer(engine, r).text, "zabd");
  r.sampling.dry_allowed_length = 3;
  EXPECT_EQ(answer(engine, r).text, "zabd");
  for (const auto& [breaker, text] : {std::pair{"q", "zabd"}, {"yz", "zabc"}, {"b", "zabc"}, {"bc", "zabc"}}) {
    r.sampling.dry_sequence_breakers = {breaker};
    EXPECT_EQ(answer(engine, r).text, text) << breaker;
  }
  r.sampling.dry_sequence_breakers = {};
  r.sampling.dry_allowed_length = 4;
  EXPECT_EQ(answer(engine, r).text, "zabc");
}

TEST(Constraint, PenaltiesSpareWhatItWrites) {
  Engine engine(tiny_options());
  const auto text = [&](const char* schema, unsigned seed, bool penalties) {
    Request r = constrained_request(engine, {.kind = Kind::kJsonSchema, .text = schema}, seed);
    r.sampling.temperature = 0;
    if (penalties) {
      r.sampling.repetition_penalty = 3;
      r.sampling.frequency_penalty = 2;
      r.sampling.presence_penalty = 2;
      r.sampling.dry_multiplier = 2;
    }
    return answer(engine, r).text;
  };
  // Brackets, names, blanks, numbers and constants.
  const char* structure = R"({"type": "array", "minItems": 9, "maxItems": 9, "items": {"type": "object", "properties":
      {"count": {"type": "integer", "maximum": 999}, "yes": {"type": "boolean"}}, "required": ["yes", "count"],
      "additionalProperties": false}})";
  const char* strings = R"({"type": "string", "minLength": 40, "maxLength": 40})";
  int differ = 0;
  for (unsigned seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(text(structure, seed, false), text(structure, seed, true));
    differ += text(strings, seed, false) != text(strings, seed, true) ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

// Its rule r has 20,000 alternatives that contain it.
std::string explosive(const std::string& root) {
  std::string rules = "root ::= " + root + "\n";
  rules += R"gbnf(p ::= "(" p ")" | "y"
q ::= "(" q ")" | "z"
r ::= "y")gbnf";
  for (int i = 0; i < 20'000; ++i) rules += " | \"" + std::to_string(i) + "\" r \"x\"";
  return rules;
}

TEST(Constraint, ThatNeedsTooMuchIsRefused) {
  Engine engine(tiny_options());
  EXPECT_THROW(engine.compile({.kind = Kind::kGrammar, .text = explosive("r")}), Error);
  // Found out after some tokens: an end of its own kind, and the other answers go on.
  Request late = constrained_request(engine, {.kind = Kind::kGrammar, .text = explosive("p q r")}, 1);
  late.sampling.logit_bias = {{'y', 50}, {'z', 50}};
  const std::vector<Answers> both = testing::answers_together(
      engine, {late, constrained_request(engine, {.kind = Kind::kRegex, .text = "[a-f]{3,9}"}, 2)});
  EXPECT_EQ(both[0][0].last.finish, FinishReason::kRefused);
  EXPECT_NE(both[0][0].last.error.find("too many steps"), std::string::npos);
  EXPECT_EQ(both[0][0].ends, 1);
  EXPECT_EQ(both[1][0].last.finish, FinishReason::kStop);
}

TEST(Constraint, RefusesWhatItCannotHonour) {
  Engine engine(tiny_options());
  Request r = constrained_request(engine, {.kind = Kind::kJsonObject}, 1);
  r.sampling.ignore_eos = true;
  EXPECT_THROW(answer(engine, r), Error);
  r.sampling.ignore_eos = false;
  r.pooling = Pooling::kMean;
  EXPECT_THROW(answer(engine, r), Error);
  EXPECT_THROW(engine.compile({.kind = Kind::kJsonSchema, .text = "{"}), Error);
  EXPECT_THROW(engine.compile({.kind = Kind::kRegex, .text = "("}), Error);
  EXPECT_THROW(engine.compile({.kind = Kind::kGrammar, .text = "root ::= other"}), Error);
}

TEST(Constraint, CanBeComposedOfOthers) {
  Engine engine(tiny_options());
  const ConstraintSource schema{.kind = Kind::kJsonSchema, .text = R"({"type": "boolean"})"};
  const ConstraintSource item{.kind = Kind::kSequence, .parts = {{.kind = Kind::kText, .text = ";"}, schema}};
  const ConstraintSource source{
      .kind = Kind::kSequence,
      .parts = {
          {.kind = Kind::kOneOf, .parts = {{.kind = Kind::kText, .text = "a"}, {.kind = Kind::kRegex, .text = "b+c"}}},
          {.kind = Kind::kRepeat, .parts = {item}, .least = 2, .most = 3}}};
  for (unsigned seed = 0; seed < 8; ++seed) {
    const Answer a = answer(engine, constrained_request(engine, source, seed));
    if (a.last.finish == FinishReason::kLength) continue;
    EXPECT_TRUE(std::regex_match(a.text, std::regex("(a|b+c)(;(true|false)){2,3}"))) << a.text;
  }
  ConstraintSource deep{.kind = Kind::kText};
  for (int i = 0; i < 100; ++i) deep = {.kind = Kind::kSequence, .parts = {deep}};
  EXPECT_THROW(engine.compile(deep), Error);
  try {
    engine.compile({.kind = Kind::kSequence, .parts = {{.kind = Kind::kRegex, .text = "(", .label = "here"}}});
    ADD_FAILURE() << "was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("here: "), 0u) << e.what();
  }
}

TEST(Constraint, IsCompiledOnce) {
  Engine engine(tiny_options());
  const ConstraintSource source{.kind = Kind::kJsonSchema, .text = kSchema};
  EXPECT_EQ(engine.compile(source), engine.compile(source));
  EXPECT_NE(engine.compile(source), engine.compile({.kind = Kind::kJsonObject}));
}

}  // namespace
}  // namespace quire
