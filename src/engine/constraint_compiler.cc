#include "engine/constraint_compiler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/compile.h"
#include "json/parse.h"

namespace quire {
namespace {

Constraint compile_source(const ConstraintSource& source) {
  switch (source.kind) {
    case ConstraintSource::Kind::kJsonSchema:
      return grammar::compile_json_schema(parse_json(source.text, "JSON schema"));
    case ConstraintSource::Kind::kJsonObject:
      return grammar::compile_json_object();
    case ConstraintSource::Kind::kRegex:
      return grammar::compile_regex(source.text);
    case ConstraintSource::Kind::kChoice:
      return grammar::compile_choice(source.choices);
    case ConstraintSource::Kind::kGrammar:
      return grammar::compile_gbnf(source.text);
  }
  throw invalid("unknown kind of constraint");
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary(const Tokenizer& tokenizer, int vocab,
                                                              std::span<const TokenId> end_tokens) {
  std::vector<std::string_view> bytes(static_cast<size_t>(vocab));
  std::vector<grammar::SpecialToken> special;
  for (TokenId id = 0; id < std::min(vocab, tokenizer.vocab_size()); ++id) {
    const TokenKind kind = tokenizer.kind(id);
    if (tokenizer.is_special(id) || tokenizer.is_control(id) || kind == TokenKind::kUnknown ||
        kind == TokenKind::kUnused) {
      special.push_back({id, std::string(tokenizer.token_text(id))});
    } else {
      bytes[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
    }
  }
  return grammar::Vocabulary::build(bytes, special, end_tokens);
}

std::shared_ptr<const grammar::Vocabulary> ConstraintCompiler::vocabulary() {
  if (!tokenizer_) throw unsupported("structured output needs a vocabulary, which this model does not have");
  std::call_once(vocabulary_made_, [&] { vocabulary_ = grammar_vocabulary(*tokenizer_, vocab_, end_tokens_); });
  return vocabulary_;
}

Constraint ConstraintCompiler::compile(const ConstraintSource& source) {
  vocabulary();
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(compiled_.begin(), compiled_.end(), [&](auto& c) { return c.source == source; });
    if (known != compiled_.end()) {
      compiled_.splice(compiled_.begin(), compiled_, known);
      return known->constraint;
    }
  }
  Constraint constraint = compile_source(source);
  remember(source, constraint);
  return constraint;
}

void ConstraintCompiler::remember(const ConstraintSource& source, const Constraint& constraint) {
  const std::lock_guard lock(mutex_);
  compiled_.push_front({source, constraint});
  size_t bytes = 0;
  auto c = compiled_.begin();
  for (size_t i = 0; c != compiled_.end() && i < kMostCached; ++c, ++i) {
    bytes += c->source.text.size() + c->constraint->memory();
    if (i > 0 && bytes > kMostCachedBytes) break;
  }
  compiled_.erase(c, compiled_.end());
}

}  // namespace quire
