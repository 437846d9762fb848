// The parameters that ask for structured output, in the forms of all clients.
#pragma once

#include "server/api/request/fields.h"

namespace quire {

void read_response_format(ApiDraft& draft, const JsonField& field);     // OpenAI's chats; also llama.cpp's form
void read_structured_outputs(ApiDraft& draft, const JsonField& field);  // vLLM's
void read_guided_json(ApiDraft& draft, const JsonField& field);         // vLLM's older four
void read_guided_regex(ApiDraft& draft, const JsonField& field);
void read_guided_choice(ApiDraft& draft, const JsonField& field);
void read_grammar(ApiDraft& draft, const JsonField& field);        // guided_grammar, and llama.cpp's grammar
void read_schema(ApiDraft& draft, const JsonField& field);         // llama.cpp's json_schema
void read_output_format(ApiDraft& draft, const JsonField& field);  // OpenAI's responses, Anthropic's messages
void read_format(ApiDraft& draft, const JsonField& field);         // Ollama's

}  // namespace quire
