// Why requests fail after they were accepted, as clients are told.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "quire/engine.h"
#include "server/api/error.h"

namespace quire {

// Nothing: the output does not end an answer, or ends it well.
std::optional<ApiError> failure_of(const Output& output);

ApiError timeout_error();                     // 504
ApiError stopping_error();                    // 503
ApiError overloaded_error();                  // 503: the budget for replies is used up
ApiError lost_error(const std::string& why);  // 503: FinishReason::kLost

// 503: the model cannot be loaded, and why.
ApiError load_error(const std::string& model, const std::exception_ptr& failure);

// 413: writing the answer takes more than `limit` bytes.
ApiError large_answer_error(size_t limit);

}  // namespace quire
