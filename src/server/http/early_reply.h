// Requests that are answered before their body is read: CORS preflights and everything that is turned away.
#pragma once

#include <optional>

#include "server/api/answer/reply.h"
#include "server/http/current_request.h"

namespace quire {

// Nothing: read the body and answer. Sets request.tenant. guarded: only what context.local_hosts allows.
std::optional<Reply> early_reply(const HttpRequest& http, bool guarded, const ConnectionContext& context,
                                 CurrentRequest& request);

}  // namespace quire
