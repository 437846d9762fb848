// Ollama's API: chats, prompts, embeddings, and the description of the model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer/answer.h"
#include "server/api/definition.h"
#include "server/api/request/fields.h"

namespace quire {

// The version of Ollama whose API this is. Clients ask for it to find out what they may send.
inline constexpr std::string_view kOllamaVersion = "0.12.11";

const ApiDefinition& ollama_chat_api();
const ApiDefinition& ollama_generate_api();
const ApiDefinition& ollama_embeddings_api();

// Fields of the request.
void read_ollama_model(ApiDraft& draft, const JsonField& field);
void read_ollama_messages(ApiDraft& draft, const JsonField& field);
void read_ollama_system(ApiDraft& draft, const JsonField& field);
void read_options(ApiDraft& draft, const JsonField& field);
void read_think(ApiDraft& draft, const JsonField& field);
void read_raw(ApiDraft& draft, const JsonField& field);
void read_truncate(ApiDraft& draft, const JsonField& field);
void read_num_predict(ApiDraft& draft, const JsonField& field);
void read_num_ctx(ApiDraft& draft, const JsonField& field);
void read_keep_alive(ApiDraft& draft, const JsonField& field);

// Check and derive what depends on several of these fields.
void settle_ollama_chat(ApiDraft& draft);
void settle_generate(ApiDraft& draft);
void settle_embed(ApiDraft& draft);
// ApiDefinition::adapt of chats and prompts.
void adapt_ollama(ApiRequest& request, const Service& service);

// Makes the prompt of /api/generate the model's own, because it has no chat template. Throws ApiError if it has a
// system message, too.
void use_plain_prompt(ApiRequest& request);

// Answers to chats and prompts, whole or streamed: a JSON object on each line.
std::unique_ptr<Answer> ollama_answer(ResponseHead head, TokenBytes token_bytes);
std::unique_ptr<Answer> ollama_embeddings(ResponseHead head);
// To a request that only loads the model.
Json ollama_loaded_json(const ApiRequest& request);

// What Ollama's API says about the loaded model.
struct OllamaModel {
  const ModelInfo& info;
  std::vector<std::string> names;  // served, with aliases
  int64_t loaded;                  // seconds since 1970
  std::string chat_template;       // empty: none
  bool thinks, infills;
};
// Append each name of the model to a list.
void add_ollama_tags(const OllamaModel& model, Json& models);  // installed models
void add_ollama_ps(const OllamaModel& model, Json& models);    // loaded models
Json ollama_show_json(const OllamaModel& model);

// The JSON Schemas of messages, answers and errors: an object of them by name, for /openapi.json.
std::string_view ollama_schemas();

}  // namespace quire
