#include "quantize/hf/gguf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "json/parse.h"
#include "model/gguf_vocabulary.h"
#include "text/convert/to_gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

// How texts are cut into words, as tokenizer.json says it. pattern: null: GPT-2's own, which "ByteLevel" has.
struct KnownPreTokenizer {
  std::string_view pre;  // tokenizer.ggml.pre
  bool splits_digits;
  const char* pattern;
  bool ignores_merges, normalizes;  // whole words that are tokens are not built from parts; NFC
};
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr KnownPreTokenizer kKnown[] = {{"gpt-2", false, nullptr, false, false},
                                        {"smollm", true, nullptr, false, false},
                                        {"llama-bpe", false, kLlama3Pattern, true, false},
                                        {"qwen2", false, kQwen2Pattern, false, true}};

constexpr int kControl = 3, kUserDefined = 4;  // of token_types

Json byte_level(bool uses_pattern) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", uses_pattern}};
}

Json pre_tokenizer(const KnownPreTokenizer& known) {
  if (!known.splits_digits && !known.pattern) return byte_level(true);
  Json first = known.pattern ? Json{{"type", "Split"},
                                    {"pattern", {{"Regex", known.pattern}}},
                                    {"behavior", "Isolated"},
                                    {"invert", false}}
                             : Json{{"type", "Digits"}, {"individual_digits", true}};
  Json steps = Json::array();
  steps.push_back(std::move(first));
  steps.push_back(byte_level(known.pattern == nullptr));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// What is put before a text.
Json post_processor(const GgufVocabulary& v) {
  if (!v.add_bos.value_or(false) || !v.bos) return byte_level(true);
  const std::string bos(v.tokens[static_cast<size_t>(*v.bos)]);
  const auto special = [&](int of) { return Json{{"SpecialToken", {{"id", bos}, {"type_id", of}}}}; };
  const auto sequence = [](const char* name, int of) { return Json{{"Sequence", {{"id", name}, {"type_id", of}}}}; };
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  for (const Json& step : {special(0), sequence("A", 0)}) single.push_back(step), pair.push_back(step);
  for (const Json& step : {special(1), sequence("B", 1)}) pair.push_back(step);
  tokens[bos] = {{"id", bos}, {"ids", Json::array({*v.bos})}, {"tokens", Json::array({bos})}};
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json tokenizer_json(const GgufVocabulary& v, const KnownPreTokenizer& known) {
  Json vocab = Json::object(), added = Json::array(), merges = Json::array();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const int kind = v.token_types.empty() ? 1 : v.token_types[id];
    if (kind == kControl || kind == kUserDefined) {
      added.push_back({{"id", id},
                       {"content", v.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind == kControl}});
    }
    vocab[std::string(v.tokens[id])] = id;
  }
  for (const std::string_view merge : v.merges) merges.push_back(merge);
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", known.normalizes ? Json{{"type", "NFC"}} : Json(nullptr)},
          {"pre_tokenizer", pre_tokenizer(known)},
          {"post_processor", post_processor(v)},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", known.ignores_merges},
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}}}};
}

Json tokenizer_config(const GgufVocabulary& v, const Gguf& file, const ModelConfig& config) {
  Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"clean_up_tokenization_spaces", false},
               {"model_max_length", config.max_positions}};
  const auto name_of = [&](const char* key, std::optional<TokenId> id) {
    if (id && static_cast<size_t>(*id) < v.tokens.size()) json[key] = v.tokens[static_cast<size_t>(*id)];
  };
  name_of("bos_token", v.bos);
  name_of("eos_token", v.eos);
  name_of("unk_token", v.unk);
  name_of("pad_token", v.pad);
  if (file.find("tokenizer.chat_template")) json["chat_template"] = file.get<std::string>("tokenizer.chat_template");
  return json;
}

Json generation_config(const GgufVocabulary& v) {
  Json json = Json::object(), ends = Json::array();
  if (v.bos) json["bos_token_id"] = *v.bos;
  if (v.eos) ends.push_back(*v.eos);
  if (v.eot && v.eot != v.eos) ends.push_back(*v.eot);
  if (!ends.empty()) json["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  return json;
}

// Why tokenizer.json would not be the vocabulary of the file; empty: it is.
std::string tokenizer_misfit(const Gguf& file, const std::string& json, const std::string& settings) {
  try {
    const TokenizerDifference difference =
        compare_tokenizers(gguf_tokenizer(file), Tokenizer::from_hf_json(json, "tokenizer.json", settings));
    return difference.ordinary.empty() ? "" : fmt::format("would split \"{}\" into other tokens", difference.ordinary);
  } catch (const Error& error) {
    return fmt::format("would be none: {}", error.what());
  }
}

}  // namespace

GgufTokenizerFiles tokenizer_files(const Checkpoint& checkpoint, const ModelConfig& config) {
  GgufTokenizerFiles files;
  const Gguf& file = *checkpoint.gguf();
  if (!file.find("tokenizer.ggml.model") || file.get<std::string>("tokenizer.ggml.model") == "none") {
    files.warnings.push_back("the file has no vocabulary, so the directory has no tokenizer");
    return files;
  }
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  files.texts.emplace_back("generation_config.json", generation_config(vocabulary).dump(2) + "\n");
  const auto* known = std::ranges::find(kKnown, vocabulary.pre, &KnownPreTokenizer::pre);
  if (vocabulary.model != "gpt2" || known == std::end(kKnown)) {
    files.warnings.push_back(fmt::format(
        "the vocabulary ({}, {}) cannot be written as tokenizer.json yet, so the directory has no tokenizer; copy "
        "that of the model's own directory into it",
        vocabulary.model, vocabulary.pre.empty() ? "no pre-tokenizer" : vocabulary.pre));
    return files;
  }
  const std::string json = tokenizer_json(vocabulary, *known).dump(),
                    settings = tokenizer_config(vocabulary, file, config).dump(2) + "\n";
  if (const std::string why = tokenizer_misfit(file, json, settings); !why.empty()) {
    files.warnings.push_back(fmt::format("the directory has no tokenizer: made of the file's vocabulary, it {}", why));
    return files;
  }
  files.texts.emplace_back("tokenizer.json", json);
  files.texts.emplace_back("tokenizer_config.json", settings);
  return files;
}

}  // namespace quire
