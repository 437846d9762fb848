// quire template: what a chat template makes of messages.
#pragma once

namespace CLI {
class App;
}

namespace quire {

// Adds the subcommand `template` to `app`. It reads stdin and writes stdout when CLI11 calls it back; throws Error for
// flags and templates that are wrong, and answers a wrong line of stdin with a line {"error": …}.
void add_template_command(CLI::App& app);

}  // namespace quire
