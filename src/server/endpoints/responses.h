// OpenAI's Responses API: text, reasoning and tools. Nothing is stored.
#pragma once

#include <memory>
#include <string_view>

#include "server/api/answer/answer.h"
#include "server/api/definition.h"
#include "server/api/request/fields.h"

namespace quire {

// Fields of the request.
void read_items(ApiDraft& draft, const JsonField& field);
void read_reasoning(ApiDraft& draft, const JsonField& field);
void read_text_options(ApiDraft& draft, const JsonField& field);
void read_truncation(ApiDraft& draft, const JsonField& field);
void read_include(ApiDraft& draft, const JsonField& field);

// Whether the answer repeats the parameter.
bool is_repeated(std::string_view parameter);

const ApiDefinition& response_api();
const ApiDefinition& count_input_api();

// Whole or streamed.
std::unique_ptr<Answer> response_answer(ResponseHead head, TokenBytes token_bytes);

}  // namespace quire
