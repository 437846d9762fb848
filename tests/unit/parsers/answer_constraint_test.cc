// Whatever a constraint allows, the parser of the family reads as the calls, thoughts and texts that were asked for.
#include <gtest/gtest.h>

#include <random>

#include "grammar/compose.h"
#include "grammar/matcher.h"
#include "parsers/answer_constraint.h"
#include "sanitizers.h"
#include "text/token_frames.h"
#include "unit/parsers/recorded.h"

namespace quire {
namespace {

using Calls = AnswerRules::Calls;

const Json kWeather = Json::parse(R"({"type": "object", "properties": {"city": {"type": "string", "description": "c"},
    "days": {"type": "integer", "minimum": 1, "maximum": 7}, "unit": {"enum": ["celsius", "kelvin"]},
    "wet": {"type": "boolean"}}, "required": ["city"], "additionalProperties": false})");
const Json kSearch = Json::parse(R"({"type": "object", "properties": {"exact": {"type": "boolean"},
    "filter": {"$ref": "#/$defs/filter"}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    "note": {"type": ["string", "null"]}, "kind": {"oneOf": [{"enum": ["a", "b c"]}, {"type": "null"}]},
    "code": {"anyOf": [{"$ref": "#/$defs/code"}, {"type": "null"}]}, "either": {"type": ["string", "integer"]}},
    "required": ["filter"], "additionalProperties": false,
    "$defs": {"filter": {"type": "object", "properties": {"by": {"enum": ["date, then \"name\"", 5]}}, "required": ["by"],
                         "additionalProperties": false}, "code": {"type": "string", "title": "Code"}}})");

std::vector<CallableTool> callable() { return {{"weather", kWeather, "w"}, {"find.it", kSearch, "s"}, {"now"}}; }

std::shared_ptr<const ToolList> tool_list() {
  auto tools = std::make_shared<ToolList>();
  for (const CallableTool& tool : callable()) tools->push_back({tool.name, tool.parameters});
  return tools;
}

// Marks that models have as tokens; others, such as "<function=", are text in every vocabulary.
bool may_be_token(std::string_view mark) {
  if (mark.find("DSML") != std::string_view::npos) return false;  // only a word in them is a token
  return mark.size() > 3 && mark.find_first_of("=`\"") == std::string_view::npos &&
         mark.find(' ') == std::string_view::npos;
}

// Tokens: the bytes, an end, and the marks of a format, as tokens of their own or as text.
struct MarkedVocabulary {
  std::vector<std::string> marks;
  bool tokens;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;

  MarkedVocabulary(const AnswerFormat& format, bool marks_are_tokens) : tokens(marks_are_tokens) {
    std::set<std::string> all;
    if (format.tools) {
      const CallSyntax& s = format.tools->syntax;
      for (const auto* list : {&s.opens, &s.closes, &s.name_ends}) all.insert(list->begin(), list->end());
      for (const auto mark : {s.function_end, s.key, s.key_end, s.value, s.value_end, s.quote, s.word})
        all.emplace(mark);
    }
    if (format.reasoning) {
      for (const auto mark : {format.reasoning->open, format.reasoning->close}) all.emplace(mark);
    }
    all.erase("");
    marks.assign(all.begin(), all.end());
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();  // the end
    std::vector<grammar::SpecialToken> special;
    for (const std::string& mark : marks) {
      if (is_token(mark)) special.push_back({static_cast<TokenId>(texts.size()), mark, true});
      texts.push_back(mark);
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const TokenId end[] = {256};
    vocabulary = grammar::Vocabulary::build(views, special, end);
  }

  bool is_token(std::string_view mark) const { return tokens && may_be_token(mark); }
  std::string written(TokenId id) const {
    if (id < 256) return std::string(1, static_cast<char>(id));
    const std::string& mark = marks[static_cast<size_t>(id) - 257];
    return is_token(mark) ? kShownFrame + mark + kFrameEnd : mark;
  }
};

// A random answer that the constraint allows. Fails if there is a dead end.
std::string random_answer(const ConstraintSource& source, const MarkedVocabulary& words, unsigned seed) {
  std::mt19937 random(seed);
  grammar::Matcher matcher(words.vocabulary, grammar::compile(source));
  std::vector<uint32_t> mask(words.vocabulary->mask_words());
  std::string answer;
  constexpr int kLong = 250, kTooLong = 5000;
  for (int step = 0; step < kTooLong; ++step) {
    if (matcher.fill_mask(mask) == 0) {
      ADD_FAILURE() << "dead end after " << answer;
      return answer;
    }
    const auto allowed = [&](TokenId id) { return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; };
    if (allowed(256) && (step > kLong || random() % 2 == 0)) return answer;
    std::vector<TokenId> likely, possible;
    for (TokenId id = 257; static_cast<size_t>(id) < words.vocabulary->size(); ++id) {
      if (allowed(id)) likely.push_back(id);
    }
    // Where the answer is long, only what ends it: in a JSON string (without line ends) its quote, elsewhere marks first.
    const bool in_json_string = allowed('a') && allowed('"') && !allowed('\n');
    if (in_json_string && step > kLong) likely.clear();
    for (const char c : std::string_view(in_json_string ? "\"" : "}])\"")) {
      if (allowed(c) && (likely.empty() || step <= kLong)) likely.push_back(c);
    }
    if (!likely.empty() && allowed('\n') && !answer.ends_with('\n')) likely.push_back('\n');
    for (TokenId id = 0; id < 256; ++id) {
      if (allowed(id) && (id >= ' ' || random() % 8 == 0)) possible.push_back(id);
    }
    const bool close = !likely.empty() && (step > kLong || random() % 3 == 0);
    const auto& from = close || possible.empty() ? likely : possible;
    if (from.empty()) continue;
    const TokenId next = from[random() % from.size()];
    EXPECT_TRUE(matcher.advance(next));
    answer += words.written(next);
  }
  ADD_FAILURE() << "no end: " << answer.substr(0, 500);
  return answer;
}

RecordedMessage read_in_pieces(const AnswerFormat& format, AnswerOptions options, std::string_view answer,
                               unsigned seed) {
  std::mt19937 random(seed);
  const auto parser = make_answer_parser(format, std::move(options));
  std::vector<AnswerPiece> pieces;
  while (!answer.empty()) {
    const size_t size = std::min<size_t>(answer.size(), 1 + random() % 20);
    parser->add(answer.substr(0, size), pieces);
    answer.remove_prefix(size);
  }
  parser->end(true, pieces);
  return joined(pieces);
}

// As written, since a Json would round long integers.
std::string without_blanks(std::string_view json) {
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (in_string && json[i] == '\\') {
      text += json.substr(i++, 2);
      continue;
    }
    if (json[i] == '"') in_string = !in_string;
    if (in_string || std::string_view(" \t\r\n").find(json[i]) == std::string_view::npos) text += json[i];
  }
  return text;
}

// Without its blanks: where a syntax writes arguments one by one, each is indented for itself.
bool matches(const Json& schema, const std::string& text) {
  grammar::Matcher matcher(grammar::Vocabulary::of_bytes(), grammar::compile_json_schema(schema));
  return Json::accept(text) && matcher.advance_bytes(without_blanks(text)) && matcher.accepting();
}

void expect_valid(const RecordedMessage& message, const std::string& answer) {
  for (const RecordedCall& call : message.calls) {
    const auto tools = callable();
    const auto tool = std::ranges::find(tools, call.name, &CallableTool::name);
    ASSERT_NE(tool, tools.end()) << call.name << " of " << answer;
    EXPECT_TRUE(call.ended) << answer;
    EXPECT_TRUE(matches(tool->parameters.is_null() ? Json{{"type", "object"}} : tool->parameters, call.arguments))
        << call.arguments << " of " << answer;
  }
}

struct Family {
  std::string_view name;
  bool tokens;
};

class Forced : public ::testing::TestWithParam<Family> {
 protected:
  AnswerFormat format(std::string_view reasoning = "none") const {
    const auto is_token = [](std::string_view mark) { return GetParam().tokens && may_be_token(mark); };
    return choose_format("", is_token, GetParam().name, reasoning);
  }
};

TEST_P(Forced, CallsAreRead) {
  const AnswerFormat f = format();
  const MarkedVocabulary words(f, GetParam().tokens);
  const ConstraintSource source = constrain_answer(f, {}, {.calls = Calls::kMust, .tools = callable()});
  size_t several = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const std::string answer = random_answer(source, words, seed);
    const RecordedMessage message = read_in_pieces(f, {.tools = tool_list()}, answer, seed);
    EXPECT_EQ(message.text, "") << answer;
    ASSERT_FALSE(message.calls.empty()) << answer;
    several += message.calls.size() > 1;
    expect_valid(message, answer);
  }
  EXPECT_EQ(several > 0, !f.form->single);
}

TEST_P(Forced, AreOneIfNoMoreAreAllowed) {
  const AnswerFormat f = format();
  const MarkedVocabulary words(f, GetParam().tokens);
  const ConstraintSource source =
      constrain_answer(f, {}, {.calls = Calls::kMust, .several_calls = false, .tools = {{"now"}}});
  for (unsigned seed = 0; seed < testing::rounds(10); ++seed) {
    const std::string answer = random_answer(source, words, seed);
    const RecordedMessage message = read_in_pieces(f, {.tools = tool_list()}, answer, seed);
    ASSERT_EQ(message.calls.size(), 1u) << answer;
    EXPECT_EQ(message.calls[0].name, "now");
  }
}

TEST_P(Forced, OrTextOrATextOfAFormat) {
  const AnswerFormat f = format();
  const MarkedVocabulary words(f, GetParam().tokens);
  const ConstraintSource strict = constrain_answer(f, {}, {.calls = Calls::kMay, .tools = callable()});
  const ConstraintSource choice =
      constrain_answer(f, {},
                       {.calls = Calls::kMay,
                        .tools = callable(),
                        .text = ConstraintSource{.kind = ConstraintSource::Kind::kChoice, .choices = {"yes", "no"}}});
  for (unsigned seed = 0; seed < testing::rounds(20); ++seed) {
    const std::string answer = random_answer(strict, words, seed);
    expect_valid(read_in_pieces(f, {.tools = tool_list()}, answer, seed), answer);
    const std::string chosen = random_answer(choice, words, seed);
    const RecordedMessage message = read_in_pieces(f, {.tools = tool_list()}, chosen, seed);
    expect_valid(message, chosen);
    EXPECT_TRUE(message.calls.empty() ? message.text == "yes" || message.text == "no" : message.text.empty()) << chosen;
  }
}

TEST_P(Forced, AfterAThought) {
  const bool harmony = GetParam().name == "openai";
  for (const std::string_view reasoning : {"qwen3", "gemma4", "granite"}) {
    const AnswerFormat f = format(harmony ? "openai_gptoss" : reasoning);
    const MarkedVocabulary words(f, GetParam().tokens);
    for (const bool inside : {false, true}) {
      if (inside && harmony) continue;
      const AnswerOptions options{.tools = tool_list(), .inside_thought = inside};
      const ConstraintSource source = constrain_answer(f, options, {.calls = Calls::kMust, .tools = callable()});
      for (unsigned seed = 0; seed < testing::rounds(8); ++seed) {
        const std::string answer = random_answer(source, words, seed);
        const RecordedMessage message = read_in_pieces(f, options, answer, seed);
        if (!harmony) {
          EXPECT_EQ(message.text, "") << answer;  // harmony has remarks before calls
        }
        EXPECT_FALSE(message.calls.empty()) << answer;
        expect_valid(message, answer);
      }
    }
  }
}

std::vector<Family> families() {
  std::vector<Family> all;
  for (const ToolFamily& family : tool_families()) {
    for (const bool tokens : {false, true}) {
      if (tokens || family.syntax.shape != CallShape::kHarmony) all.push_back({family.name, tokens});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Forced, ::testing::ValuesIn(families()), [](const auto& info) {
  std::string name(info.param.name);
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == '-'; }, '_');
  return name + (info.param.tokens ? "_tokens" : "_text");
});

// What a syntax without quotes cannot express is refused by name, and JSON can express it.
TEST(CallArguments, AreRefusedWhereTheSyntaxCannotFollowTheSchema) {
  const auto refusal = [](std::string_view family, const char* parameters) -> std::string {
    const AnswerFormat f = choose_format(
        "", [](std::string_view) { return false; }, family, "none");
    try {
      constrain_answer(f, {},
                       {.calls = Calls::kMust, .tools = {{"f", Json::parse(parameters), "tools[0].parameters"}}});
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}})", "pattern of the string a"},
      {R"({"type": "object", "properties": {"a": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]}}})",
       "minLength of the string a"},
      {R"({"type": "object", "properties": {"a": {"enum": ["x</parameter>"]}}})", "the value \"x</parameter>\" of a"},
      {R"({"type": "object", "properties": {"a b": {}}})", "a property named \"a b\""},
      {R"({"type": "object", "minProperties": 1})", "minProperties"},
  };
  for (const auto& [parameters, what] : cases) {
    const std::string message = refusal("qwen3_coder", parameters);
    EXPECT_EQ(message.find("tools[0].parameters: "), 0u) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(refusal("hermes", parameters), "");
  }
  EXPECT_EQ(refusal("pythonic", cases[0].first), "") << "strings have quotes there";
}

TEST(CallArguments, NameTheToolOfASchemaThatIsRefused) {
  const AnswerFormat f = choose_format(
      "", [](std::string_view) { return false; }, "hermes", "none");
  const Json schema = Json::parse(R"({"type": "object", "properties": {"a": {"type": "string", "format": "iri"}}})");
  const ConstraintSource source =
      constrain_answer(f, {}, {.calls = Calls::kMust, .tools = {{"f", schema, "tools[0].function.parameters"}}});
  try {
    grammar::compile(source);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("tools[0].function.parameters: "), 0u) << e.what();
  }
}

TEST(CallForms, HaveTokensInsideTheirMarks) {
  constexpr std::string_view kWord = "｜DSML｜";
  const AnswerFormat f = choose_format(
      "", [&](std::string_view text) { return text == kWord; }, "deepseek_v32", "none");
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back();
  texts.emplace_back(kWord);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenId end[] = {256};
  const auto words = grammar::Vocabulary::build(views, {{{257, std::string(kWord), true}}}, end);
  const ConstraintSource source = constrain_answer(f, {}, {.calls = Calls::kMust, .tools = callable()});
  const auto accepts = [&](std::string_view answer, bool word_is_token) {
    grammar::Matcher matcher(words, grammar::compile(source));
    while (!answer.empty()) {
      const bool word = word_is_token && answer.starts_with(kWord);
      if (!matcher.advance(word ? 257 : static_cast<unsigned char>(answer.front()))) return false;
      answer.remove_prefix(word ? kWord.size() : 1);
    }
    return matcher.accepting();
  };
  const std::string answer =
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
      "string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
      "string=\"false\">2</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  EXPECT_TRUE(accepts(answer, true));
  EXPECT_FALSE(accepts(answer, false));
}

TEST(CallForms, AreThoseOfTheTemplate) {
  const auto separator = [](std::string_view source, std::string_view family) {
    return choose_format(
               source, [](std::string_view) { return false; }, family, "none")
        .form->before_arguments;
  };
  EXPECT_EQ(separator("… ```json …", "deepseek_v3"), "\n```json\n");
  EXPECT_EQ(separator("…", "deepseek_v3"), "<｜tool▁sep｜>");
  EXPECT_EQ(separator("[ARGS]", "mistral"), "[ARGS]");
  EXPECT_EQ(separator("", "glm45"), "\n");
  EXPECT_EQ(separator("", "glm47"), "");
  EXPECT_EQ(separator("", "mistral"), "\", \"arguments\": ");
}

}  // namespace
}  // namespace quire
