// quire serve: a model behind the OpenAI API.
#pragma once

namespace CLI {
class App;
}

namespace quire {

// Adds the subcommand `serve` to `app`. It runs until SIGTERM or SIGINT; throws Error when model or address are wrong.
void add_serve_command(CLI::App& app);

}  // namespace quire
