// Long tasks that Ctrl-C ends without leaving unfinished files.
#pragma once

#include <functional>

namespace quire {

// Calls task(check), which calls check() now and then: once Ctrl-C came, check() throws, objects of the task clean up, and
// the process ends as by an uncaught Ctrl-C. A second Ctrl-C ends it at once.
void run_interruptible(const std::function<void(const std::function<void()>& check)>& task);

}  // namespace quire
