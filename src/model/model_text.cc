#include "model/model_text.h"

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "model/gguf_vocabulary.h"
#include "model/registry.h"
#include "text/named_templates.h"

namespace quire {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{128} << 20, kMaxTemplateBytes = size_t{4} << 20;

ModelText from_gguf(const Gguf& gguf) {
  ModelText text;
  if (gguf.has("tokenizer.ggml.tokens")) {
    text.tokenizer = gguf_tokenizer(gguf);
    const auto name_token = [&](const char* variable, std::optional<TokenId> id) {
      if (id) text.special_tokens[variable] = std::string(text.tokenizer->token_text(*id));
    };
    name_token("bos_token", text.tokenizer->bos());
    name_token("eos_token", text.tokenizer->eos());
    name_token("unk_token", text.tokenizer->unk());
    name_token("pad_token", text.tokenizer->pad());
  }
  if (gguf.has("tokenizer.chat_template.rerank"))
    text.rerank_template = gguf.get<std::string>("tokenizer.chat_template.rerank");
  if (gguf.has("tokenizer.chat_template")) text.template_source = gguf.get<std::string>("tokenizer.chat_template");
  return text;
}

// "chat_template" is a string, or a list of named ones of which "default" counts.
std::optional<std::string> template_of(const JsonField& config) {
  const auto value = config.find("chat_template");
  if (!value) return std::nullopt;
  if (value->json().is_string()) return value->string();
  for (const JsonField& entry : value->elements()) {
    if (entry.get<std::string>("name") == "default") return entry.get<std::string>("template");
  }
  return std::nullopt;
}

ModelText from_hf(const std::filesystem::path& directory, const HfConfig& hf) {
  ModelText text;
  const auto tokenizer = directory / "tokenizer.json", config = directory / "tokenizer_config.json",
             chat = directory / "chat_template.jinja";
  if (std::filesystem::exists(tokenizer)) {
    const std::string extra = std::filesystem::exists(config) ? read_text_file(config, kMaxTokenizerBytes) : "";
    text.tokenizer = Tokenizer::from_hf_json(read_text_file(tokenizer, kMaxTokenizerBytes), tokenizer.string(), extra);
  }
  if (hf.tokenizer) {
    text.template_source = template_of(*hf.tokenizer);
    for (const auto& [key, value] : hf.tokenizer->json().items()) {
      if (!key.ends_with("_token")) continue;
      if (value.is_string()) text.special_tokens[key] = value;
      if (value.is_object() && value.contains("content") && value["content"].is_string())
        text.special_tokens[key] = value["content"];
    }
  }
  if (std::filesystem::exists(chat)) text.template_source = read_text_file(chat, kMaxTemplateBytes);
  return text;
}

}  // namespace

ModelText load_model_text(const Checkpoint& checkpoint) {
  return checkpoint.gguf() ? from_gguf(*checkpoint.gguf()) : from_hf(checkpoint.path(), *checkpoint.hf());
}

void check_vocabulary(const Checkpoint& checkpoint, const ModelText& text, const ModelConfig& config) {
  if (!text.tokenizer || text.tokenizer->vocab_size() <= config.vocab) return;
  throw invalid("{}: the tokenizer has {} tokens, but the model has {}", checkpoint.file(),
                text.tokenizer->vocab_size(), config.vocab);
}

ModelText load_model_text(const std::string& model) {
  const auto path = resolve_model(model);
  if (!std::filesystem::is_directory(path)) return from_gguf(Gguf::open(path));
  // A tokenizer's folder may be without weights, and even without config.json.
  if (!std::filesystem::exists(path / "config.json")) {
    HfConfig empty{JsonField::parse("{}", "config.json"), std::nullopt, std::nullopt};
    if (std::filesystem::exists(path / "tokenizer_config.json"))
      empty.tokenizer = JsonField::read(path / "tokenizer_config.json");
    return from_hf(path, empty);
  }
  return from_hf(path, HfConfig::open(path));
}

std::optional<ChatTemplate> parse_chat_template(ModelText& text, const std::string& where) {
  if (text.template_source) text.template_source = template_or_named(*text.template_source, where);
  if (!text.template_source) return std::nullopt;
  return ChatTemplate::parse(*text.template_source, where);
}

}  // namespace quire
