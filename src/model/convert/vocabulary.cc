#include "model/convert/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "model/model_text.h"
#include "text/convert/to_gguf.h"

namespace quire {
namespace {

// Files may have several templates, by name; "default" is the one that text.template_source holds.
void add_templates(const Checkpoint& from, const ModelText& text, GgufHeader& header) {
  const auto list = from.hf()->tokenizer ? from.hf()->tokenizer->find("chat_template") : std::nullopt;
  if (list && list->json().is_array()) {
    std::vector<std::string> names;
    for (const JsonField& entry : list->elements()) {
      const auto name = entry.get<std::string>("name");
      if (name == "default") continue;
      header.string("tokenizer.chat_template." + name, entry.get<std::string>("template"));
      names.push_back(name);
    }
    if (!names.empty()) header.strings("tokenizer.chat_templates", names);
  }
  if (text.template_source) header.string("tokenizer.chat_template", *text.template_source);
}

void add(const GgufVocabularyData& v, GgufHeader& header) {
  header.string("tokenizer.ggml.model", v.model);
  header.string("tokenizer.ggml.pre", v.pre);
  header.strings("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) header.numbers("tokenizer.ggml.scores", v.scores);
  header.numbers("tokenizer.ggml.token_type", v.types);
  if (!v.merges.empty()) header.strings("tokenizer.ggml.merges", v.merges);
  if (!v.charsmap.empty()) header.bytes("tokenizer.ggml.precompiled_charsmap", v.charsmap);
  const auto id = [&](const char* key, std::optional<TokenId> token) {
    if (token) header.u32(key, *token);
  };
  id("tokenizer.ggml.bos_token_id", v.bos);
  id("tokenizer.ggml.eos_token_id", v.eos);
  id("tokenizer.ggml.unknown_token_id", v.unk);
  id("tokenizer.ggml.padding_token_id", v.pad);
  id("tokenizer.ggml.eot_token_id", v.eot);
  id("tokenizer.ggml.seperator_token_id", v.sep);  // the format's own spelling
  const auto flag = [&](const char* key, std::optional<bool> value) {
    if (value) header.flag(key, *value);
  };
  flag("tokenizer.ggml.add_bos_token", v.add_bos);
  flag("tokenizer.ggml.add_eos_token", v.add_eos);
  flag("tokenizer.ggml.add_sep_token", v.add_sep);
  flag("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  flag("tokenizer.ggml.remove_extra_whitespaces", v.remove_extra_whitespaces);
  flag("tokenizer.ggml.normalizer.lowercase", v.lowercase);
  flag("tokenizer.ggml.normalizer.strip_accents", v.strip_accents);
}

}  // namespace

void add_vocabulary(const Checkpoint& from, const ModelConfig& config, GgufHeader& header,
                    std::vector<std::string>& warnings) {
  const ModelText text = load_model_text(from);
  // llama.cpp wants this of every encoder, also of those without segments.
  if (!config.has_logits) header.u32("tokenizer.ggml.token_type_count", std::max(1, config.segments));
  if (!text.tokenizer) {
    header.string("tokenizer.ggml.model", "none");
    warnings.push_back(from.file() + " has no tokenizer.json, so the file has no vocabulary");
    return;
  }
  check_vocabulary(from, text, config);
  const auto json = JsonField::read(from.path() / "tokenizer.json", size_t{256} << 20);
  GgufVocabularyData v = gguf_vocabulary(*text.tokenizer, json, {config.vocab, config.bos, config.eos});
  warnings.insert(warnings.end(), v.warnings.begin(), v.warnings.end());
  add(v, header);
  add_templates(from, text, header);
}

void check_vocabulary_of(const Checkpoint& from, const Checkpoint& written, std::vector<std::string>& warnings) {
  const ModelText a = load_model_text(from), b = load_model_text(written);
  if (!a.tokenizer) return;
  const TokenizerDifference difference = compare_tokenizers(*a.tokenizer, *b.tokenizer);
  if (!difference.ordinary.empty())
    throw unsupported("{}: the tokenizer cannot be written as GGUF: llama.cpp would split \"{}\" into other tokens",
                      from.file(), difference.ordinary);
  if (!difference.unusual.empty())
    warnings.push_back(fmt::format("llama.cpp splits some unusual texts into other tokens than tokenizer.json: \"{}\"",
                                   difference.unusual));
}

}  // namespace quire
