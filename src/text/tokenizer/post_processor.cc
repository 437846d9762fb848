#include "text/tokenizer/post_processor.h"

#include "base/error.h"
#include "text/tokenizer/hf_component.h"

namespace quire {
namespace {

constexpr size_t kMostAround = 4096;

using Kind = PairTemplate::Kind;

// BertProcessing and RobertaProcessing: "sep" and "cls" are [token, id].
TokenId processing_token(const JsonField& processor, const char* key) {
  const JsonField pair = processor.at(key).array();
  if (pair.size() != 2) throw pair.error("expected [token, id]");
  return static_cast<TokenId>(pair.at(1).integer(0, kMostTokens));
}

// The ids of a special token that a template names.
TokenIds template_token(const JsonField& processor, const JsonField& piece) {
  const std::string& name = piece.at("SpecialToken").at("id").string();
  const JsonField ids = processor.at("special_tokens").at(name).at("ids").array(kMostAround);
  TokenIds tokens;
  for (size_t k = 0; k < ids.size(); ++k) tokens.push_back(static_cast<TokenId>(ids.at(k).integer(0, kMostTokens)));
  return tokens;
}

// The tokens before and after the text of a template for one text.
void read_single(const JsonField& processor, TokenIds& before, TokenIds& after) {
  const JsonField pieces = processor.at("single").array();
  bool seen_text = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonField piece = pieces.at(i);
    if (piece.has("Sequence")) {
      if (seen_text) throw unsupported("{}: a template with two texts is not supported", piece.where());
      seen_text = true;
      continue;
    }
    const TokenIds ids = template_token(processor, piece);
    TokenIds& side = seen_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
    if (before.size() + after.size() > kMostAround)
      throw unsupported("{}: more than {} tokens around a text", pieces.where(), kMostAround);
  }
  if (!seen_text) throw pieces.error("lacks the text ({{\"Sequence\": …}})");
}

// Type ids must be 0 up to some piece and 1 from there on, as in every model's template.
PairTemplate read_pair(const JsonField& processor) {
  PairTemplate pair;
  const auto lacks = [&](std::string what) { return PairTemplate{.missing = std::move(what)}; };
  if (!processor.has("pair")) return lacks(processor.path() + ".pair is missing");
  const JsonField pieces = processor.at("pair").array();
  size_t texts = 0;
  bool second = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonField piece = pieces.at(i);
    const bool is_text = piece.has("Sequence");
    const JsonField named = piece.at(is_text ? "Sequence" : "SpecialToken");
    const int64_t type = named.has("type_id") ? named.at("type_id").integer(0, 255) : 0;
    if (type > 1 || (second && type == 0)) return lacks(piece.path() + ": type ids are not 0, then 1");
    if (type == 1 && !second) {
      pair.second = pair.pieces.size();
      second = true;
    }
    if (!is_text) {
      for (const TokenId id : template_token(processor, piece)) pair.add(id);
      if (pair.pieces.size() > kMostAround)
        throw unsupported("{}: more than {} tokens around a text", pieces.where(), kMostAround);
      continue;
    }
    const std::string& id = named.at("id").string();
    if (texts == 2 || id != (texts == 0 ? "A" : "B")) return lacks(pieces.path() + ": the texts are not A, then B");
    pair.add(texts++ == 0 ? Kind::kFirst : Kind::kSecond);
  }
  if (texts != 2) return lacks(pieces.path() + " lacks a text");
  if (!second) pair.second = pair.pieces.size();
  return pair;
}

// [CLS] a [SEP] b [SEP], where b has type 1; RoBERTa: <s> a </s></s> b </s>, all of type 0.
PairTemplate processing_pair(TokenId cls, TokenId sep, bool roberta) {
  PairTemplate pair;
  pair.add(cls);
  pair.add(Kind::kFirst);
  pair.add(sep);
  if (roberta) pair.add(sep);
  const size_t second = pair.pieces.size();
  pair.add(Kind::kSecond);
  pair.add(sep);
  pair.second = roberta ? pair.pieces.size() : second;
  return pair;
}

}  // namespace

AroundText read_hf_post_processor(const JsonField& field) {
  AroundText around;
  size_t processors = 0;
  for_each_component(field, "processors", [&](const JsonField& f) {
    const std::string& type = component_type(f);
    TokenIds before, after;
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      before = {processing_token(f, "cls")};
      after = {processing_token(f, "sep")};
      around.pair = processing_pair(before[0], after[0], type == "RobertaProcessing");
    } else if (type == "TemplateProcessing") {
      read_single(f, before, after);
      around.pair = read_pair(f);
    } else {
      throw unsupported("{}: the post-processor \"{}\" is not supported", f.where(), type);
    }
    ++processors;
    around.prefix.insert(around.prefix.begin(), before.begin(), before.end());
    around.suffix.insert(around.suffix.end(), after.begin(), after.end());
  });
  if (processors == 0) around.pair = {.missing = field.path() + " adds no tokens"};
  if (processors > 1) around.pair = {.missing = field.path() + " has several templates"};
  return around;
}

}  // namespace quire
