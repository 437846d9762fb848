// The other end of a RemoteExecutor.
#pragma once

#include "engine/remote/channel.h"
#include "engine/step/executor.h"

namespace quire {

// Carries out the requests that come, until the engine's end is gone. A request that comes again gets the same reply, and
// an earlier one none. The engine is the same program, so orders are not checked beyond their form.
void serve_executor(Executor& executor, MessageChannel& channel);

}  // namespace quire
