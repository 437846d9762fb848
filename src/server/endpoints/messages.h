// Anthropic's Messages API, text only.
#pragma once

#include <memory>

#include "server/api/answer.h"
#include "server/api/fields.h"

namespace quire {

// Fields of the request.
void read_text_messages(ApiDraft& draft, const JsonField& field);
void read_system(ApiDraft& draft, const JsonField& field);
void read_thinking(ApiDraft& draft, const JsonField& field);
void read_context_management(ApiDraft& draft, const JsonField& field);
void read_output_config(ApiDraft& draft, const JsonField& field);

// Whole or streamed, with one block of text.
std::unique_ptr<Answer> message_answer(ResponseHead head);

}  // namespace quire
