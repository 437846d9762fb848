// The text side of a model: its tokenizer, chat template and special tokens, without its weights.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model/checkpoint.h"
#include "model/config.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

struct ModelText {
  std::optional<Tokenizer> tokenizer;          // empty: the checkpoint has no vocabulary
  std::optional<std::string> template_source;  // Jinja
  std::optional<std::string> rerank_template;  // as encode_rerank_prompt() takes it
  nlohmann::ordered_json special_tokens =
      nlohmann::ordered_json::object();  // template variables: bos_token, eos_token, …
};

ModelText load_model_text(const Checkpoint& checkpoint);
// Parses text.template_source, after replacing a template's name by the template. nullopt: there is none. where: for messages.
std::optional<ChatTemplate> parse_chat_template(ModelText& text, const std::string& where);
// Throws Error if the tokenizer has tokens that the model lacks.
void check_vocabulary(const Checkpoint& checkpoint, const ModelText& text, const ModelConfig& config);
// model: a path or a registered name, as for -m (registry.h).
ModelText load_model_text(const std::string& model);

}  // namespace quire
