// A server of no model: answers /v1/completions as a script says, and writes down when it did. What
// `quire bench serve --selftest` is held against.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace quire {

// How one request is answered: max_tokens tokens, one an event.
struct ScriptedAnswer {
  enum class Ending {
    kWhole,
    kRefused,    // HTTP 503 instead of a stream
    kCut,        // the connection closes halfway
    kError,      // an error event halfway
    kShort,      // says that it is whole, with one token less
    kUnwilling,  // whole, then the connection closes without having said so
  };
  std::chrono::microseconds first{0}, gap{0};  // before the first token, before each other one
  int cached_tokens = -1;                      // what the usage says; -1: nothing
  Ending ending = Ending::kWhole;
};

// When it got a request and wrote each token of the answer.
struct ScriptedTimes {
  std::chrono::steady_clock::time_point received;
  std::vector<std::chrono::steady_clock::time_point> tokens;
};

class ScriptedServer {
 public:
  // `script` is asked in the order in which requests come, from a thread of the server's own. A serial server
  // answers one request after the other.
  ScriptedServer(std::function<ScriptedAnswer(int request)> script, bool serial);
  ~ScriptedServer();

  std::string url() const;
  // Of the answers so far, in the order in which they began; to be read when no request is under way.
  const std::vector<ScriptedTimes>& times() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
