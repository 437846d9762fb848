#include "grammar/compile.h"

#include "base/error.h"
#include "base/text/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/parts.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema/json_schema.h"

namespace quire::grammar {

struct Composer::State {
  explicit State(const Limits& l)
      : limits(l), parts(Budget{.steps = l.compile_steps, .nodes = l.nodes, .stop = l.stop}), encoder(parts.regexes) {}

  void check_size(size_t bytes, const char* what) const {
    if (bytes > limits.bytes)
      throw no_resource("{} of {} bytes is too large; at most {} are allowed", what, bytes, limits.bytes);
  }

  Limits limits;
  GrammarParts parts;
  CharEncoder encoder;
};

Composer::Composer(const Limits& limits) : state_(std::make_unique<State>(limits)) {}
Composer::~Composer() = default;

Composer::Part Composer::text(std::string_view literal) {
  state_->check_size(literal.size(), "a text");
  return {state_->parts.nodes.regex(state_->parts.regexes.literal(literal))};
}

Composer::Part Composer::one_of(std::span<const std::string> texts) {
  if (texts.empty()) throw invalid("choice: there must be at least one text");
  size_t bytes = 0;
  for (const std::string& text : texts) {
    if (!is_utf8(text)) throw invalid("choice: a text is not well-formed UTF-8");
    bytes += text.size();
  }
  state_->check_size(bytes, "a choice");
  return {state_->parts.nodes.regex(state_->parts.regexes.one_of({texts.begin(), texts.end()}))};
}

Composer::Part Composer::special(std::string_view spelling) {
  return {state_->parts.nodes.special(state_->parts.add_special({.spelling = std::string(spelling)}))};
}

void Composer::reserve(std::string_view spelling) { state_->parts.add_special({.spelling = std::string(spelling)}); }

Composer::Part Composer::regex(std::string_view pattern) {
  state_->check_size(pattern.size(), "a regex");
  return {state_->parts.nodes.regex(parse_regex(pattern, Anchoring::kWhole, Encoding::kUtf8, state_->encoder,
                                                state_->parts.regexes, "regex", state_->limits.depth))};
}

Composer::Part Composer::json_schema(const nlohmann::ordered_json& schema, Texts texts) {
  return {add_json_schema(state_->parts, state_->encoder, schema, state_->limits, texts)};
}

Composer::Part Composer::json_object() { return {add_json_object(state_->parts, state_->encoder, state_->limits)}; }

Composer::Part Composer::gbnf(std::string_view text) {
  state_->check_size(text.size(), "a grammar");
  return {add_gbnf(state_->parts, state_->encoder, text, state_->limits)};
}

Composer::Part Composer::text_without(std::span<const std::string> markers, std::string_view not_first) {
  RegexStore& regexes = state_->parts.regexes;
  const RegexId any = regexes.repeat(state_->encoder.any(Encoding::kUtf8), 0, kUnbounded);
  std::vector<RegexId> all{any};
  for (const std::string& marker : markers)
    all.push_back(regexes.negate(regexes.concat({any, regexes.literal(marker), any})));
  if (!not_first.empty()) {
    std::vector<std::string> first, space;
    for (const char c : not_first) first.emplace_back(1, c);
    for (const char c : std::string_view(" \t\r\n")) space.emplace_back(1, c);
    all.push_back(regexes.negate(
        regexes.concat({regexes.repeat(regexes.one_of(space), 0, kUnbounded), regexes.one_of(first), any})));
  }
  return {state_->parts.nodes.regex(regexes.all_of(std::move(all)))};
}

Composer::Part Composer::sequence(std::span<const Part> parts) {
  NodeId all = state_->parts.empty();
  for (size_t i = parts.size(); i-- > 0;) all = state_->parts.nodes.sequence(parts[i].node, all);
  return {all};
}

Composer::Part Composer::choice(std::span<const Part> parts) {
  std::vector<NodeId> nodes;
  for (const Part part : parts) nodes.push_back(part.node);
  return {state_->parts.nodes.choice(std::move(nodes))};
}

Composer::Part Composer::repeat(Part part, uint32_t min, uint32_t max) {
  if (min > max) throw invalid("a repetition of at least {} and at most {} is impossible", min, max);
  return {state_->parts.nodes.repeat(part.node, min, max)};
}

GrammarPtr Composer::build(Part root) {
  GrammarParts& parts = state_->parts;
  parts.finish(root.node);
  return std::make_shared<const Grammar>(std::move(parts), state_->limits);
}

GrammarPtr compile_json_schema(const nlohmann::ordered_json& schema, const Limits& limits, Texts texts) {
  Composer composer(limits);
  return composer.build(composer.json_schema(schema, texts));
}

GrammarPtr compile_json_object(const Limits& limits) {
  Composer composer(limits);
  return composer.build(composer.json_object());
}

GrammarPtr compile_regex(std::string_view pattern, const Limits& limits) {
  Composer composer(limits);
  return composer.build(composer.regex(pattern));
}

GrammarPtr compile_choice(std::span<const std::string> choices, const Limits& limits) {
  Composer composer(limits);
  return composer.build(composer.one_of(choices));
}

GrammarPtr compile_gbnf(std::string_view text, const Limits& limits) {
  Composer composer(limits);
  return composer.build(composer.gbnf(text));
}

}  // namespace quire::grammar
