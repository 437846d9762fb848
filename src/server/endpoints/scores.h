// /v1/rerank and /v1/score: how well documents fit queries, by a classifier that reads both or by their embeddings.
#pragma once

#include <memory>

#include "server/api/answer.h"

namespace quire {

std::unique_ptr<Answer> scores_body(ResponseHead head);

}  // namespace quire
