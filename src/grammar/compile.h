// From what clients send to a Grammar. All functions throw quire::Error: kInvalid for a malformed grammar, kUnsupported
// for a keyword that could not be honoured exactly, kResource for one that exceeds Limits. Messages name the keyword
// and its JSON pointer, or line and column.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "grammar/grammar.h"
#include "grammar/limits.h"

namespace quire::grammar {

using GrammarPtr = std::shared_ptr<const Grammar>;

// JSON Schema, drafts 7 and 2020-12 (docs/structured-output.md lists the keywords).
GrammarPtr compile_json_schema(const nlohmann::ordered_json& schema, const Limits& limits = {},
                               Texts texts = Texts::kToWrite);
// Any JSON object (response_format json_object).
GrammarPtr compile_json_object(const Limits& limits = {});
// The whole text matches the regex.
GrammarPtr compile_regex(std::string_view pattern, const Limits& limits = {});
// One of the texts; there must be at least one.
GrammarPtr compile_choice(std::span<const std::string> choices, const Limits& limits = {});
// llama.cpp's GBNF; also reads the EBNF of XGrammar and vLLM, which differs little.
GrammarPtr compile_gbnf(std::string_view text, const Limits& limits = {});

// Composes a grammar of parts, such as a tool call around the schema of its arguments:
//
//   Composer c;
//   auto call = c.sequence({c.special("<tool_call>"), c.text("{\"name\": \"f\", \"arguments\": "), c.json_schema(schema),
//                           c.text("}"), c.special("</tool_call>")});
//   GrammarPtr grammar = c.build(c.sequence({c.text_without(marker), c.repeat(call, 1, 4)}));
class Composer {
 public:
  struct Part {
    uint32_t node;
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  explicit Composer(const Limits& limits = {});
  ~Composer();
  Composer(const Composer&) = delete;
  Composer& operator=(const Composer&) = delete;

  Part text(std::string_view literal);
  Part one_of(std::span<const std::string> texts);
  // The added token with this spelling; literal text in a vocabulary that has no such token.
  Part special(std::string_view spelling);
  // From now on these tokens are not text in this grammar, wherever special() does not ask for them.
  void reserve(std::string_view spelling);
  Part regex(std::string_view pattern);
  Part json_schema(const nlohmann::ordered_json& schema, Texts texts = Texts::kToWrite);
  Part json_object();
  Part gbnf(std::string_view text);
  // Well-formed UTF-8 text, perhaps empty, that contains none of the markers, and whose first character other than white
  // space is none of `not_first` (ASCII).
  Part text_without(std::span<const std::string> markers, std::string_view not_first = {});
  Part sequence(std::span<const Part> parts);
  Part sequence(std::initializer_list<Part> parts) { return sequence(std::span(parts.begin(), parts.size())); }
  Part choice(std::span<const Part> parts);
  Part choice(std::initializer_list<Part> parts) { return choice(std::span(parts.begin(), parts.size())); }
  Part repeat(Part part, uint32_t min, uint32_t max);

  // The composer is spent afterwards.
  GrammarPtr build(Part root);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::grammar
