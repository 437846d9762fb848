// llama.cpp's own API: /completion, and what its clients ask about the server. (/infill: infill.h.)
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/api/answer/answer.h"
#include "server/api/request/fields.h"

namespace quire {

// Fields of the requests.
void read_n_probs(ApiDraft& draft, const JsonField& field);
void read_response_fields(ApiDraft& draft, const JsonField& field);

// The fields of /completion and /infill.
std::span<const ApiField> llama_fields();
std::span<const RefusedField> refused_llama_fields();

// Answers of /completion and /infill, whole or streamed. Several choices make an array.
std::unique_ptr<Answer> llama_answer(ResponseHead head, TokenBytes token_bytes);

// What llama.cpp's API says about the server.
struct LlamaServer {
  const ModelInfo& info;
  std::string name;          // under which it is served
  std::string_view version;  // this program's
  int slots, busy;           // sequences that can run, and that do
  bool speculates;
  std::string chat_template;  // empty: none
  Json bos_token, eos_token;  // null: none
  SamplingParams sampling;    // for requests that do not say
};
Json llama_props_json(const LlamaServer& server);
Json llama_slots_json(const LlamaServer& server);

// The JSON Schemas of answers: an object of them by name, for /openapi.json.
std::string_view llama_schemas();

}  // namespace quire
