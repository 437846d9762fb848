// quire tokenize: text to token ids and back.
#pragma once

namespace CLI {
class App;
}

namespace quire {

void add_tokenize_command(CLI::App& app);

}  // namespace quire
