// Fill in the middle: `suffix` of completions, and llama.cpp's /infill.
#pragma once

#include "server/api/fields.h"

namespace quire {

// Fields of the request.
void read_suffix(ApiDraft& draft, const JsonField& field);
void read_input_prefix(ApiDraft& draft, const JsonField& field);
void read_typed_prompt(ApiDraft& draft, const JsonField& field);
void read_input_suffix(ApiDraft& draft, const JsonField& field);
void read_input_extra(ApiDraft& draft, const JsonField& field);

// Checks what depends on several of these fields.
void settle_infill(ApiDraft& draft);

}  // namespace quire
