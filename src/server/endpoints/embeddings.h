// /v1/embeddings: one vector for each text.
#pragma once

#include <memory>

#include "server/api/answer.h"

namespace quire {

std::unique_ptr<Answer> embeddings_body(ResponseHead head);

}  // namespace quire
