// Fill in the middle: `suffix` of completions, and llama.cpp's /infill.
#pragma once

#include "server/api/definition.h"
#include "server/api/request/fields.h"

namespace quire {

void read_suffix(ApiDraft& draft, const JsonField& field);

const ApiDefinition& infill_api();

// Checks what cannot be combined with a suffix.
void settle_suffix(ApiDraft& draft);
// ApiDefinition::adapt: throws ApiError if there is a suffix and the model cannot fill in the middle.
void require_infill(ApiRequest& request, const Service& service);

}  // namespace quire
