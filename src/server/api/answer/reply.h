// The whole response to a simple request.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/api/error.h"

namespace quire {

struct Reply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};
Reply error_reply(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);

}  // namespace quire
