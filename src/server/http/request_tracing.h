// The span of a request: from its header to its last byte.
#pragma once

#include <memory>
#include <span>

#include "quire/engine.h"
#include "server/http/connection_context.h"
#include "server/http/request_reader.h"
#include "server/otlp/request_span.h"

namespace quire {

struct CurrentRequest;

// A span whose parent the request's traceparent names; the root of a new trace if it names none. nullptr if the client has
// decided that this trace is not sampled.
std::unique_ptr<RequestSpan> begin_span(const HttpRequest& header);

// What the engine is asked for. model: its served name.
void describe(RequestSpan& span, std::span<const Request> requests, std::string_view model);

// Notes the end of a choice.
void note_end(RequestSpan& span, const Output& output);

// Hands the request's span over, if it has one and the engine was asked for something.
void export_span(CurrentRequest& request, const ConnectionContext& context);

}  // namespace quire
