// Masks against brute force, clones and roll-backs against replays, on random grammars, vocabularies and walks.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace quire::grammar {
namespace {

using nlohmann::ordered_json;

// Pieces that texts of the grammars below are made of, joined at random: tokens that end and begin anywhere.
std::shared_ptr<const Vocabulary> random_vocabulary() {
  static const std::vector<std::string> kPieces = {
      "{", "}", "[",    "]",    "\"", ":", ",",     " ",        "\n",   "a",    "b",    "c", "1", "2", "0", ".",
      "-", "e", "true", "null", "\\", "n", "u00e9", "\xC3\xA9", "\xC3", "\xA9", "name", "x", "(", ")", "+"};
  std::vector<std::string> texts = kPieces;
  constexpr size_t kTokens = 200, kLongest = 4;
  const auto indices =
      *rc::gen::container<std::vector<size_t>>(kTokens * kLongest, rc::gen::inRange<size_t>(0, kPieces.size()));
  for (size_t t = 0; t < kTokens; ++t) {
    std::string text;
    for (size_t i = 0; i < 2 + t % (kLongest - 1); ++i) text += kPieces[indices[t * kLongest + i]];
    texts.push_back(text);
  }
  texts.emplace_back();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenId end[] = {static_cast<TokenId>(texts.size() - 1)};
  return Vocabulary::build(views, {}, end);
}

ordered_json random_schema(int depth) {
  switch (*rc::gen::inRange(0, depth == 0 ? 6 : 10)) {
    case 0:
      return {{"type", "integer"}, {"minimum", *rc::gen::inRange(-20, 5)}, {"maximum", *rc::gen::inRange(5, 300)}};
    case 1:
      return {{"type", "string"}, {"maxLength", *rc::gen::inRange(0, 6)}};
    case 2:
      return {{"enum", {"a", "ab", 1, nullptr, "b c"}}};
    case 3:
      return {{"type", {"boolean", "null", "number"}}};
    case 4:
      return {{"type", "string"}, {"pattern", *rc::gen::element<std::string>("^a", "[bc]+$", "^(ab|c){1,3}$", "1.*2")}};
    case 5:
      return true;
    case 6:
      return {{"type", "array"}, {"items", random_schema(depth - 1)}, {"maxItems", *rc::gen::inRange(0, 4)}};
    case 7:
      return {{"anyOf", {random_schema(depth - 1), random_schema(depth - 1)}}};
    default: {
      ordered_json schema = {{"type", "object"}, {"additionalProperties", *rc::gen::arbitrary<bool>()}};
      for (const char* name : {"a", "ab", "name"}) {
        if (*rc::gen::arbitrary<bool>()) schema["properties"][name] = random_schema(depth - 1);
      }
      if (*rc::gen::arbitrary<bool>()) schema["minProperties"] = 1;
      return schema;
    }
  }
}

GrammarPtr random_grammar() {
  static const std::vector<std::string> kGrammars = {
      "root ::= \"(\" root \")\" | \"a\" | root \"+\" root",
      "root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"\"",
      "root ::= (\"a\" | \"ab\" | [a-c]{2,4})* \"1\"",
      "root ::= [^\"]* \"\\\"\" .?",
  };
  const size_t which = *rc::gen::inRange<size_t>(0, kGrammars.size() * 3);
  if (which < kGrammars.size()) return compile_gbnf(kGrammars[which]);
  while (true) {
    try {
      return compile_json_schema(random_schema(2));
    } catch (const Error&) {  // not satisfiable
    }
  }
}

std::vector<TokenId> allowed(Matcher& matcher, const Vocabulary& vocabulary) {
  std::vector<uint32_t> bits(vocabulary.mask_words());
  matcher.fill_mask(bits);
  std::vector<TokenId> ids;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (bits[id / 32] >> (id % 32) & 1) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

RC_GTEST_PROP(Masks, EqualTryingEachTokenByteByByte, ()) {
  const auto vocabulary = random_vocabulary();
  const GrammarPtr grammar = random_grammar();
  Matcher matcher(vocabulary, grammar);
  std::string text;
  for (int step = 0; step < 12; ++step) {
    const std::vector<TokenId> mask = allowed(matcher, *vocabulary);
    std::vector<TokenId> expected;
    for (size_t id = 0; id < vocabulary->size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      Matcher fresh(vocabulary, grammar);
      RC_ASSERT(fresh.advance_bytes(text));
      const bool end = vocabulary->is_special(token);
      const std::string_view bytes = vocabulary->bytes(token);
      if (end ? fresh.accepting() : !bytes.empty() && fresh.advance_bytes(bytes)) expected.push_back(token);
    }
    RC_ASSERT(mask == expected);
    std::erase_if(expected, [&](TokenId token) { return vocabulary->is_special(token); });
    if (expected.empty()) break;
    const TokenId token = *rc::gen::elementOf(expected);
    text += vocabulary->bytes(token);
    RC_ASSERT(matcher.advance(token));
  }
}

RC_GTEST_PROP(Matchers, ClonesAndRollBacksEqualReplays, ()) {
  const auto vocabulary = random_vocabulary();
  const GrammarPtr grammar = random_grammar();
  Matcher matcher(vocabulary, grammar);
  std::vector<TokenId> taken;
  for (int step = 0; step < 30; ++step) {
    const std::vector<TokenId> mask = allowed(matcher, *vocabulary);
    if (mask.empty() || *rc::gen::inRange(0, 4) == 0) {
      const int back = *rc::gen::inRange(0, static_cast<int>(taken.size()) + 1);
      matcher.roll_back(back);
      taken.resize(taken.size() - static_cast<size_t>(back));
    } else {
      const TokenId token = *rc::gen::elementOf(mask);
      Matcher clone = matcher;
      RC_ASSERT(clone.advance(token));
      RC_ASSERT(matcher.advance(token));
      taken.push_back(token);
      RC_ASSERT(allowed(clone, *vocabulary) == allowed(matcher, *vocabulary));
    }
    Matcher replay(vocabulary, grammar);
    for (const TokenId token : taken) RC_ASSERT(replay.advance(token));
    RC_ASSERT(allowed(replay, *vocabulary) == allowed(matcher, *vocabulary));
    RC_ASSERT(replay.accepting() == matcher.accepting());
    RC_ASSERT(replay.must_end() == matcher.must_end());
  }
}

// A schema, and an instance made from it.
std::pair<ordered_json, ordered_json> schema_and_instance(int depth) {
  switch (*rc::gen::inRange(0, depth == 0 ? 4 : 7)) {
    case 0: {
      const int value = *rc::gen::inRange(-1000, 1000), below = *rc::gen::inRange(0, 50),
                above = *rc::gen::inRange(0, 50);
      return {{{"type", "integer"}, {"minimum", value - below}, {"maximum", value + above}}, value};
    }
    case 1: {
      const double value = *rc::gen::inRange(-100000, 100000) / 64.0;
      return {{{"type", "number"}, {"minimum", value - 0.25}, {"exclusiveMaximum", value + 1e-3}}, value};
    }
    case 2: {
      std::string value;
      for (const int c : *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 0x2FF))) {
        if (c < 0x80) {
          value += static_cast<char>(c);
        } else {
          value += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
        }
      }
      const auto length = std::ranges::count_if(value, [](char c) { return (c & 0xC0) != 0x80; });
      return {{{"type", "string"}, {"minLength", length}, {"maxLength", length}}, value};
    }
    case 3: {
      const ordered_json value = *rc::gen::element<ordered_json>(true, nullptr, 5, "x\n\"", 0.1);
      return {{{"enum", {value, "other"}}}, value};
    }
    case 4: {
      const auto [first, a] = schema_and_instance(depth - 1);
      const auto [second, b] = schema_and_instance(depth - 1);
      return {{{"type", "array"}, {"prefixItems", {first}}, {"items", second}, {"minItems", 2}}, {a, b, b}};
    }
    case 5: {
      const auto [first, a] = schema_and_instance(depth - 1);
      const auto [second, b] = schema_and_instance(depth - 1);
      return {{{"anyOf", {first, second}}}, b};
    }
    default: {
      ordered_json schema = {{"type", "object"}, {"required", ordered_json::array()}}, value = ordered_json::object();
      for (const char* name : {"one", "two", "three"}) {
        const auto [part, instance] = schema_and_instance(depth - 1);
        schema["properties"][name] = part;
        if (*rc::gen::arbitrary<bool>()) continue;
        value[name] = instance;
        schema["required"].push_back(name);
      }
      if (*rc::gen::arbitrary<bool>()) value["more"] = {1, 2};
      return {schema, value};
    }
  }
}

RC_GTEST_PROP(JsonSchema, AcceptsAnInstanceMadeFromIt, ()) {
  const auto [schema, instance] = schema_and_instance(3);
  const GrammarPtr grammar = compile_json_schema(schema);
  for (const std::string& text : {instance.dump(), instance.dump(2), instance.dump(-1, ' ', true)}) {
    Matcher matcher(Vocabulary::of_bytes(), grammar);
    RC_ASSERT(matcher.advance_bytes(text));
    RC_ASSERT(matcher.accepting());
  }
}

}  // namespace
}  // namespace quire::grammar
