// Anthropic's Messages API: text, thinking and tools.
#pragma once

#include <memory>

#include "server/api/answer/answer.h"
#include "server/api/definition.h"
#include "server/api/request/fields.h"

namespace quire {

// Fields of the request.
void read_text_messages(ApiDraft& draft, const JsonField& field);
void read_system(ApiDraft& draft, const JsonField& field);
void read_thinking(ApiDraft& draft, const JsonField& field);
void read_context_management(ApiDraft& draft, const JsonField& field);
void read_output_config(ApiDraft& draft, const JsonField& field);

const ApiDefinition& message_api();
const ApiDefinition& count_tokens_api();

// Whole or streamed.
std::unique_ptr<Answer> message_answer(ResponseHead head);

}  // namespace quire
