#include "model/gguf_vocabulary.h"

#include <limits>

#include "base/error.h"

namespace quire {

GgufVocabulary read_gguf_vocabulary(const Gguf& file) {
  GgufVocabulary v;
  v.model_name = file.get_or<std::string>("general.name", "");
  v.architecture = file.get_or<std::string>("general.architecture", "");
  v.model = file.get<std::string>("tokenizer.ggml.model");
  v.pre = file.get_or<std::string>("tokenizer.ggml.pre", "");
  v.tokens = file.strings("tokenizer.ggml.tokens");
  if (file.has("tokenizer.ggml.scores")) {
    const GgufValue& scores = *file.find("tokenizer.ggml.scores");
    if (scores.element == GgufType::I32) {  // old files
      for (int32_t s : file.numbers<int32_t>("tokenizer.ggml.scores")) v.scores.push_back(static_cast<float>(s));
    } else {
      v.scores = file.numbers<float>("tokenizer.ggml.scores");
    }
  }
  if (file.has("tokenizer.ggml.token_type")) v.token_types = file.numbers<int32_t>("tokenizer.ggml.token_type");
  if (file.has("tokenizer.ggml.merges")) v.merges = file.strings("tokenizer.ggml.merges");
  if (const GgufValue* map = file.find("tokenizer.ggml.precompiled_charsmap")) {
    if (map->type != GgufType::ARRAY || (map->element != GgufType::U8 && map->element != GgufType::I8)) {
      throw invalid("{}: tokenizer.ggml.precompiled_charsmap is not an array of bytes", file.file());
    }
    v.precompiled_charsmap = {reinterpret_cast<const char*>(map->bytes.data()), map->bytes.size()};
  }
  const auto id = [&](const char* key) -> std::optional<TokenId> {
    if (!file.has(key)) return std::nullopt;
    const auto number = file.get<int64_t>(key);
    // Files write 2^32-1 for "none"; the tokenizer ignores any id outside the vocabulary.
    if (number < 0 || number > std::numeric_limits<TokenId>::max()) return std::nullopt;
    return static_cast<TokenId>(number);
  };
  v.bos = id("tokenizer.ggml.bos_token_id");
  v.eos = id("tokenizer.ggml.eos_token_id");
  v.unk = id("tokenizer.ggml.unknown_token_id");
  v.pad = id("tokenizer.ggml.padding_token_id");
  v.eot = id("tokenizer.ggml.eot_token_id");
  v.eom = id("tokenizer.ggml.eom_token_id");
  v.sep = id("tokenizer.ggml.seperator_token_id");  // the format's own spelling
  // Files of before 2024-11 have the longer names.
  const auto fim_id = [&](const char* key, const char* old_key) { return file.has(key) ? id(key) : id(old_key); };
  v.fim.prefix = fim_id("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id");
  v.fim.suffix = fim_id("tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id");
  v.fim.middle = fim_id("tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id");
  v.fim.repository = id("tokenizer.ggml.fim_rep_token_id");
  v.fim.file = id("tokenizer.ggml.fim_sep_token_id");
  v.fim.pad = id("tokenizer.ggml.fim_pad_token_id");
  const auto flag = [&](const char* key) -> std::optional<bool> {
    if (!file.has(key)) return std::nullopt;
    return file.get<bool>(key);
  };
  v.add_bos = flag("tokenizer.ggml.add_bos_token");
  v.add_eos = flag("tokenizer.ggml.add_eos_token");
  v.add_sep = flag("tokenizer.ggml.add_sep_token");
  v.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
  v.remove_extra_whitespaces = flag("tokenizer.ggml.remove_extra_whitespaces");
  v.lowercase = flag("tokenizer.ggml.normalizer.lowercase");
  v.strip_accents = flag("tokenizer.ggml.normalizer.strip_accents");
  return v;
}

Tokenizer gguf_tokenizer(const Gguf& file) { return Tokenizer::from_gguf(read_gguf_vocabulary(file), file.file()); }

}  // namespace quire
