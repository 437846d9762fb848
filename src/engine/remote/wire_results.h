// Places of the cache and results of passes as messages.
#pragma once

#include <vector>

#include "engine/remote/messages.h"
#include "engine/step/executor.h"
#include "json/field.h"

namespace quire {

Json to_json(const CachePlace& place);
CachePlace read_place(const JsonField& json);

// The message's bytes are the logits.
void write_output(const ForwardOutput& output, Message& message);
// logits: where output.logits lie. Throws Error: the message has another form.
void read_output(const Message& message, ForwardOutput& output, std::vector<float>& logits);

}  // namespace quire
