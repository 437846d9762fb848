// Telling systemd about the state of a service of Type=notify, without its library.
#pragma once

#include <string_view>

namespace quire {

// Sends a state such as "READY=1" to the socket that $NOTIFY_SOCKET names. Does nothing without one; a failure is ignored.
void sd_notify(std::string_view state);

}  // namespace quire
