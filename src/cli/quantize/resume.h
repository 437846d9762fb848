// quire quantize --resume: keeps what is finished when a run ends early, and continues it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "format/partial_output.h"
#include "model/checkpoint.h"

namespace quire {

// Opens OUT.partial and says on standard error what is there. The order is this program, the model's weights and settings,
// every flag of the command that was given and can change the output, and the contents of the files that flags name. Throws
// Error as PartialOutput does. force: start over if it is of another order.
std::unique_ptr<PartialOutput> open_partial(const CLI::App& command, const Checkpoint& checkpoint,
                                            const std::string& output, bool force);

// The model's weights and settings, as a hash that two runs can compare.
std::string model_fingerprint(const Checkpoint& checkpoint);

// Calls the task, which may set `partial`. If it throws, says where what is finished is kept, or removes an empty folder.
void keep_on_failure(std::unique_ptr<PartialOutput>& partial, const std::function<void()>& task);

}  // namespace quire
